"""`agentgym shop` and `agentgym data`."""

from __future__ import annotations

import json

import pytest

from tests.envs.webshop.conftest import ATTRIBUTES, HUMAN, ROWS, SHARED


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def data(tmp_path):
    for name, value in (("items_shuffle", ROWS), ("items_ins_v2", ATTRIBUTES), ("items_human_ins", HUMAN)):
        (tmp_path / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    return tmp_path


@pytest.fixture
def traces(tmp_path):
    source = SHARED / "cases" / "webshop_traces.jsonl"
    if not source.is_file():
        pytest.skip("the recorded episodes are not here")
    path = tmp_path / "traces.jsonl"
    path.write_text("\n".join(source.read_text(encoding="utf-8").splitlines()[1:3]), encoding="utf-8")
    return path


@pytest.mark.slow
def test_replay(call, traces):
    done = call("shop", "replay", traces, "--data", SHARED / "data" / "webshop", "--json")
    assert done.code == 0
    assert done.json["n"] == done.json["equal"] == done.json["equal_given_hits"] == 2
    assert done.json["traces"][0] == {
        "id": 2,
        "equal": True,
        "equal_given_hits": True,
        "first_difference": None,
    }
    changed = traces.read_text(encoding="utf-8").replace("Total results: 50", "Total results: 49")
    traces.write_text(changed, encoding="utf-8")
    done = call("shop", "replay", traces, "--data", SHARED / "data" / "webshop")
    assert done.code == 1
    assert "0 of 2 equal" in done.out
    assert "step 0, obs" in done.out


def test_replay_of_what_is_not_there(call, data):
    done = call("shop", "replay", "missing.jsonl", "--data", data)
    assert done.code == 2
    assert "missing.jsonl" in done.complaint


def test_unknown_verb(call):
    done = call("shop", "replya")
    assert done.code == 2
    assert "Did you mean 'replay'?" in done.complaint


def test_where_data_comes_from(call):
    done = call("data", "webshop")
    assert done.code == 0
    assert "princeton-nlp/WebShop" in done.out


def test_a_folder_of_data(call, data):
    done = call("data", "webshop", data, "--json")
    assert done.code == 0
    assert done.json["counts"] == {
        "products": 3,
        "products_with_price_range": 1,
        "products_with_synthetic_instruction": 1,
        "human_instructions": 3,
        "human_goals": 2,
    }
    size = (data / "items_human_ins.json").stat().st_size
    assert done.json["files"]["items_human_ins"]["bytes"] == size
    (data / "items_human_ins.json").unlink()
    assert "goals can only be synthetic" in call("data", "webshop", data).out


def test_a_folder_without_data(call, tmp_path):
    done = call("data", "webshop", tmp_path)
    assert done.code == 2
    assert "items_shuffle.json" in done.complaint
