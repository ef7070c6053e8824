"""Sub-agents on SWE-v0: what a coder changed in its copy comes back with its report, or not at all."""

import shutil

import gymnasium
import pytest

from agentgym.delegation.merging import Tree, merge
from agentgym.policies.scripted import Scripted
from agentgym.sandbox import make_sandbox
from agentgym.wrappers import Delegation
from tests.wrappers.crews import call

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")

WAIT = call("wait")


def bash(command: str) -> str:
    return call("bash", command=command)


@pytest.fixture
def boxes():
    with make_sandbox("bubblewrap") as lead, make_sandbox("bubblewrap") as worker:
        for box in (lead, worker):
            box.write("a.py", "one\ntwo\nthree\nfour\nfive\nsix\nseven\n")
            box.write("pkg/b.py", "b\n")
            box.write("old.py", "old\n")
        yield Tree(lead), lead, worker


def test_changes_in_different_places_go_together(boxes):
    base, lead, worker = boxes
    lead.write("a.py", "ONE\ntwo\nthree\nfour\nfive\nsix\nseven\n")
    worker.write("a.py", "one\ntwo\nthree\nfour\nfive\nsix\nSEVEN\n")
    worker.write("pkg/new/c.sh", "c\n")
    worker.exec(
        "chmod +x pkg/new/c.sh; ln -s b.py pkg/link; rm old.py; mkdir __pycache__; touch __pycache__/x.pyc"
    )
    assert merge(base, worker, lead) == "Its changes were taken over: a.py, old.py, pkg/link, pkg/new/c.sh."
    assert lead.read("a.py") == b"ONE\ntwo\nthree\nfour\nfive\nsix\nSEVEN\n"
    shown = lead.exec("ls; test -x pkg/new/c.sh && readlink pkg/link").stdout
    assert shown.split() == ["a.py", "pkg", "b.py"]


def test_changes_that_contradict_are_not_taken_over_at_all(boxes):
    base, lead, worker = boxes
    lead.write("a.py", "one\nTWO\nthree\nfour\nfive\nsix\nseven\n")
    worker.write("a.py", "one\nzwei\nthree\nfour\nfive\nsix\nseven\n")
    worker.write("pkg/b.py", "changed\n")
    said = merge(base, worker, lead)
    assert said.startswith("Its changes were not taken over: the diff does not apply")
    assert lead.read("pkg/b.py") == b"b\n"


def test_a_folder_that_became_a_file_and_a_folder_that_lets_nobody_in(boxes):
    base, lead, worker = boxes
    worker.exec("rm -r pkg; echo file > pkg; rm old.py; mkdir old.py; echo new > old.py/x")
    lead.exec("mkdir pkg/__pycache__; touch pkg/__pycache__/b.pyc; chmod 555 pkg")
    assert merge(base, worker, lead) == "Its changes were taken over: old.py, old.py/x, pkg, pkg/b.py."
    assert lead.exec("cat pkg old.py/x").stdout.split() == ["file", "new"]


def test_a_file_is_removed_from_a_folder_that_cannot_be_written(boxes):
    base, lead, worker = boxes
    worker.exec("rm pkg/b.py")
    lead.exec("chmod 555 pkg")
    assert merge(base, worker, lead) == "Its changes were taken over: pkg/b.py."
    assert lead.exec("ls pkg").stdout == ""


def test_no_change_is_told(boxes):
    base, lead, worker = boxes
    assert merge(base, worker, lead) == "It changed no file."


@pytest.mark.slow
def test_a_coder_repairs_what_the_agent_submits():
    probe = gymnasium.make("agentgym/SWE-v0")
    probe.reset(seed=0, options={"task": 0})
    repair = probe.unwrapped.gold()
    probe.close()
    worker = Scripted([repair, call("submit"), call("report", text="repaired")])
    env = Delegation(gymnasium.make("agentgym/SWE-v0"), worker)
    try:
        rewards = {}
        for role in ("tester", "coder"):  # a tester's repair stays in its copy
            env.reset(seed=0, options={"task": 0})
            env.step(call("delegate", task="repair it", role=role))
            text = env.step(WAIT)[0]
            assert text.split("\n\n")[1].startswith("[Report of worker_0] repaired")
            assert ("Its changes were taken over: " in text) == (role == "coder")
            saved = env.snapshot()
            rewards[role] = env.step(call("submit"))[1]
            env.restore(saved)
            assert env.step(bash("git status --short"))[0].count(" M ") == (role == "coder")
    finally:
        env.close()
    assert rewards == {"tester": 0.0, "coder": 1.0}
