"""The table of ids, both registries, and errors at `make`."""

from __future__ import annotations

import importlib.util
import shutil
import warnings

import gymnasium
import pettingzoo
import pytest

import agentgym
from agentgym.errors import TaskError, UsageError
from agentgym.registration import ENTRIES, Entry, find, register_envs, require

RELAY = "agentgym/Relay-v0"


def test_every_id_is_in_the_registry_it_names():
    for entry in ENTRIES:
        registry = gymnasium.registry if entry.registry == "gymnasium" else pettingzoo.parallel_registry
        assert entry.id in registry


def test_ids_are_unique_and_well_formed():
    assert len({entry.id for entry in ENTRIES}) == len(ENTRIES)
    for entry in ENTRIES:
        assert entry.id.startswith("agentgym/")
        assert entry.id.endswith("-v0")
        assert entry.description
        assert entry.splits


def test_entry_points_exist():
    for entry in ENTRIES:
        module, _, name = entry.entry_point.partition(":")
        assert name
        assert importlib.util.find_spec(module) is not None, entry.id


def test_registering_again_is_silent():
    before = dict(gymnasium.registry)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register_envs()
        agentgym.register_envs()
    assert dict(gymnasium.registry) == before


def test_pettingzoo_entries_go_to_its_registry():
    entry = Entry(
        "agentgym-test/None-v0", "agentgym.envs.relay:RelayEnv", "relay", "x", registry="pettingzoo"
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            register_envs([entry])
            register_envs([entry])
        assert entry.id in pettingzoo.parallel_registry
        assert entry.id not in gymnasium.registry
    finally:
        pettingzoo.parallel_registry.pop(entry.id, None)


@pytest.mark.parametrize("env_id", ["agentgym/SWE-v0", "agentgym/Review-v0"])
def test_an_environment_without_the_extra_has_pip_and_still_misses_something(monkeypatch, env_id):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name == "pip" else None)
    assert find(env_id).missing() == "needs the package packaging: pip install 'agentgym-suite[swe]'"


def test_missing_names_the_command():
    base = ("agentgym/X-v0", "a:B", "x", "x")
    assert Entry(*base).missing() is None
    assert (
        Entry(*base, packages=(("json", "swe"),), programs=(("sh", "apt-get install sh"),)).missing() is None
    )
    package = Entry(*base, packages=(("json", "swe"), ("no_such_module", "web")))
    assert package.missing() == "needs the package no_such_module: pip install 'agentgym-suite[web]'"
    program = Entry(*base, programs=(("no-such-program", "apt-get install it"),))
    assert program.missing() == "needs the program no-such-program: apt-get install it"


@pytest.mark.parametrize(
    ("bwrap", "docker", "text"),
    [
        (True, False, None),
        (False, True, None),
        (
            False,
            False,
            "needs a sandbox: apt-get install bubblewrap; or, for backend='docker', Docker and pip",
        ),
    ],
)
def test_one_sandbox_is_enough(bwrap, docker, text, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/bwrap" if bwrap else None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if docker else None)
    missing = Entry("agentgym/X-v0", "a:B", "x", "x", sandbox=True).missing()
    assert missing is None if text is None else missing.startswith(text)


def test_swe_runs_where_only_docker_is(monkeypatch):
    here = shutil.which
    monkeypatch.setattr(
        "shutil.which", lambda name: None if name == "bwrap" else here(name) or "/usr/bin/git"
    )
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert find("agentgym/SWE-v0").missing() is None


def test_find():
    assert find(RELAY).entry_point == "agentgym.envs.relay:RelayEnv"
    assert find("CartPole-v1") is None


def test_make_gives_the_bare_environment():
    env = gymnasium.make(RELAY)
    assert env.unwrapped is env
    assert env.spec.id == RELAY
    assert env.metadata["render_modes"] == ["ansi"]


def test_module_prefix_form():
    assert gymnasium.make(f"agentgym:{RELAY}").spec.id == RELAY


@pytest.mark.parametrize(
    ("keywords", "error", "said"),
    [
        ({"hosp": 3}, TypeError, "takes no keyword 'hosp'. Did you mean 'hops'"),
        ({"max_turn": 3}, TypeError, "takes no keyword 'max_turn'. Did you mean 'max_turns'"),
        ({"split": "tset"}, TaskError, "no split 'tset'. Did you mean 'test'"),
        ({"protocol": "hermse"}, UsageError, "Did you mean 'hermes'"),
        ({"render_mode": "human"}, UsageError, "expected render_mode among"),
        ({"max_turns": 0}, UsageError, "expected max_turns .* >= 1, got 0"),
        ({"max_seconds": 0}, UsageError, "expected max_seconds > 0"),
        ({"max_seconds": float("nan")}, UsageError, "expected max_seconds > 0"),
        ({"tasks": []}, UsageError, "has no tasks"),
        ({"tasks": "missing.jsonl"}, TaskError, "cannot read missing.jsonl"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*render")  # gymnasium speaks up too
def test_wrong_keywords_fail_at_make(keywords, error, said):
    with pytest.raises(error, match=said):
        gymnasium.make(RELAY, **keywords)


def test_unknown_id_fails_at_make_with_the_nearest():
    with pytest.raises(gymnasium.error.NameNotFound, match="Relay"):
        gymnasium.make("agentgym/Realy-v0")


def test_unknown_task_fails_at_reset_with_the_nearest():
    env = gymnasium.make(RELAY)
    with pytest.raises(TaskError, match="Did you mean 'relay-train-000'"):
        env.reset(options={"task": "relay-trian-000"})


def test_a_module_that_fails_when_imported_says_where(tmp_path, monkeypatch):
    (tmp_path / "torn_env.py").write_text("x = 1\ny = (\n")
    (tmp_path / "late_env.py").write_text("\n\nraise RuntimeError('too early')\n")
    (tmp_path / "empty_env").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=r"importing 'torn_env' failed at .*torn_env.py:2: SyntaxError"):
        require("torn_env:X-v0")
    with pytest.raises(UsageError, match=r"late_env.py:3: RuntimeError: too early"):
        require("late_env:X-v0")
    with pytest.raises(UsageError, match=r"'empty_env' is a folder without code of its own"):
        require("empty_env:X-v0")
    with pytest.raises(
        UsageError, match=r"no environment 'agentgym/Relya-v0' .* Did you mean 'agentgym/Relay-v0'"
    ):
        require("agentgym/Relya-v0")


@pytest.mark.parametrize(
    ("env_id", "said"),
    [
        ("agentgym/team-v0", "Did you mean 'agentgym/Team-v0'"),
        ("Relay-v0", "named module:Id-v0, which imports its module. Did you mean 'agentgym/Relay-v0'"),
        ("my_env", "named module:Id-v0, which imports its module. Known: 'agentgym/Relay-v0'"),
    ],
)
def test_an_unknown_id_is_answered_with_ids_that_can_be_played(env_id, said):
    with pytest.raises(UsageError) as caught:
        require(env_id)
    assert said in str(caught.value)
    assert "Walker2d" not in str(caught.value)
