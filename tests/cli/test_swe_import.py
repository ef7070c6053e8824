"""``agentgym swe import`` and ``export``: what they print and how they end."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentgym.envs.swe.builtin import builtin_records
from agentgym.envs.swe.records import load_records, write_records
from agentgym.errors import SandboxError, TaskError
from agentgym.sandbox import docker

SHAPES = Path(__file__).parent.parent / "envs/swe/shapes"


@pytest.fixture(autouse=True)
def no_docker(monkeypatch):
    """Whether a daemon runs here must not matter."""
    monkeypatch.setattr(docker, "image_is_here", lambda name: "django" in name)


def test_import(call, tmp_path):
    out = tmp_path / "out"
    called = call("swe", "import", SHAPES / "swebench.jsonl", "--out", out, "--limit", 2, "--json")
    assert called.code == 0
    absent = "its image swebench/sweb.eval.x86_64.astropy_1776_astropy-7606:latest is not on this machine"
    assert called.json == {
        "records": str(out / "tasks.jsonl"),
        "n": 2,
        "playable": 1,
        "imported": [
            {"instance_id": "django__django-11099", "format": "swebench", "missing": []},
            {
                "instance_id": "astropy__astropy-7606",
                "format": "swebench",
                "missing": [f"{absent}; playing it would pull it"],
            },
        ],
        "skipped": [],
    }
    assert [record.log_parser for record in load_records(out)] == ["django", "pytest_v2"]
    called = call("swe", "import", SHAPES / "live.jsonl", "--out", out)
    assert called.code == 0
    assert "wrote 2 records" in called.out
    assert "'def parser(log):'" in called.out


def test_a_broken_row_is_named_and_the_rest_is_written(call, tmp_path):
    source = tmp_path / "dump.jsonl"
    source.write_text((SHAPES / "swegym.jsonl").read_text() + '{"instance_id": "b", "patch": 3}\n')
    called = call("swe", "import", source, "--out", tmp_path / "out", "--json")
    assert called.code == 1
    assert called.json["skipped"] == [
        {"row": 2, "problem": f"{source}, line 2: expected `patch` to be a text, got 3"}
    ]
    assert called.json["n"] == 1
    called = call("swe", "import", source, "--out", tmp_path / "out")
    assert called.code == 1
    assert "skipped" in called.out
    assert "line 2" in called.out


def test_without_docker_images_are_missing_which_is_said_once(call, tmp_path, monkeypatch):
    asked = []

    def nobody(name):
        asked.append(name)
        raise SandboxError("no Docker daemon answers")

    monkeypatch.setattr(docker, "image_is_here", nobody)
    called = call("swe", "import", SHAPES / "swebench.jsonl", "--out", tmp_path, "--json")
    assert called.json["playable"] == 0
    assert len(asked) == 1
    assert called.err.count("images are taken as missing: no Docker daemon answers") == 1


def test_docker_is_asked_once_for_each_image(call, tmp_path, monkeypatch):
    rows = (SHAPES / "swesmith.jsonl").read_text().splitlines()
    again = json.dumps({**json.loads(rows[0]), "instance_id": "the same image"})
    source = tmp_path / "rows.jsonl"
    source.write_text("\n".join([*rows, again]))
    asked = []
    monkeypatch.setattr(docker, "image_is_here", lambda name: not asked.append(name))
    assert call("swe", "import", source, "--out", tmp_path / "out", "--json").json["n"] == 3
    assert len(asked) == len(set(asked)) == 2


def test_a_row_whose_image_has_no_name_is_skipped(call, tmp_path, monkeypatch):
    def refuse(name):
        raise TaskError(f"image={name!r}: expected a name such as repo/name:tag")

    monkeypatch.setattr(docker, "image_is_here", refuse)
    source = tmp_path / "rows.jsonl"
    own = {"instance_id": "good", "snapshot_sha256": "", "FAIL_TO_PASS": ["a.py::b"]}
    source.write_text(
        "\n".join(json.dumps(row) for row in (own, {**own, "instance_id": "bad", "image": "No Name"}))
    )
    called = call("swe", "import", source, "--out", tmp_path / "out", "--json")
    assert called.json["n"] == 1
    assert called.json["skipped"][0]["row"] == 2


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((SHAPES / "swegym.jsonl", "--format", "swebnch"), "Did you mean 'swebench'"),
        ((SHAPES / "swegym.jsonl", "--format", "swesmith"), "no record in it; "),
        ((SHAPES / "swegym.jsonl", "--limit", 0), "expected --limit to be a whole number >= 1, got 0"),
        ((SHAPES / "none.jsonl",), "cannot read"),
        (("none.parquet",), "cannot read none.parquet as parquet"),
        ((SHAPES.parent / "nowhere",), "cannot read"),
    ],
)
def test_bad_use(call, tmp_path, words, complaint):
    called = call("swe", "import", *words, "--out", tmp_path / "out")
    assert called.code == 2
    assert complaint in called.complaint


def hub(**splits: list[dict[str, Any]]) -> SimpleNamespace:
    """Stands in for the package datasets."""

    def load_dataset(name: str, *, split: str | None) -> Any:
        if name == "far/away":
            raise ConnectionError(
                "Couldn't reach 'far/away' on the Hub (LocalEntryNotFoundError)\nsecond line"
            )
        if split is not None and split not in splits:
            raise ValueError(f'Unknown split "{split}". Should be one of {list(splits)}.')
        return splits if split is None else splits[split]

    return SimpleNamespace(load_dataset=load_dataset)


def test_a_dataset_of_the_hub(call, tmp_path, monkeypatch):
    rows = [json.loads(line) for line in (SHAPES / "swebench.jsonl").read_text().splitlines()]
    monkeypatch.setitem(sys.modules, "datasets", hub(test=rows[:2], dev=rows[2:]))
    out = tmp_path / "out"
    called = call("swe", "import", "some/dataset", "--split", "dev", "--out", out, "--json")
    assert [entry["instance_id"] for entry in called.json["imported"]] == ["sympy__sympy-20590"]
    called = call("swe", "import", "some/dataset", "--out", out)
    assert called.code == 2
    assert "expected one of its splits test, dev to be named" in called.complaint
    called = call("swe", "import", "some/dataset", "--split", "tset", "--out", out)
    assert called.code == 2
    assert "Unknown split" in called.complaint
    called = call("swe", "import", "far/away", "--out", out)
    assert called.code == 3
    assert "the dataset far/away cannot be had: Couldn't reach 'far/away' on the Hub" in called.complaint
    monkeypatch.setitem(sys.modules, "datasets", hub(test=rows))
    assert call("swe", "import", "some/dataset", "--out", out, "--json").json["n"] == 3


def test_export_and_import_again(call, tmp_path):
    record = builtin_records()[0]
    source = tmp_path / "tasks.jsonl"
    write_records(source, [dataclasses.replace(record, snapshot=str(record.snapshot_path()))])
    called = call("swe", "export", source, "--to", "harbor", "--out", tmp_path / "harbor", "--json")
    folder = tmp_path / "harbor" / record.instance_id
    assert called.json == {"n": 1, "exported": {record.instance_id: str(folder)}, "skipped": []}
    assert called.code == 0
    called = call("swe", "import", tmp_path / "harbor", "--out", tmp_path / "back", "--json")
    assert called.json["imported"] == [{"instance_id": record.instance_id, "format": "harbor", "missing": []}]
    assert load_records(tmp_path / "back")[0].fail_to_pass == record.fail_to_pass


def test_export_that_cannot_be(call, tmp_path):
    called = call("swe", "export", SHAPES / "swebench.jsonl", "--to", "harbor", "--out", tmp_path / "out")
    assert called.code == 2
    assert "none of the records can be exported to harbor" in called.complaint
    called = call("swe", "export", SHAPES / "swebench.jsonl", "--to", "swebench", "--out", tmp_path / "out")
    assert called.code == 0
    assert "wrote 3 of 3 records" in called.out
    called = call("swe", "export", SHAPES / "swebench.jsonl", "--to", "swebench", "--out", tmp_path / "out")
    assert called.code == 2
    assert "expected a new or empty folder" in called.complaint
