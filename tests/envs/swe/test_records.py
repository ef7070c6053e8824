from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentgym.envs.swe import records as module
from agentgym.envs.swe.records import (
    RecordLimits,
    SweRecord,
    load_records,
    missing,
    record_from_dict,
    record_to_dict,
    write_records,
)
from agentgym.errors import TaskError


def line(**fields: Any) -> str:
    return json.dumps({"instance_id": "a-1", "problem_statement": "é broken", **fields}) + "\n"


def load(tmp_path: Path, text: str) -> list[SweRecord]:
    path = tmp_path / "tasks.jsonl"
    path.write_text(text, encoding="utf-8")
    return load_records(path)


def test_a_full_record_survives_the_round_trip(tmp_path: Path) -> None:
    fields = {
        "repo": "a/b",
        "version": "1",
        "snapshot": "s.tar.gz",
        "test_targets": ["t"],
        "python_path": "src",
        "requirements": ["pytest"],
        "setup": ["true", ["echo", "x"]],
        "FAIL_TO_PASS": '["t.py::a"]',
        "PASS_TO_PASS": ["t.py::b"],
        "HELD_OUT": "['t.py::c']",
        "image_python": "/venv/bin/python",
        "workdir": "/testbed",
        "log_parser": "pytest",
        "limits": {"time_s": 5, "memory_mb": 64},
        "bugs": [{"kind": "k", "file": "f.py", "line": 3}],
        "created_at": "yesterday",
        "image": None,
    }
    (record,) = load(tmp_path, line(**fields))
    assert record.fail_to_pass == ("t.py::a",)
    assert record.pass_to_pass == ("t.py::b",)
    assert record.held_out == ("t.py::c",)
    assert (record.workdir, record.image_python) == ("/testbed", "/venv/bin/python")
    assert record.python_path == ("src",)
    assert record.setup == ("true", ("echo", "x"))
    assert record.limits == RecordLimits(time_s=5.0, memory_mb=64)
    assert record.extra == {"created_at": "yesterday"}
    assert record.folder == tmp_path
    again = tmp_path / "deep" / "again.jsonl"
    write_records(again, [record])
    assert load_records(again) == [record]
    assert record_to_dict(record)["FAIL_TO_PASS"] == ["t.py::a"]
    assert [path.name for path in again.parent.iterdir()] == ["again.jsonl"]


def test_defaults() -> None:
    record = record_from_dict(
        {"instance_id": "x", "test_targets": [], "python_path": ["/anywhere/tree", "lib"]}
    )
    assert record.test_targets == ("tests",)
    assert record.python_path == (".", "lib")
    assert record.limits == RecordLimits()
    assert record_from_dict(record_to_dict(record)) == record


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ("{not json\n", "line 2: expected a JSON object, got '{not json'"),
        ("[1]\n", "line 2: expected a JSON object, got list"),
        ('{"problem_statement": "x"}\n', "line 2: expected `instance_id`"),
        (line(instance_id="b", FAIL_TO_PASS="oops"), "line 2: expected `FAIL_TO_PASS`"),
        (line(instance_id="b", FAIL_TO_PASS=[1]), "line 2: expected `FAIL_TO_PASS`"),
        (line(instance_id="b", patch=3), "line 2: expected `patch` to be a text"),
        (line(instance_id="b", limits={"time_s": -1}), "line 2: expected `limits.time_s`"),
        (
            line(instance_id="b", limits={"time_s": float("nan")}),
            "line 2: expected `limits.time_s` to be a positive",
        ),
        (
            line(instance_id="b", limits={"time_s": float("inf")}),
            "line 2: expected `limits.time_s` to be a positive",
        ),
        (line(instance_id="b", limits={"time_s": 0}), "line 2: expected `limits.time_s` to be a positive"),
        (
            line(instance_id="b", limits={"time_s": 10**400}),
            "line 2: expected `limits.time_s` to be a positive",
        ),
        (
            line(instance_id="b", limits={"memory_mb": 0.5}),
            "line 2: expected `limits.memory_mb` to be a positive",
        ),
        (
            line(instance_id="b", limits={"processes": True}),
            "line 2: expected `limits.processes` to be a positive",
        ),
        (line(instance_id="b", limits=3), "line 2: expected `limits` to be an object"),
        (line(instance_id="b", python_path="../x"), "line 2: expected `python_path` to stay inside"),
        (line(instance_id="b", setup="make"), "line 2: expected `setup`"),
        (line(instance_id="b", bugs=[1]), "line 2: expected `bugs`"),
        (line(), "line 2: instance_id 'a-1' is already on line 1"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, broken: str, expected: str) -> None:
    with pytest.raises(TaskError) as caught:
        load(tmp_path, line() + broken)
    assert "tasks.jsonl" in str(caught.value)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_absent_values_of_tables(tmp_path: Path) -> None:
    (record,) = load(tmp_path, line(version=float("nan"), repo=None, FAIL_TO_PASS="", created_at=None))
    assert (record.version, record.repo, record.fail_to_pass, record.extra) == ("", "", (), {})


def test_what_is_missing_is_said() -> None:
    record = SweRecord("a", problem_statement="p", fail_to_pass=("t.py::a",), image="i")
    assert missing(record) == []
    assert missing(replace(record, image="")) == ["no snapshot and no image: nothing holds its tree"]
    assert missing(replace(record, snapshot="s.tar.gz")) == ["its snapshot s.tar.gz is not there"]
    assert missing(replace(record, problem_statement=" \n")) == ["no problem statement"]
    assert missing(replace(record, fail_to_pass=())) == ["no tests: FAIL_TO_PASS is empty"]
    assert missing(replace(record, log_parser="cargo")) == ["its log parser 'cargo' is not known"]
    assert missing(replace(record, log_parser="tap")) == ["its log parser 'tap' needs a `test_command`"]
    assert missing(replace(record, log_parser="tap", test_command=("make",))) == []
    assert missing(replace(record, pass_to_pass=("works (m.Case)",))) == [
        "no log parser, and its tests are not pytest's, such as 'works (m.Case)'"
    ]
    assert len(missing(SweRecord("a"))) == 3


def test_only_line_feeds_end_a_record(tmp_path: Path) -> None:
    text = "form feed \f, next line \x85, line separator \u2028, return \r end"
    row = json.dumps({"instance_id": "a-1", "problem_statement": text}, ensure_ascii=False)
    (record,) = load(tmp_path, row.replace("\\f", "\\u000c") + "\n")
    assert record.problem_statement == text


def test_missing_and_empty_files(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"nothing\.jsonl"):
        load_records(tmp_path / "nothing.jsonl")
    with pytest.raises(TaskError, match="at least one record"):
        load(tmp_path, "\n\n")


def test_the_snapshot_is_checked(tmp_path: Path) -> None:
    content = b"some bytes"
    (tmp_path / "s.tar.gz").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    (record,) = load(tmp_path, line(snapshot="s.tar.gz", snapshot_sha256=digest))
    assert record.snapshot_path() == tmp_path / "s.tar.gz"
    (tmp_path / "s.tar.gz").write_bytes(content + b"!")
    with pytest.raises(TaskError, match="changed or truncated"):
        record.snapshot_path()
    (record,) = load(tmp_path, line(snapshot="none.tar.gz"))
    with pytest.raises(TaskError, match="does not exist"):
        record.snapshot_path()
    (record,) = load(tmp_path, line(image="registry/image"))
    with pytest.raises(TaskError, match="container"):
        record.snapshot_path()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tasks.jsonl"
    write_records(path, [SweRecord("old")])

    def fail(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module.os, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        write_records(path, [SweRecord("new")])
    assert [record.instance_id for record in load_records(path)] == ["old"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["tasks.jsonl"]


@pytest.mark.parametrize("target", ["", "/etc", "../..", "tests/../../x"])
def test_targets_stay_inside_the_tree(target: str) -> None:
    with pytest.raises(TaskError, match="inside the tree"):
        record_from_dict({"instance_id": "x", "test_targets": [target]})
