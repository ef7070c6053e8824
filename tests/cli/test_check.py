from __future__ import annotations

import pytest

from agentgym.check import Probe, Report
from tests.cli.tiny import BROKEN, TINY


def test_json(call):
    called = call("check", TINY, "--only", "gold", "--only", "floor", "--set", "noisy=true", "--json")
    assert called.code == 0
    answer = called.json
    assert (answer["id"], answer["ok"]) == (TINY, True)
    assert [probe["name"] for probe in answer["probes"]] == ["gold", "floor"]
    assert "noise" in called.err


@pytest.mark.parametrize(
    ("ok", "broken", "code"), [(True, "", 0), (False, "", 1), (None, "", 0), (False, "the disk is full", 3)]
)
def test_exit_codes(call, monkeypatch, ok, broken, code):
    report = Report(TINY, (Probe("gold", ok, 0.1, "why [not]"),), broken)
    monkeypatch.setattr("agentgym.check.check", lambda env, **options: report)
    called = call("check", TINY)
    assert called.code == code
    assert "why [not]" in called.out
    assert called.err == (f"agentgym: {broken}\n" if broken else "")


def test_an_environment_that_cannot_start(call):
    called = call("check", BROKEN, "--json")
    assert called.code == 3
    assert "the sandbox did not start" in called.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["agentgym-test/Tyni-v0"], "Did you mean 'agentgym-test/Tiny-v0'"),
        (["no_such_module:Env-v0"], "no_such_module"),
        ([TINY, "--set", "nosy=1"], "Did you mean 'noisy'"),
        ([TINY, "--set", "noisy"], "key=value"),
        ([TINY, "--set", "split=tst"], "Did you mean 'test'"),
        ([TINY, "--only", "glod"], "Did you mean 'gold'"),
        ([TINY, "--resets", "0"], "resets"),
    ],
)
def test_bad_use(call, words, says):
    called = call("check", *words, "--json")
    assert called.code == 2
    assert says in called.complaint
