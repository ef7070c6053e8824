"""Wrong types in every field: what is read is refused or can be counted and shown, what is written can be read."""

import copy
import json

import numpy as np
import pytest

from agentgym.errors import UsageError
from agentgym.trajectory import TrajectoryStore, from_dict, to_dict
from agentgym.trajectory.salvage import append_or_mark
from agentgym.trajectory.stats import details, summary
from agentgym.trajectory.view import render_html
from tests.trajectory.examples import full, rich_messages

WRONG = (None, "x", ["a"], {"a": 1}, [["a"]], True, 3.5, -1)


def everything():
    """A trajectory with every field of every record, and what the package reads in the parts that hold any JSON."""
    trajectory = full()
    trajectory.segments[1].dropped = trajectory.segments[2].dropped = rich_messages()
    trajectory.segments[0].messages = (*rich_messages(), *trajectory.segments[0].messages)
    trajectory.steps[0].info |= {"anchor": "hall", "invalid_action": True}
    trajectory.steps[0].calls[0].note = json.dumps({"block": True})
    trajectory.extra |= {"group": 0, "labels": [[True], [], [], [False]]}
    return trajectory


def places(value, at=()):
    """Of each list the first entry will do where it is of the kind of the others; parts are told before the whole."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*at, index))
    if at:
        yield at


def generic(at):
    return tuple("*" if isinstance(key, int) else key for key in at)


def changed(row, at, value):
    row = copy.deepcopy(row)
    inner = row
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = value
    return row


ROW = json.loads(json.dumps(to_dict(everything())))
# One place of each kind, but every step and event, which are told apart by their kind.
PLACES = list(
    {
        (generic(at), *at[:2]) if at[0] in ("steps", "events") else generic(at): at for at in places(ROW)
    }.values()
)


def test_the_example_has_every_field():
    assert {generic(at) for at in PLACES} >= {
        ("steps", "*", "calls", "*", "note"),
        ("steps", "*", "info", "anchor"),
        ("segments", "*", "sampled", "*", "superseded"),
        ("segments", "*", "mask", "*"),
        ("segments", "*", "dropped", "*", "tool_calls", "*", "arguments"),
        ("events", "*", "data", "before_tokens"),
        ("events", "*", "data", "dropped_messages", "*", "content"),
        ("extra", "labels", "*"),
        ("verdict", "held_out", "gently"),
    }


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_what_is_read_is_refused_or_can_be_counted_and_shown(value):
    refused = []
    for at in PLACES:
        try:
            trajectory = from_dict(changed(ROW, at, value))
            summary([trajectory])
            details([trajectory])
            render_html(trajectory)
        except UsageError as error:
            refused.append((at, str(error)))
    if not isinstance(value, list):  # an entry of a list that is no object at all has no field
        assert [at for at, said in refused if isinstance(at[-1], str) and at[-1] not in said] == []
    assert len(refused) > len(PLACES) / 3


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (("steps", 0, "kind"), "x", "expected kind of a step among turn, summary, delegated, got 'x'"),
        (("steps", 0, "agent"), 5, "expected agent of a step to be a text, got 5"),
        (("steps", 0, "segment"), "x", "expected segment of a step to be a whole number or null, got 'x'"),
        (("steps", 0, "info"), None, "expected info of a step to be an object, got None"),
        (("steps", 0, "info", "anchor"), ["a"], r"expected anchor of the info of a step .*, got \['a'\]"),
        (
            ("steps", 0, "info", "context_tokens"),
            "x",
            "expected context_tokens of .* to be a number, got 'x'",
        ),
        (("steps", 0, "calls", 0, "arguments"), "x", "expected arguments of a call to be an object, got 'x'"),
        (("steps", 0, "calls", 0, "blocked"), 1, "expected blocked of a call to be true or false, got 1"),
        (("steps", 0, "calls", 0, "note"), 3.5, "expected note of a call to be a text, got 3.5"),
        (("segments", 0, "sampled", 0, "superseded"), "x", "expected superseded of a sampled reply to be"),
        (("segments", 0, "cause"), "x", "expected cause of a segment among start, .*, got 'x'"),
        (("segments", 0, "mask"), [0, "x"], "expected mask of a segment to hold numbers, got 'x'"),
        (("segments", 1, "dropped", 0, "tool_calls", 0, "name"), 5, "expected name of a call of a message"),
    ],
)
def test_fields_that_once_got_through(place, value, says):
    with pytest.raises(UsageError, match=says):
        from_dict(changed(ROW, place, value))


def test_events_of_a_users_own_may_hold_anything():
    row = copy.deepcopy(ROW)
    row["events"].append(
        {"kind": "mine", "step": 0, "data": {"segment": "left", "summary": 5, "dropped": {}}}
    )
    assert "mine {&#34;segment&#34;: &#34;left&#34;" in render_html(from_dict(row))


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"group": ["a"]}, r"'run/1': expected extra.group to be a number or a text, got \['a'\]"),
        ({"labels": [[True]]}, "'run/1': expected extra.labels to hold a list for each step"),
        ({"labels": 3}, "'run/1': expected extra.labels to hold a list for each step"),
    ],
)
def test_what_a_report_reads_of_a_users_own_values(extra, says):
    trajectory = everything()
    trajectory.extra |= extra
    with pytest.raises(UsageError, match=says):
        summary([trajectory]), details([trajectory])


def parts(trajectory):
    """One record of each kind."""
    step, segment = trajectory.steps[0], trajectory.segments[0]
    return (trajectory, step, step.calls[0], segment, segment.sampled[0], trajectory.events[0])


def test_no_line_is_written_that_cannot_be_read(tmp_path):
    written, refused = 0, []
    for number in range(6):
        for name in type(parts(full())[number]).__dataclass_fields__:
            for value in (None, 5, "x", True, (1,), np.int64(3), np.float32(0.5), [None], {"a": 1}):
                trajectory = everything()
                setattr(parts(trajectory)[number], name, value)
                try:
                    TrajectoryStore(tmp_path).append(trajectory)
                    written += 1
                except UsageError as error:
                    refused.append(str(error))
    assert len(TrajectoryStore(tmp_path).load()) == written
    assert all("cannot be written: " in said for said in refused)
    assert written > 20
    assert len(refused) > 200


def test_numbers_of_numpys_are_written_as_pythons(tmp_path):
    trajectory = full()
    trajectory.seed, trajectory.reward, trajectory.resolved = np.int64(7), np.float32(0.5), np.bool_(True)
    trajectory.segments[0].mask = [np.int8(x) for x in trajectory.segments[0].mask]
    TrajectoryStore(tmp_path).append(trajectory)
    (again,) = TrajectoryStore(tmp_path)
    assert (again.seed, again.reward, again.resolved) == (7, 0.5, True)
    assert again.segments[0].mask == full().segments[0].mask


@pytest.mark.parametrize("tokens", ["inline", "parquet"])
@pytest.mark.parametrize(("name", "value"), [("task_id", 5), ("seed", "x"), ("extra", []), ("verdict", None)])
def test_an_episode_with_a_wrong_type_is_marked_and_the_file_stays_good(tmp_path, name, value, tokens):
    store = TrajectoryStore(tmp_path, tokens=tokens)
    trajectory = full()
    setattr(trajectory, name, value)
    append_or_mark(store, trajectory)
    append_or_mark(store, full("next"))
    marked, following = TrajectoryStore(tmp_path)
    assert "'run/1' cannot be written" in marked.infrastructure_error
    assert (marked.id, marked.reward, following.id) == ("run/1", None, "next")


def test_what_is_nested_too_deeply_is_refused(tmp_path):
    trajectory = full()
    for _ in range(100_000):
        trajectory.extra = {"a": trajectory.extra}
    with pytest.raises(UsageError, match="'run/1' cannot be written: it is nested too deeply"):
        TrajectoryStore(tmp_path).append(trajectory)
    path = tmp_path / "trajectories.jsonl"
    path.write_bytes(b"[" * 100_000 + b"\n")
    with pytest.raises(UsageError, match="line 1: expected a trajectory as JSON"):
        TrajectoryStore(tmp_path).ids()


@pytest.mark.parametrize(
    "spoil", [lambda file: file.write_bytes(b"garbage"), lambda file: (file.unlink(), file.mkdir())]
)
def test_a_tokens_file_that_is_none(tmp_path, spoil):
    TrajectoryStore(tmp_path, tokens="parquet").append(full())
    spoil(next((tmp_path / "tokens").iterdir()))
    with pytest.raises(UsageError, match=r"line 1: .*does not hold the tokens of its segments"):
        TrajectoryStore(tmp_path).load()
