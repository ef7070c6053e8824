import fcntl
import json
import multiprocessing
import pickle
import sys
import threading
import time
from importlib import resources

import jsonschema
import numpy as np
import pytest

from agentgym.errors import MissingDependency, UsageError
from agentgym.messages import user
from agentgym.trajectory import Reply, SegmentBuilder, Step, Trajectory, TrajectoryStore, from_dict, to_dict
from agentgym.trajectory.records import Segment
from agentgym.trajectory.store import jsonable
from tests.trajectory.examples import full, rich_messages

SCHEMA = json.loads(resources.files("agentgym.trajectory").joinpath("schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def one_turn(id="t"):
    b = SegmentBuilder()
    b.add((user("q"),), Reply("a", tuple(range(100)), tuple(range(30)), (-0.5,) * 30), step=0)
    return Trajectory(id, steps=[Step("turn", "policy", "a", "b", 1.0)], segments=b.segments)


# -- the form -------------------------------------------------------------------------------------------------------


def test_a_round_trip_is_exact():
    trajectory = full()
    again = from_dict(json.loads(json.dumps(to_dict(trajectory))))
    assert again == trajectory
    assert type(again.segments[0].messages) is tuple
    rich = Trajectory("m", segments=[Segment(0, messages=rich_messages(), dropped=rich_messages())])
    assert from_dict(json.loads(json.dumps(to_dict(rich)))) == rich


@pytest.mark.parametrize("trajectory", [full(), Trajectory("empty"), one_turn()], ids=lambda t: t.id)
def test_what_is_written_is_in_the_form_of_the_schema(trajectory, tmp_path):
    TrajectoryStore(tmp_path).append(trajectory)
    VALIDATOR.validate(json.loads((tmp_path / "trajectories.jsonl").read_text()))


@pytest.mark.parametrize(
    "change", [{"schema_version": 2}, {"reward": "1"}, {"resolved": 1}, {"unknown": 0}, {"steps": [{}]}]
)
def test_the_schema_refuses_what_is_wrong(change):
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(to_dict(full()) | change)


def test_every_field_of_every_record_is_in_the_schema():
    def check(value, schema):
        if "$ref" in schema:
            schema = SCHEMA["$defs"][schema["$ref"].split("/")[-1]]
        if isinstance(value, dict) and "properties" in schema:
            assert value.keys() <= schema["properties"].keys()
            for key, item in value.items():
                check(item, schema["properties"][key])
        for item in value if isinstance(value, list) else ():
            check(item, schema["items"])

    check(to_dict(full()), SCHEMA)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([], "expected a JSON object, got list"),
        ({"id": "x"}, "expected schema_version 1, got None"),
        (to_dict(full()) | {"schema_version": 7}, "expected schema_version 1, got 7"),
        (to_dict(full()) | {"surprise": 1}, "surprise"),
        ({"schema_version": 1, "id": "x"}, "steps"),
        (to_dict(full()) | {"steps": [{"kind": "turn"}]}, "calls"),
        (to_dict(full()) | {"steps": 3}, "not in the form"),
    ],
)
def test_other_forms_are_refused_with_the_reason(row, message):
    with pytest.raises(UsageError, match=message):
        from_dict(row)


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (("reward",), "x", "expected reward of a trajectory to be a number or null, got 'x'"),
        (("reward",), True, "expected reward of a trajectory to be a number or null, got True"),
        (("id",), 3, "expected id of a trajectory to be a text, got 3"),
        (("seed",), 1.5, "expected seed of a trajectory to be a whole number or null, got 1.5"),
        (("terminated",), 0, "expected terminated of a trajectory to be true or false, got 0"),
        (("extra",), [], r"expected extra of a trajectory to be an object, got \[\]"),
        (("steps", 1, "reward"), "1", "expected reward of a step to be a number, got '1'"),
        (
            ("steps", 0, "prompt_tokens"),
            2.5,
            "expected prompt_tokens of a step to be a whole number, got 2.5",
        ),
        (("steps", 0, "calls", 0, "text"), None, "expected text of a call to be a text, got None"),
        (("segments", 0, "index"), "0", "expected index of a segment to be a whole number, got '0'"),
        (("segments", 0, "messages", 0, "content"), 7, "expected content of a message to be a text, got 7"),
        (("events", 0, "data"), 7, "expected data of an event to be an object, got 7"),
        (("verdict", "score"), "x", "expected verdict.score to be a number, got 'x'"),
        (
            ("verdict", "held_out", "gently"),
            None,
            "expected verdict.held_out.gently to be a number, got None",
        ),
        (("verdict", "evidence"), "x", "expected verdict.evidence to be an object, got 'x'"),
    ],
)
def test_wrong_types_are_refused_with_field_and_value(place, value, says):
    row = json.loads(json.dumps(to_dict(full())))
    inner = row
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    for _ in range(2):  # what was found wrong is not remembered as good
        with pytest.raises(UsageError, match=f"^line 3: .*{says}"):
            from_dict(row, "line 3")


def test_a_whole_number_will_do_for_any_number():
    row = to_dict(full())
    row["reward"] = row["steps"][0]["seconds"] = row["verdict"]["score"] = 1
    assert from_dict(row).reward == 1


def test_reading_leaves_the_row_as_it_is():
    row = json.loads(json.dumps(to_dict(full())))
    from_dict(row)
    assert row == json.loads(json.dumps(to_dict(full())))


def test_jsonable_makes_plain_values():
    value = jsonable({"a": (1, np.float32(0.5)), 3: {"b": (np.int64(7),)}})
    assert value == {"a": [1, 0.5], "3": {"b": [7]}}
    assert [type(value["a"][1]), type(value["3"]["b"][0])] == [float, int]


# -- files ----------------------------------------------------------------------------------------------------------


def test_append_iterate_load_ids(tmp_path):
    store = TrajectoryStore(tmp_path / "deep" / "run")
    assert store.load() == []
    assert store.ids() == set()
    trajectories = [full(f'odd "id" {k} \\ é') for k in range(3)]
    for trajectory in trajectories:
        store.append(trajectory)
    assert store.load() == list(store) == trajectories
    assert store.ids() == {t.id for t in trajectories}
    assert TrajectoryStore(tmp_path / "deep" / "run" / "trajectories.jsonl").load() == trajectories
    store.close()
    store.append(full("after close"))
    assert len(store.load()) == 4


def test_strange_text_and_huge_values_survive(tmp_path):
    big = "x" * 10_000_000
    texts = ["\ud800 lone", "中文 🙂\u2028\u2029\x85\x00\r\n", '</script>"\\', big]
    store = TrajectoryStore(tmp_path)
    for index, text in enumerate(texts):
        trajectory = one_turn(f"t{index}")
        trajectory.steps[0].observation = text
        trajectory.seed = 2**200
        trajectory.extra = {"n": -(10**50), "f": 0.1 + 0.2, "tiny": 5e-324}
        store.append(trajectory)
        assert store.load()[-1] == trajectory
    assert len(store.ids()) == 4


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.float64("nan")])
def test_numbers_that_are_not_finite_are_refused_and_nothing_is_written(value, tmp_path):
    trajectory = full()
    trajectory.steps[1].info["loss"] = value
    with pytest.raises(UsageError, match=r"'run/1'.*finite number at steps\[1\].info.loss"):
        TrajectoryStore(tmp_path).append(trajectory)
    assert not (tmp_path / "trajectories.jsonl").exists()


def test_values_json_cannot_hold_are_refused_with_their_place(tmp_path):
    trajectory = full()
    trajectory.extra["when"] = {"now": object()}
    with pytest.raises(UsageError, match=r"JSON value at extra\.when\.now, got object"):
        TrajectoryStore(tmp_path).append(trajectory)


def test_numpy_scalars_are_written_as_numbers(tmp_path):
    trajectory = full()
    trajectory.extra = {"i": np.int64(3), "f": np.float32(0.5)}
    TrajectoryStore(tmp_path).append(trajectory)
    assert TrajectoryStore(tmp_path).load()[0].extra == {"i": 3, "f": 0.5}


@pytest.mark.parametrize("cut", [1, 2, 100, 0.5])
def test_a_torn_last_line_is_skipped_and_then_moved_aside(tmp_path, cut):
    store = TrajectoryStore(tmp_path)
    for k in range(3):
        store.append(full(f"t{k}"))
    store.close()
    whole = store.path.read_bytes()
    line = len(whole) // 3
    torn = whole[: len(whole) - (cut if cut >= 1 else int(line * cut))]
    store.path.write_bytes(torn)
    complete = cut == 1  # only the line break is missing: the record is whole
    survivors = ["t0", "t1", "t2"] if complete else ["t0", "t1"]

    again = TrajectoryStore(tmp_path)
    if complete:
        assert [t.id for t in again] == survivors
        again.append(full("t3"))
    else:
        with pytest.warns(UserWarning, match="line 3: skipped"):
            assert [t.id for t in again] == survivors
        assert again.ids() == set(survivors)
        with pytest.warns(UserWarning, match="torn last line"):
            again.append(full("t3"))
        assert (tmp_path / "trajectories.jsonl.torn").read_bytes() == torn[2 * line :] + b"\n"
    assert [t.id for t in again] == [*survivors, "t3"]
    assert again.ids() == {*survivors, "t3"}


def test_a_file_that_is_one_torn_line(tmp_path):
    path = tmp_path / "trajectories.jsonl"
    path.write_bytes(b'{"schema_version": 1, "id": "' + b"x" * 200_000)
    with pytest.warns(UserWarning, match="torn"):
        TrajectoryStore(tmp_path).append(full())
    assert [t.id for t in TrajectoryStore(tmp_path)] == ["run/1"]


def test_a_broken_line_in_the_middle_is_an_error_that_names_it(tmp_path):
    store = TrajectoryStore(tmp_path)
    store.append(full("a"))
    store.append(full("b"))
    lines = store.path.read_bytes().splitlines(keepends=True)
    store.path.write_bytes(lines[0] + b"garbage\n" + lines[1])
    with pytest.raises(
        UsageError, match=r"trajectories.jsonl, line 2: expected a trajectory as JSON, got b'garbage"
    ):
        store.load()
    with pytest.raises(UsageError, match="line 2"):
        store.ids()


def test_another_schema_version_is_an_error_that_names_the_line(tmp_path):
    store = TrajectoryStore(tmp_path)
    store.append(full("a"))
    with open(store.path, "a") as file:
        file.write(json.dumps(to_dict(full()) | {"schema_version": 9}) + "\n")
    with pytest.raises(UsageError, match="line 2: expected schema_version 1, got 9"):
        store.load()


def test_threads_share_a_store(tmp_path):
    store = TrajectoryStore(tmp_path)

    def write(worker):
        for k in range(20):
            store.append(full(f"{worker}-{k}"))

    threads = [threading.Thread(target=write, args=(w,)) for w in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.ids() == {f"{w}-{k}" for w in range(8) for k in range(20)}
    assert len(store.load()) == 160


def test_a_writer_waits_for_another_process(tmp_path):
    store = TrajectoryStore(tmp_path)
    store.append(full("a"))
    with open(store.path, "ab") as other:  # locks of one file opened twice are as separate as two processes'
        fcntl.flock(other, fcntl.LOCK_EX)
        thread = threading.Thread(target=store.append, args=(full("b"),))
        thread.start()
        thread.join(0.1)
        assert thread.is_alive()
        assert store.ids() == {"a"}
    thread.join(10)
    assert store.ids() == {"a", "b"}


def _write(store, worker):
    for k in range(10):
        trajectory = full(f"{worker}-{k}")
        trajectory.prompt = "y" * 300_000  # far more than a write of the system takes at once
        store.append(trajectory)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_share_a_file(tmp_path, method):
    store = TrajectoryStore(tmp_path)
    store.append(full("before"))
    context = multiprocessing.get_context(method)
    workers = [context.Process(target=_write, args=(store, w)) for w in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert store.ids() == {"before"} | {f"{w}-{k}" for w in range(3) for k in range(10)}
    assert len(store.load()) == 31


def test_a_store_can_be_pickled_while_it_is_open(tmp_path):
    store = TrajectoryStore(tmp_path)
    store.append(full("a"))
    other = pickle.loads(pickle.dumps(store))
    other.append(full("b"))
    store.append(full("c"))
    assert store.ids() == {"a", "b", "c"}


# -- parquet --------------------------------------------------------------------------------------------------------


def test_tokens_in_parquet(tmp_path):
    store = TrajectoryStore(tmp_path, tokens="parquet")
    trajectories = [full("a/b"), one_turn(), Trajectory("nothing")]
    for trajectory in trajectories:
        store.append(trajectory)
    assert TrajectoryStore(tmp_path).load() == trajectories
    row = json.loads(store.path.read_text().splitlines()[0])
    VALIDATOR.validate(row)
    assert all("token_ids" not in segment for segment in row["segments"])

    from pyarrow import parquet

    table = parquet.read_table(tmp_path / row["tokens"]).to_pylist()
    assert [(r["trajectory_id"], r["segment"]) for r in table] == [("a/b", k) for k in range(4)]
    assert table[0]["token_ids"] == trajectories[0].segments[0].token_ids
    (tmp_path / row["tokens"]).unlink()
    with pytest.raises(UsageError, match="line 1: its tokens are in"):
        TrajectoryStore(tmp_path).load()


def test_parquet_without_pyarrow_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependency, match=r"pip install 'agentgym-suite\[data\]'"):
        TrajectoryStore(tmp_path, tokens="parquet")
    with pytest.raises(UsageError, match="'inline' or 'parquet'"):
        TrajectoryStore(tmp_path, tokens="csv")


def test_a_thousand_rollouts_a_second(tmp_path):
    """The goal is for a whole second; CPU time, so that a busy machine does not decide."""
    store = TrajectoryStore(tmp_path)
    start = time.process_time()
    for k in range(300):
        store.append(one_turn(f"t{k}"))
    assert 300 / (time.process_time() - start) > 1000
