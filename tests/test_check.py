"""The audit passes good environments and finds each planted fault, by the probes that are meant to."""

import importlib
import json
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from agentgym.check import PROBES, Probe, Report, check, leaks
from agentgym.check.contract import _is_of, _mutable_part
from agentgym.check.leaks import needle
from agentgym.check.subject import Failed, Step, first_difference
from agentgym.core import INFO_KEYS, AgentEnv, Task, ToolCall, Verdict, tool
from agentgym.errors import InfrastructureError, MissingDependency, UsageError
from agentgym.registration import Entry
from agentgym.tasks import FrozenDict
from tests.check.good import Lockbox

BROKEN = sorted(path.stem for path in Path(__file__).parent.glob("check/broken/*.py"))


def skipped(report):
    return {probe.name: probe.detail for probe in report.probes if probe.ok is None}


# -- good environments ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_environment_with_tools_passes_every_probe():
    report = check(Lockbox)
    assert report.ok, report
    assert set(skipped(report)) == {"spec", "pettingzoo"}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["xml", "react"])
def test_other_protocols_pass(protocol):
    report = check(Lockbox, kwargs={"protocol": protocol}, resets=20)
    assert report.ok, report


@pytest.mark.slow
def test_a_registered_environment_of_plain_moves_passes_with_gymnasiums_own_wrappers():
    report = check("tests.check.good_plain:tests/Guess-v0", resets=40)
    assert report.ok, report
    assert set(skipped(report)) == {"gold", "cheats", "secrets", "last_turn", "pettingzoo"}
    assert report.id == "tests.check.good_plain:tests/Guess-v0"


@pytest.mark.slow
def test_relay_passes():
    report = check("agentgym/Relay-v0")
    assert report.ok, report


def test_a_function_that_takes_no_keywords_can_be_audited():
    only = ["start", "reset_options", "turn_limit", "last_turn"]
    assert check(lambda: Lockbox(max_turns=7), only=only).ok


def test_a_gymnasium_environment_that_is_not_ours_gets_the_general_probes():
    report = check("CartPole-v1", only=["spaces", "same_seed", "floor", "pickle", "snapshot", "vectors"])
    assert report.ok, report
    assert set(skipped(report)) == {"floor", "snapshot"}


# -- broken environments -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_a_planted_fault_is_found(name):
    """Each file says which probes its fault must fail, and with what words in the most telling of them."""
    broken = importlib.import_module(f"tests.check.broken.{name}")
    report = check(broken.Env, resets=30)
    assert set(report.failures) == broken.FAILS, str(report)
    for probe, words in broken.SAYS.items():
        assert words in report.failures[probe]


def test_every_probe_has_a_fault_it_finds():
    """Except the first, and those whose faults `test_spec_...`, `test_pettingzoo_...` plant themselves."""
    found = set().union(*(importlib.import_module(f"tests.check.broken.{name}").FAILS for name in BROKEN))
    assert found == set(PROBES) - {"start", "spec", "pettingzoo"}


def test_an_environment_that_cannot_start_fails_once():
    class NeverStarts(Lockbox):
        def begin(self, task):
            raise KeyError("digits")

    report = check(NeverStarts, only=["gold", "floor"])
    assert set(report.failures) == {"start"}
    assert "raised KeyError: 'digits' (test_check.py:" in report.failures["start"]
    assert skipped(report)["gold"] == "not tried: the environment does not start"


def test_spec_finds_an_argument_that_does_not_survive():
    import gymnasium

    class Forgets(Lockbox):
        def __init__(self, *, greeting=("a", "b"), **kwargs):
            super().__init__(**kwargs)
            self.greeting = greeting

        def begin(self, task):
            return f"{self.greeting} {super().begin(task)}"

    gymnasium.register("tests/Forgets-v0", Forgets, kwargs={"greeting": ("a", "b")})
    try:
        report = check("tests/Forgets-v0", only=["spec"])
    finally:
        del gymnasium.registry["tests/Forgets-v0"]
    assert "spec" in report.failures


def test_a_cheat_that_pays_but_is_marked_as_hacked_passes():
    class Watched(importlib.import_module("tests.check.broken.cheat_pays").Env):
        def step(self, action):
            *rest, info = super().step(action)
            return (*rest, info | {"hacked": True} if "verdict" in info else info)

    assert check(Watched, only=["cheats"]).ok


class Folder:
    """A stand-in for a sandbox: commands run in a folder of this machine."""

    def __init__(self, path):
        self.path = path

    def exec(self, command, *, timeout=None, stdin=b""):
        argv = ["bash", "-c", command] if isinstance(command, str) else command
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.path)}
        done = subprocess.run(argv, cwd=self.path, input=stdin, capture_output=True, env=env, timeout=timeout)
        return SimpleNamespace(stdout=done.stdout.decode(errors="replace"))

    def read(self, path):
        return (self.path / path).read_bytes()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A workspace with a git repository of one commit, and a function that runs git in it."""
    monkeypatch.setattr(leaks, "_GREP", "grep -rIlFs -f - -- . | head -n 50")  # not this machine's /tmp
    folder = Folder(tmp_path)

    def git(*words):
        folder.exec(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words])

    (tmp_path / "m.py").write_text("def limit(x):\n    return x < 10 and x > 0\n# end\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "base")
    return folder, git


def test_a_clean_repository_passes(repository):
    leaks._search_sandbox(repository[0], Task("t"), [needle(PATCH)])


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (
            lambda folder, git: (folder.path / "fix.diff").write_text(PATCH),
            "is in the sandbox's file ./fix.diff",
        ),
        (lambda folder, git: _commit_fixed(folder, git, "HEAD"), "is in git's HEAD:m.py"),
        (lambda folder, git: _commit_fixed(folder, git, "later"), "expected no commits besides HEAD, got 1"),
        (lambda folder, git: git("tag", "v2"), "expected no tags, got 1"),
        (lambda folder, git: git("remote", "add", "origin", "x"), "expected no remotes, got 1"),
        (lambda folder, git: _dangling(folder, git), "expected no unreachable objects, got 1"),
    ],
)
def test_a_leak_in_a_sandbox_is_found(repository, place, words):
    place(*repository)
    with pytest.raises(Failed) as caught:
        leaks._search_sandbox(repository[0], Task("t"), [needle(PATCH)])
    assert words in str(caught.value)


def _commit_fixed(folder, git, where):
    """Commit the solution: as the only commit under a broken working tree, or on a branch of the future."""
    broken = (folder.path / "m.py").read_text()
    (folder.path / "m.py").write_text(broken.replace("<", "<="))
    if where == "HEAD":
        git("commit", "-qa", "--amend", "-m", "base")
        git("reflog", "expire", "--expire=now", "--all")
        git("gc", "-q", "--prune=now")
    else:
        git("checkout", "-qb", "later")
        git("commit", "-qam", "fix")
        git("checkout", "-q", "-")
    (folder.path / "m.py").write_text(broken)


def _dangling(folder, git):
    (folder.path / "x").write_text("lost")
    git("hash-object", "-w", "x")
    (folder.path / "x").unlink()


# -- infrastructure and bad use ------------------------------------------------------------------------------------


class FlakyVerifier(Lockbox):
    def verify(self, episode):
        raise InfrastructureError("the grader's machine is gone")


def test_broken_infrastructure_is_told_apart_from_a_fault():
    class BreaksLater(Lockbox):
        made = 0

        def begin(self, task):
            if self.max_turns == 3:  # only in the probe of the turn limit
                raise InfrastructureError("no disk left")
            return super().begin(task)

    report = check(BreaksLater, only=["gold", "turn_limit"])
    assert report.failures == {"turn_limit": "infrastructure: no disk left"}
    assert report.infrastructure_error == "no disk left"
    assert not report.ok


def test_what_cannot_be_reset_here_raises():
    with pytest.raises(InfrastructureError, match="machine is gone"):
        check(FlakyVerifier)


def test_a_missing_package_raises(monkeypatch):
    entry = Entry("tests/Guess-v0", "x:Y", "x", "x", packages=(("no_such_package", "swe"),))
    monkeypatch.setattr("agentgym.registration.find", lambda env_id: entry)
    with pytest.raises(MissingDependency, match=r"needs the package no_such_package: pip install"):
        check("tests/Guess-v0")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: check("agentgym/Relya-v0"), "'agentgym/Relya-v0' is registered. Did you mean 'agentgym/Relay-v0'"),
        (lambda: check("no_such_module:X-v0"), "'no_such_module:X-v0': there is no module 'no_such_module' to import"),
        (lambda: check(Lockbox, only=["snapshots"]), "there is no probe 'snapshots'. Did you mean 'snapshot'?"),
        (lambda: check(Lockbox, resets=0), "expected resets >= 1, got 0"),
    ],
)  # fmt: skip
def test_bad_use_is_an_error_that_says_what_was_expected(call, words):
    with pytest.raises(UsageError) as caught:
        call()
    assert words in str(caught.value)


# -- the report ----------------------------------------------------------------------------------------------------


def test_the_report_has_the_documented_form():
    report = Report(
        "x", (Probe("a", True, 0.12345, "fine"), Probe("b", None, 0.0, "no"), Probe("c", False, 1.0, "bad"))
    )
    assert json.loads(json.dumps(report.to_dict())) == {
        "id": "x",
        "ok": False,
        "probes": [
            {"name": "a", "ok": True, "seconds": 0.123, "detail": "fine"},
            {"name": "b", "ok": None, "seconds": 0.0, "detail": "no"},
            {"name": "c", "ok": False, "seconds": 1.0, "detail": "bad"},
        ],
    }
    assert Report("x", report.probes[:2]).ok
    assert "FAIL  c" in str(report)


def test_progress_is_called_before_each_probe_and_only_selects():
    seen = []
    report = check(Lockbox, only=["gold", "spaces"], progress=seen.append)
    assert seen == [probe.name for probe in report.probes] == ["gold", "spaces"]


def test_details_are_one_line():
    report = check(Lockbox, only=["start", "gold", "info"])
    assert all(probe.detail and "\n" not in probe.detail for probe in report.probes)


def test_the_audit_leaves_the_global_generators_alone():
    random.seed(5)
    np.random.seed(5)
    before = random.getstate(), np.random.get_state()[1].tolist()
    check(Lockbox, only=["same_seed", "global_random_state", "instances"])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_every_probe_says_what_it_holds_an_environment_to():
    for name, probe in PROBES.items():
        assert (probe.__doc__ or "").strip().partition("\n")[0].endswith("."), name


def test_the_docs_list_every_probe():
    page = (Path(__file__).parents[1] / "docs" / "check.md").read_text(encoding="utf-8")
    assert [name for name in PROBES if f"| `{name}` |" not in page] == []


@pytest.mark.slow
def test_importing_the_audit_needs_nothing_heavy():
    code = "import agentgym.check, sys; print([m for m in ('torch', 'psutil', 'openai', 'docker') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


# -- pieces --------------------------------------------------------------------------------------------------------


def test_every_documented_info_key_names_a_type_the_audit_understands():
    for key, text in INFO_KEYS.items():
        assert text.partition(":")[0].replace("tuple[", "").removesuffix(", ...]").isidentifier(), key
    assert _is_of("a", "str")
    assert not _is_of(True, "int")
    assert _is_of(("a", "b"), "tuple[str, ...]")
    assert not _is_of(("a", 1), "tuple[str, ...]")
    assert not _is_of(["a"], "tuple[str, ...]")


def test_mutable_parts_are_found_at_any_depth():
    assert _mutable_part(Verdict(1.0, evidence={"a": "b"})) is None
    assert _mutable_part((1, "a", FrozenDict(a=(2.0,)))) is None
    assert _mutable_part(Task("a", data={"x": [1]})) is None  # frozen by Task
    assert _mutable_part((1, [2])) == [2]
    assert _mutable_part(FrozenDict(a={"b": 1})) == {"b": 1}
    assert _mutable_part(np.zeros(1)) is not None


PATCH = """diff --git a/m.py b/m.py
--- a/m.py
+++ b/m.py
@@ -1,3 +1,3 @@
 def limit(x):
-    return x < 10 and x > 0
+    return x <= 10 and x > 0
 # end
"""


def test_a_patch_is_found_as_text_and_as_the_file_it_leaves():
    item = needle(PATCH)
    assert item.lines == ("return x <= 10 and x > 0",)
    assert item.is_in(f"here it is:\n{PATCH}")
    assert item.is_in("import os\n\ndef limit(x):\n    return x <= 10 and x > 0\n# end\n")
    assert not item.is_in("def limit(x):\n    return x < 10 and x > 0\n# end\n")
    assert not item.is_in("def other(x):\n    return x <= 10 and x > 0\n# end\n")  # the same line elsewhere


def test_a_patch_that_only_deletes_leaves_nothing_to_search_but_itself():
    item = needle("@@ -1,2 +1,1 @@\n a line that stays\n-a line that goes\n")
    assert item.blocks == ()
    assert not item.is_in("a line that stays\n")


def test_a_difference_names_step_field_and_place():
    def trace(last, reward=0.0, info=None):
        return [
            Step(None, "start", 0.0, False, False, {}),
            Step("go", last, reward, False, False, info or {}),
        ]

    assert first_difference(trace("same"), trace("same")) is None
    assert first_difference(trace("x" * 50 + "a"), trace("x" * 50 + "b")) == (
        "step 1 (action 'go'): observation was 'xxxxxxxxxxxxa', then 'xxxxxxxxxxxxb' (from character 50 of 51 and 51)"
    )
    assert first_difference(trace("s", 1.0), trace("s")) == "step 1 (action 'go'): reward was 1.0, then 0.0"
    assert "info keys was ['a'], then []" in str(first_difference(trace("s", info={"a": 1}), trace("s")))
    verdicts = [
        Verdict(1.0, components={"a": x}, evidence={"log": log})
        for x, log in ((1.0, "x"), (1.0, "y"), (0.5, ""))
    ]
    first, other_log, other_part = (trace("s", info={"verdict": verdict}) for verdict in verdicts)
    assert first_difference(first, other_log) is None  # logs hold times
    assert "info['verdict'] components was {'a': 1.0}, then {'a': 0.5}" in str(
        first_difference(first, other_part)
    )
    assert first_difference(trace("s"), trace("s")[:1]) == "one run has 1 steps, the other 0"


def test_pettingzoo_ids_get_the_probes_that_suit_several_agents():
    report = check("agentgym/Team-v0", only=["gold", "pettingzoo"])
    assert [(p.name, p.ok) for p in report.probes] == [("gold", None), ("pettingzoo", True)]


def test_state_that_only_success_reaches_is_seen():
    """The basket is a class attribute, and only a call with the right word puts something into it."""

    class Basket(AgentEnv):
        tasks = (Task("a", "Put the word.", data={"word": "quince"}),)
        basket: list[str] = []  # the fault

        def begin(self, task):
            return f"{task.prompt} You have {len(self.basket)}."

        @tool
        def put(self, word: str) -> str:
            """Put it in."""
            if word == "quince":
                self.basket.append(word)
                self.finish()
            return "done"

        def gold(self):
            return self.protocol.render_call(ToolCall("put", {"word": "quince"}))

        def verify(self, episode):
            return Verdict(float(episode.done))

    failures = check(Basket).failures
    assert "state belongs on self" in failures["instances"]
    assert {"same_seed", "fresh_reset"} <= failures.keys()
