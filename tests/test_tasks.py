"""Tasks and sets of them: frozen, picked by id, index or seed, and read from files that may be wrong."""

from __future__ import annotations

import copy
import json
import pickle
import sys
import types

import numpy as np
import pytest

from agentgym import Task, TaskSet
from agentgym.errors import MissingDependency, TaskError
from agentgym.tasks import FrozenDict, freeze

TASKS = [Task("red", split="train"), Task("green", split="train"), Task("blue", split="test")]


def write(path, *lines: str):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


class TestFrozen:
    def test_a_task_cannot_change(self):
        task = Task("a", data={"list": [1, {"deep": [2]}]})
        for change in (
            lambda: setattr(task, "id", "b"),
            lambda: task.data.__setitem__("x", 1),
            lambda: task.data.update(x=1),
            lambda: task.data.pop("list"),
            lambda: task.data.popitem(),
            lambda: task.data.clear(),
            lambda: task.data.setdefault("x", 1),
            lambda: task.data.__delitem__("list"),
            lambda: task.data["list"][1].__setitem__("deep", 1),
            lambda: task.data["list"].append(1),
        ):
            with pytest.raises((TypeError, AttributeError)):
                change()
        with pytest.raises(TypeError):
            task.data |= {"x": 1}
        assert task.data == {"list": (1, {"deep": (2,)})}

    def test_the_source_is_copied(self):
        source = {"list": [1]}
        task = Task("a", data=source)
        source["list"].append(2)
        source["more"] = 1
        assert task.data == {"list": (1,)}

    def test_freeze(self):
        assert freeze({1: [1, (2, {"a": []})]}) == {"1": (1, (2, {"a": ()}))}
        frozen = FrozenDict(a=1)
        assert freeze(frozen) is frozen

    def test_an_ordinary_copy_may_change(self):
        changed = dict(FrozenDict(a=1))
        changed["a"] = 2
        assert changed == {"a": 2}

    def test_pickle_and_copies(self):
        task = Task("a", "prompt", "test", {"x": {"y": [1]}})
        for again in (pickle.loads(pickle.dumps(task)), copy.copy(task), copy.deepcopy(task)):
            assert again == task
            assert type(again.data) is FrozenDict
            assert type(again.data["x"]) is FrozenDict
        assert copy.deepcopy(task) is task

    def test_tasks_can_be_keys(self):
        assert {Task("a", data={"x": [1]}): 1}[Task("a", data={"x": [1]})] == 1

    def test_json(self):
        assert json.dumps(Task("a", data={"x": [1, {"y": None}]}).data) == '{"x": [1, {"y": null}]}'

    @pytest.mark.parametrize("bad", ["", None, 5])
    def test_id_is_text(self, bad):
        with pytest.raises(TaskError, match=r"non-empty text"):
            Task(bad)

    def test_the_solution_is_not_in_the_repr(self):
        assert "geheim" not in repr(Task("a", data={"solution": "geheim"}))


class TestChoice:
    tasks = TaskSet(TASKS, name="colours")

    def test_sequence(self):
        assert len(self.tasks) == 3
        assert list(self.tasks) == TASKS
        assert self.tasks[0] is TASKS[0]
        assert self.tasks[-1] is TASKS[2]
        assert self.tasks[np.int64(1)] is TASKS[1]
        assert list(self.tasks[1:]) == TASKS[1:]
        assert self.tasks["blue"] is TASKS[2]
        assert "blue" in self.tasks
        assert "bleu" not in self.tasks
        assert TASKS[0] in self.tasks

    def test_unknown_id_names_the_nearest(self):
        with pytest.raises(TaskError, match=r"no task 'bleu' in colours. Did you mean 'blue'"):
            self.tasks["bleu"]

    def test_unknown_index(self):
        with pytest.raises(TaskError, match=r"has 3 tasks, there is no index 3"):
            self.tasks[3]

    def test_splits(self):
        assert self.tasks.splits == ("train", "test")
        assert list(self.tasks.split("test")) == [TASKS[2]]
        assert list(self.tasks.split("train")) == TASKS[:2]
        assert self.tasks.split("all") is self.tasks

    def test_a_split_is_made_once(self):
        assert self.tasks.split("test") is self.tasks.split("test")

    def test_unknown_split_names_the_nearest(self):
        with pytest.raises(TaskError, match=r"no split 'trian'. Did you mean 'train'"):
            self.tasks.split("trian")

    def test_duplicates(self):
        with pytest.raises(TaskError, match=r"'red' appears twice"):
            TaskSet([*TASKS, Task("red")])

    def test_not_tasks(self):
        with pytest.raises(TaskError, match=r"item 1 is a str"):
            TaskSet([TASKS[0], "red"])

    def test_draws_are_seeded_and_even(self):
        tasks = TaskSet([Task(str(n)) for n in range(10)])

        def draws(seed: int) -> list[str]:
            rng = np.random.default_rng(seed)
            return [tasks.draw(rng).id for _ in range(2000)]

        assert draws(1) == draws(1)
        assert draws(1) != draws(2)
        counts = [draws(3).count(str(n)) for n in range(10)]
        # 200 each on average, standard deviation 13.4; six of them never happen
        assert all(abs(count - 200) < 81 for count in counts)

    def test_draw_from_nothing(self):
        with pytest.raises(TaskError, match=r"empty"):
            TaskSet([]).draw(np.random.default_rng(0))

    def test_copies(self):
        assert copy.deepcopy(self.tasks) is self.tasks
        again = pickle.loads(pickle.dumps(self.tasks))
        assert list(again) == TASKS
        assert list(again.split("test")) == [TASKS[2]]

    def test_repr_is_short(self):
        assert (
            repr(TaskSet([Task(str(n)) for n in range(999)]))
            == "TaskSet('tasks', 999 tasks, splits ['train'])"
        )


class TestFiles:
    def test_jsonl(self, tmp_path):
        path = write(
            tmp_path / "a.jsonl",
            '{"id": "one", "prompt": "Tu es.\u2028", "split": "test", "answer": [1]}',
            "",
            '{"id": "two"}',
        )
        one, two = TaskSet.load(path)
        assert one == Task("one", "Tu es.\u2028", "test", {"answer": [1]})
        assert two == Task("two", "", "train", {})
        assert TaskSet.load(str(path)).name == "a.jsonl"

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            ("{'id': 1}", "expected a JSON object, got"),
            ('{"id": "b"', "expected a JSON object, got"),
            ("[1]", "expected a JSON object, got list"),
            ("{}", "expected 'id' to be a text, got None"),
            ('{"id": 5}', "expected 'id' to be a text, got 5"),
            ('{"id": ""}', "non-empty 'id'"),
            ('{"id": "b", "prompt": 5}', "expected 'prompt' to be a text"),
            ('{"id": "b", "split": null}', "expected 'split' to be a text"),
        ],
    )
    def test_a_broken_line_names_file_and_line(self, tmp_path, line, said):
        path = write(tmp_path / "bad.jsonl", '{"id": "a"}', "", line)
        with pytest.raises(TaskError) as caught:
            TaskSet.load(path)
        assert "bad.jsonl, line 3" in str(caught.value)
        assert said in str(caught.value)

    def test_duplicate_ids_in_a_file(self, tmp_path):
        with pytest.raises(TaskError, match=r"a.jsonl: task id 'a' appears twice"):
            TaskSet.load(write(tmp_path / "a.jsonl", '{"id": "a"}', '{"id": "a"}'))

    def test_missing_unreadable_and_unknown_files(self, tmp_path):
        with pytest.raises(TaskError, match=r"cannot read .*none.jsonl"):
            TaskSet.load(tmp_path / "none.jsonl")
        (tmp_path / "latin.jsonl").write_bytes(b'{"id": "\xff"}')
        with pytest.raises(TaskError, match=r"cannot read .*null byte"):
            TaskSet.load("a\0.jsonl")
        with pytest.raises(TaskError, match=r"cannot read .*latin.jsonl"):
            TaskSet.load(tmp_path / "latin.jsonl")
        with pytest.raises(TaskError, match=r"expected a .jsonl or .parquet file"):
            TaskSet.load("tasks.csv")

    def test_sets_and_lists(self):
        tasks = TaskSet(TASKS)
        assert TaskSet.load(tasks) is tasks
        assert list(TaskSet.load(TASKS)) == TASKS

    def test_parquet(self, tmp_path):
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        rows = [
            {"id": "a", "prompt": "é", "split": "test", "n": 1},
            {"id": "b", "prompt": "", "split": "test", "n": 2},
        ]
        parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
        assert list(TaskSet.load(tmp_path / "a.parquet")) == [
            Task("a", "é", "test", {"n": 1}),
            Task("b", "", "test", {"n": 2}),
        ]
        parquet.write_table(pyarrow.Table.from_pylist([{"id": "a"}, {"id": None}]), tmp_path / "b.parquet")
        with pytest.raises(TaskError, match=r"b.parquet, row 2: expected 'id'"):
            TaskSet.load(tmp_path / "b.parquet")
        with pytest.raises(TaskError, match=r"cannot read"):
            TaskSet.load(tmp_path / "none.parquet")
        (tmp_path / "c.parquet").write_text("no parquet")
        with pytest.raises(TaskError, match=r"cannot read .*c.parquet"):
            TaskSet.load(tmp_path / "c.parquet")

    def test_parquet_without_pyarrow(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(MissingDependency, match=r"pip install 'agentgym-suite\[data\]'"):
            TaskSet.load(tmp_path / "a.parquet")

    def test_dataset(self, monkeypatch):
        asked = []

        def load_dataset(name, split):
            asked.append((name, split))
            return [{"id": "a", "n": 1}, {"id": "b", "n": 2}]

        monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
        assert list(TaskSet.from_dataset("org/set", split="test")) == [
            Task("a", "", "test", {"n": 1}),
            Task("b", "", "test", {"n": 2}),
        ]
        converted = TaskSet.from_dataset("org/set", split="test", convert=lambda row: Task(f"x{row['n']}"))
        assert [task.id for task in converted] == ["x1", "x2"]
        assert asked == [("org/set", "test")] * 2

    def test_dataset_without_its_package(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "datasets", None)
        with pytest.raises(MissingDependency, match=r"needs datasets: pip install"):
            TaskSet.from_dataset("org/set", split="test")


@pytest.mark.parametrize("text", ['{"id": ' + "[" * 100_000 + "}", '{"id": "a", "n": ' + "9" * 10_000 + "}"])
def test_lines_that_choke_the_reader_are_broken_lines(tmp_path, text):
    path = tmp_path / "tasks.jsonl"
    path.write_text(text + "\n")
    with pytest.raises(TaskError, match=r"tasks.jsonl, line 1: expected a JSON object"):
        TaskSet.from_jsonl(path)
