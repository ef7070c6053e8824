"""SWE-v0 as its user plays it. The grader's own tests are in tests/verifiers/test_tests.py."""

from __future__ import annotations

import copy
import dataclasses
import errno
import pickle
import shutil
from typing import Any

import gymnasium
import pytest

import agentgym
from agentgym.core import ToolCall
from agentgym.envs.swe import SweEnv
from agentgym.envs.swe.builtin import builtin_records
from agentgym.errors import SandboxError, TaskError, UsageError
from agentgym.sandbox.base import Sandbox
from tests.descriptors import descriptors_left

pytestmark = [
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]

TASK = {"task": "ledger-undo"}
FIX = {"path": "ledger.py", "old": "self.balance += last", "new": "self.balance -= last"}


@pytest.fixture
def env() -> Any:
    env = gymnasium.make("agentgym/SWE-v0")
    yield env
    env.close()


def call(name: str, **arguments: Any) -> str:
    return gymnasium.make("agentgym/SWE-v0").unwrapped.protocol.render_call(ToolCall(name, arguments))


def said(env: Any, name: str, **arguments: Any) -> str:
    """What one call is answered, without the protocol's wrapping."""
    return env.step(call(name, **arguments))[4]["calls"][0].result.text


def test_an_honest_repair_is_paid(env: Any) -> None:
    env.reset(options=TASK)
    assert (
        env.step(call("edit", **FIX))[0] == "<tool_response>\nEdited ledger.py at line 57.\n</tool_response>"
    )
    _, reward, terminated, truncated, info = env.step(call("submit"))
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info["verdict"].components["f2p"] == info["verdict"].components["p2p"] == 1.0


def test_work_is_graded_when_turns_run_out() -> None:
    env = gymnasium.make("agentgym/SWE-v0", max_turns=1)
    env.reset(options=TASK)
    _, reward, terminated, truncated, _ = env.step(call("edit", **FIX))
    assert (reward, terminated, truncated) == (1.0, False, True)
    env.close()


@pytest.mark.parametrize("task", [record.instance_id for record in builtin_records()])
def test_gold_is_paid_and_nothing_is_not(env: Any, task: str) -> None:
    env.reset(options={"task": task})
    env.step(env.gold())
    assert env.step(env.gold())[1] == 1.0
    env.reset(options={"task": task})
    assert env.step(call("submit"))[1] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["hermes", "xml", "bash", "react"])
def test_gold_works_in_every_protocol(protocol: str) -> None:
    env = gymnasium.make("agentgym/SWE-v0", protocol=protocol)
    env.reset(options=TASK)
    env.step(env.gold())
    assert env.step(env.gold())[1] == 1.0
    env.close()


def test_cheats_are_not_paid(env: Any) -> None:
    env.reset(options=TASK)
    for name, actions in env.cheats().items():
        env.reset(options=TASK)
        for action in actions:
            result = env.step(action)
        assert result[1] == 0.0, name
        assert result[2], name


def test_cheats_do_not_spoil_an_honest_repair(env: Any) -> None:
    env.reset(options=TASK)
    env.step(env.cheats()["conftest that reports success"][0])
    env.step(call("edit", **FIX))
    assert env.step(call("submit"))[1] == 1.0


def test_tools(env: Any) -> None:
    env.reset(options=TASK)
    assert said(env, "bash", command="echo hello; pwd") == "hello\n/workspace"
    assert said(env, "bash", command="true") == "[no output]"
    assert said(env, "bash", command="echo x; exit 3") == "x\n[exit status 3]"
    assert (
        said(env, "view", path="ledger.py", start=1, end=1)
        .splitlines()[0]
        .endswith('accounts that hold them."""')
    )
    assert "tests/test_basics.py" in said(env, "view", path=".")
    assert said(env, "view", path="none.py") == "there is no file none.py"
    assert said(env, "view", path="ledger.py", start=1000).startswith("ledger.py has 62 lines")
    nothing = "the old text does not occur in ledger.py, nor anything like it"
    assert said(env, "edit", path="ledger.py", old="no such text", new="") == nothing
    assert "occurs 8 times, at lines 6, 17, 24, " in said(env, "edit", path="ledger.py", old="def ", new="")
    assert "use create" in said(env, "edit", path="ledger.py", old="", new="x")
    assert said(env, "create", path="new/é.txt", content="ü\n") == "Created new/é.txt."
    assert said(env, "bash", command="cat new/é.txt") == "ü"
    assert (
        said(env, "create", path="ledger.py", content="") == "ledger.py exists already; change it with edit"
    )
    assert said(env, "edit", path="tests", old="a", new="b") == "tests is a folder"
    assert said(env, "bash", command="echo a\0b") == "a command cannot hold a NUL byte"
    for name, rest in (("view", {}), ("edit", {"old": "a", "new": "b"}), ("create", {"content": ""})):
        assert said(env, name, path="a\0b", **rest) == "a path cannot hold a NUL byte"
        assert "ledger" not in said(env, name, path="../../etc/shadow", **rest)
    assert said(env, "view", path="") == said(env, "view", path=".")


def test_search(env: Any) -> None:
    env.reset(options=TASK)
    assert said(env, "search", pattern=r"def \w+\(text") == "ledger.py:6: def parse(text: str) -> int:"
    found = said(env, "search", pattern="import", glob="test_*.py").splitlines()
    assert found
    assert all(line.startswith("tests/test_basics.py:") for line in found)
    assert said(env, "search", pattern="undo", path="tests") == "no match"
    assert said(env, "search", pattern="(") == (
        "cannot search: expected a regular expression as Python reads it: missing ), unterminated subpattern at"
        " position 0"
    )
    assert said(env, "search", pattern="x", path="none") == "cannot search: there is no file or folder none"
    assert said(env, "search", pattern="x", path="a\0b") == "a path cannot hold a NUL byte"
    said(env, "bash", command="seq 1 500 > n.txt; head -c 1000 /dev/zero > zero; echo main > .git/x")
    lines = said(env, "search", pattern="^[0-9]+$").splitlines()
    assert lines[0] == "n.txt:1: 1"
    assert len(lines) == 101
    assert lines[-1] == "... 400 more matches; 500 in 1 files"


@pytest.mark.slow
def test_a_search_needs_no_program_called_python(env: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    env.reset(options=TASK)
    sandbox, asked = env.unwrapped.sandbox, []
    run = sandbox.exec

    def note(command: list[str], **options: Any) -> Any:
        asked.append(command[0])
        return run(command, **options)

    monkeypatch.setattr(sandbox, "exec", note)
    assert said(env, "search", pattern=r"def \w+\(text").startswith("ledger.py:6:")
    assert asked == [str(env.unwrapped.prepared.tests.suite.python)]


def test_a_search_without_end_is_stopped() -> None:
    env = gymnasium.make("agentgym/SWE-v0", command_timeout=1.0)
    env.reset(options=TASK)
    said(env, "bash", command="printf 'a%.0s' {1..200} > a.txt; echo b >> a.txt")
    assert said(env, "search", pattern="(a|a)*$") == "the search was stopped after 1 seconds"
    env.close()


def test_the_single_command_protocol_of_mini_swe_agent() -> None:
    """One fenced command a message; the first line of its output submits, if it succeeds."""
    env = gymnasium.make("agentgym/SWE-v0", protocol="bash")
    env.reset(options=TASK)
    line = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
    assert f"`echo {line}`" in env.unwrapped.system_prompt
    block = "THOUGHT: the sign is wrong.\n\n```bash\n{}\n```"
    for command in ("sed -i 's/+= last/-= last/' ledger.py", f"echo x; echo {line}", f"echo {line}; exit 1"):
        assert not env.step(block.format(command))[2]
    _, reward, terminated, _, info = env.step(block.format(f"echo {line} && git add -A && git diff --cached"))
    assert (reward, terminated, info["resolved"]) == (1.0, True, True)
    env.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fraction", "gated"])
def test_parts_of_a_repair(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two defects at once: one repaired is half; a broken test takes it away."""
    records = builtin_records()
    both = dataclasses.replace(
        records[2],
        instance_id="both",
        bug_patch=records[1].bug_patch + records[2].bug_patch,
        fail_to_pass=records[1].fail_to_pass + records[2].fail_to_pass,
        pass_to_pass=tuple(set(records[1].pass_to_pass) & set(records[2].pass_to_pass)),
    )
    env = SweEnv(tasks=[both], reward=kind)
    for edits, expected in (
        ((), 0.0),
        ((FIX,), 0.5),
        ((FIX, {"path": "ledger.py", "old": "shares < 1", "new": "shares < 0"}), 0.0),
    ):
        env.reset()
        for edit in edits:
            assert "Edited" in said(env, "edit", **edit)
        _, reward, _, _, info = env.step(call("submit"))
        assert reward == expected, (edits, info["verdict"])
        assert not info["resolved"]
    env.close()


def test_the_tests_that_are_there_can_be_run(env: Any) -> None:
    env.reset(options=TASK)
    assert "4 passed" in said(env, "bash", command="pytest -q")
    assert "4 passed" in said(env, "bash", command="python -m pytest -q")


def test_a_command_has_no_memory_unless_asked(env: Any) -> None:
    env.reset(options=TASK)
    said(env, "bash", command="cd tests; x=1")
    assert said(env, "bash", command="pwd; echo [$x]") == "/workspace\n[]"
    persistent = gymnasium.make("agentgym/SWE-v0", persistent_shell=True)
    persistent.reset(options=TASK)
    said(persistent, "bash", command="cd tests; x=1")
    assert said(persistent, "bash", command="pwd; echo [$x]") == "/workspace/tests\n[1]"
    persistent.close()


def test_a_slow_command_is_stopped() -> None:
    env = gymnasium.make("agentgym/SWE-v0", command_timeout=0.5)
    env.reset(options=TASK)
    assert said(env, "bash", command="echo before; sleep 60") == "before\n[stopped after 0.5 seconds]"
    env.close()


def test_a_long_output_is_cut() -> None:
    env = gymnasium.make("agentgym/SWE-v0", output_chars=200)
    env.reset(options=TASK)
    text = said(env, "bash", command="seq 100000")
    assert len(text) < 300
    assert text.startswith("1\n2\n")
    assert text.endswith("100000")
    env.close()


def test_nothing_of_the_solution_is_in_reach(env: Any) -> None:
    env.reset(options=TASK)
    gold, hidden = env.secrets(env.episode.task)
    assert "+        self.balance -= last" in gold
    assert "+    assert account.undo() == -200" in hidden
    wanted = " ".join(f"-e '{line}'" for line in ("self.balance -= last", "assert account.undo() == -200"))
    found = said(env, "bash", command=f"grep -rF {wanted} . /tmp /usr/lib/python3 2>/dev/null")
    assert found == "[exit status 1]"
    objects = said(
        env, "bash", command="git rev-list --all --objects --reflog | wc -l; git fsck --lost-found"
    )
    assert objects == "5"  # one commit, two folders, two files, and nothing that hangs loose
    assert said(env, "bash", command="git remote; git stash list; git tag") == "[no output]"


def test_snapshot_brings_the_files_back(env: Any) -> None:
    env.reset(options=TASK)
    env.step(call("edit", **FIX))
    saved = env.snapshot()
    first = [env.step(call("bash", command="git diff --stat; rm ledger.py; ls")), env.step(call("submit"))]
    for _ in range(2):
        env.restore(saved)
        again = [
            env.step(call("bash", command="git diff --stat; rm ledger.py; ls")),
            env.step(call("submit")),
        ]
        assert [step[:4] for step in again] == [step[:4] for step in first]
    env.restore(saved)
    assert env.step(call("submit"))[1] == 1.0


def test_snapshot_crosses_environments(env: Any) -> None:
    env.reset(options=TASK)
    env.step(call("edit", **FIX))
    saved = env.snapshot()
    other = gymnasium.make("agentgym/SWE-v0")
    other.reset(options={"task": "ledger-limit"})
    other.restore(saved)
    assert other.step(call("submit"))[1] == 1.0
    other.close()


def test_restore_brings_the_task_s_own_sandbox_back() -> None:
    """Variables, limits and programs are the sandbox's, so a reset to another task changes them."""
    first, second = builtin_records()[:2]
    env = SweEnv(tasks=[first, dataclasses.replace(second, python_path=("src", "."))])
    show = 'echo "$PYTHONPATH"; ls'
    env.reset(options={"task": first.instance_id})
    assert said(env, "bash", command=show).splitlines()[0] == "."
    said(env, "bash", command="touch mine")
    saved = env.snapshot()
    env.reset(options={"task": second.instance_id})
    other = env.sandbox
    assert said(env, "bash", command=show).splitlines()[0] == "src:."
    env.restore(saved)
    assert env.episode.task.id == first.instance_id
    assert said(env, "bash", command=show).splitlines() == [".", "ledger.py", "mine", "tests"]
    assert env.episode.workspace is env.sandbox is not other
    with pytest.raises(SandboxError, match="closed"):
        other.exec("true")
    kept = env.sandbox
    env.restore(saved)  # of the same task: the same one
    assert env.sandbox is kept
    env.close()


def test_a_dead_sandbox_is_no_reward(env: Any) -> None:
    env.reset(options=TASK)
    sandbox = env.episode.workspace
    assert isinstance(sandbox, Sandbox)
    sandbox.close()
    _, reward, terminated, truncated, info = env.step(call("bash", command="true"))
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["infrastructure_error"]
    assert "verdict" not in info
    env.reset(options=TASK)
    assert said(env, "bash", command="echo again") == "again"


# What a policy leaves in the workspace: its failure, never an exception or a fault of the infrastructure

LEFT = {
    "deep": ("for i in $(seq 260); do mkdir x; cd x; done", "more than 200 folders inside one another"),
    "long": (
        "n=$(printf 'y%.0s' {1..200}); for i in {1..30}; do mkdir $n; cd $n; done",
        "a path of more than 3000",
    ),
    "many": ("mkdir m; cd m; seq 400 | xargs touch", "files and folders"),
    "sparse": ("truncate -s 1G hole", "bytes in files"),
    "large": ("for i in 1 2 3; do head -c 50000 /dev/zero > $i; done", "bytes in files"),
    "names": ("touch $'line\\nbreak.py' $'\\xff.py'", ""),
    "pipe": ("rm ledger.py; mkfifo ledger.py pytest.ini", ""),
    "locked": ("chmod 000 ledger.py tests .", ""),
    "empty": ("rm -rf * .git", ""),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if LEFT[n][1] else pytest.mark.slow) for n in LEFT]
)
def test_what_is_left_behind_is_the_policy_s_failure(
    env: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, problem = LEFT[name]
    env.reset(options=TASK)
    tests = dataclasses.replace(env.unwrapped._prepared.tests, most_entries=300, most_bytes=100_000)
    monkeypatch.setattr(env.unwrapped, "_prepared", dataclasses.replace(env.unwrapped._prepared, tests=tests))
    env.step(call("bash", command=command))
    _, reward, terminated, truncated, info = env.step(call("submit"))
    assert (reward, terminated, truncated) == (0.0, True, False)
    assert "infrastructure_error" not in info
    said = info["verdict"].evidence.get("problem", "")
    assert problem in said
    assert bool(said) == bool(problem)


def test_what_may_be_left_behind(env: Any) -> None:
    env.reset(options=TASK)
    env.step(call("edit", **FIX))
    env.step(call("bash", command="mkdir -p __pycache__/{1..300} .git/{1..300}; mkdir m; touch m/{1..300}"))
    assert env.step(call("submit"))[1] == 1.0


def test_a_full_disk_of_ours_is_infrastructure(env: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    env.reset(options=TASK)
    monkeypatch.setattr("agentgym.sandbox._local.copy_out", fail)
    _, reward, terminated, truncated, info = env.step(call("submit"))
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert "no space left" in info["infrastructure_error"]


@pytest.mark.parametrize("name", ["submit", "view", "create"])
def test_a_folder_that_was_cleaned_up_is_infrastructure(env: Any, name: str) -> None:
    """Nothing that a policy runs can delete what lies above its workspace."""
    env.reset(options=TASK)
    shutil.rmtree(env.unwrapped.sandbox._state.folder)
    arguments = {"submit": {}, "view": {"path": "ledger.py"}, "create": {"path": "a", "content": ""}}[name]
    _, reward, terminated, truncated, info = env.step(call(name, **arguments))
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert "folder is gone" in info["infrastructure_error"]
    assert "verdict" not in info


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # what cannot be deleted now
def test_no_descriptor_left_is_infrastructure(env: Any) -> None:
    """Neither said to the policy, as "cannot read" or "exists already", nor a bare OSError."""
    actions = {
        "view": call("view", path="ledger.py"),
        "create": call("create", path="new.txt", content="x"),
        "edit": call("edit", **FIX),
        "search": call("search", pattern="def"),
        "bash": call("bash", command="true"),
        "submit": call("submit"),
    }
    for name, action in actions.items():
        env.reset(options=TASK)
        with descriptors_left(0):
            _, reward, terminated, truncated, info = env.step(action)
        assert (reward, terminated, truncated) == (0.0, False, True), name
        assert "Too many open files" in info["infrastructure_error"], name
    env.reset(options=TASK)
    for use in (env.snapshot, lambda: env.reset(options=TASK)):
        with descriptors_left(0), pytest.raises(SandboxError, match="Too many open files"):
            use()
    env.reset(options=TASK)
    assert said(env, "bash", command="echo again") == "again"


def test_lines_are_numbered_as_python_and_grep_do(env: Any) -> None:
    """A form feed and U+2028 stand within lines; what is searched for is on the fourth."""
    env.reset(options=TASK)
    said(env, "create", path="odd.py", content="a = 1\r\n\x0cb = 2\nc = '\u2028'\nresult = a\n")
    assert said(env, "bash", command="grep -n result odd.py") == "4:result = a"
    assert said(env, "search", pattern="^result") == "odd.py:4: result = a"
    assert said(env, "search", pattern="1$", glob="odd.py") == "odd.py:1: a = 1"
    assert said(env, "view", path="odd.py") == (
        "     1\ta = 1\n     2\t\x0cb = 2\n     3\tc = '\u2028'\n     4\tresult = a"
    )
    assert said(env, "edit", path="odd.py", old="result", new="answer") == "Edited odd.py at line 4."


def test_tools_in_a_sandbox_without_processes(env: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a fork bomb: what cannot be found out is said, not guessed."""

    def refuse(self: Any, argv: Any, out: Any, err: Any, *args: Any) -> tuple[int, bool]:
        err.add(b"the limits of this sandbox are used up\n")
        return 126, False

    env.reset(options=TASK)
    monkeypatch.setattr(type(env.episode.workspace), "_execute", refuse)
    assert (
        said(env, "create", path="ledger.py", content="") == "ledger.py exists already; change it with edit"
    )
    assert said(env, "create", path="tests", content="") == "tests exists already; change it with edit"
    used_up = "the limits of this sandbox are used up"
    assert said(env, "create", path="new.py", content="") == f"cannot create new.py: {used_up}"
    assert said(env, "view", path=".") == f"cannot list .: {used_up}"
    assert "def parse" in said(env, "view", path="ledger.py")
    assert said(env, "edit", **FIX) == "Edited ledger.py at line 57."


def test_a_huge_file_is_not_read_into_memory(env: Any) -> None:
    env.reset(options=TASK)
    said(env, "bash", command="truncate -s 900M hole; mkdir d; ln -s /workspace/hole d/link; touch empty")
    for path in ("hole", "d/link"):
        assert said(env, "view", path=path) == f"cannot read {path}: larger than 16777216 bytes"
    assert said(env, "create", path="hole", content="") == "hole exists already; change it with edit"
    assert said(env, "create", path="empty", content="") == "empty exists already; change it with edit"
    assert said(env, "create", path="ledger.py/x", content="").startswith("cannot write ledger.py/x")


def test_copies_before_an_episode_only(env: Any) -> None:
    assert isinstance(pickle.loads(pickle.dumps(env)), SweEnv)
    env.reset(options=TASK)
    with pytest.raises(TypeError, match="use snapshot"):
        pickle.dumps(env)
    with pytest.raises(TypeError, match="use snapshot"):
        copy.deepcopy(env)


def test_bad_arguments() -> None:
    for wrong, expected in (
        ({"command_timeout": 0}, "command_timeout >= 0.1, got 0"),
        ({"command_timeout": "1"}, "command_timeout to be a finite number, got '1'"),
        ({"output_chars": 1000.0}, "output_chars to be a whole number >= 200, got 1000.0"),
        ({"output_chars": 199}, "output_chars to be a whole number >= 200, got 199"),
        ({"persistent_shell": "no"}, "persistent_shell to be True or False, got 'no'"),
        ({"hints": "no"}, "hints to be True or False, got 'no'"),
        ({"allow_unsafe": 1}, "allow_unsafe to be True or False, got 1"),
        ({"backend": "bublewrap"}, "Did you mean 'bubblewrap'"),
        ({"backend": "process"}, "pass allow_unsafe=True"),
    ):
        with pytest.raises(UsageError, match=expected):
            SweEnv(**wrong)
    with pytest.raises(UsageError, match="Did you mean 'binary'"):
        SweEnv(reward="binry")
    with pytest.raises(TypeError, match="Did you mean 'command_timeout'"):
        gymnasium.make("agentgym/SWE-v0", comand_timeout=1)
    with pytest.raises(TaskError, match="Did you mean 'ledger-undo'"):
        gymnasium.make("agentgym/SWE-v0").reset(options={"task": "ledger-und"})
    with pytest.raises(TaskError, match="has no split 'test'"):
        gymnasium.make("agentgym/SWE-v0", split="test")
    plain = SweEnv(tasks=[agentgym.Task("t", "no record")])
    with pytest.raises(TaskError, match="SweRecord"):
        plain.reset()


def test_only_none_means_the_bundled_tasks() -> None:
    """A filter that matches nothing must not train on toys."""
    assert len(SweEnv().task_set) == len(SweEnv(tasks=None).task_set) == 3
    for empty in ([], (), agentgym.TaskSet([])):
        with pytest.raises(UsageError, match="SweEnv has no tasks"):
            SweEnv(tasks=empty)

    class Own(SweEnv):
        tasks = (agentgym.Task("mine", "p", data={"record": builtin_records()[0]}),)

    assert [task.id for task in Own().task_set] == ["mine"]


def test_gold_needs_an_episode() -> None:
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        SweEnv().gold()


def test_what_a_policy_cannot_make_is_said_to_it(env: Any) -> None:
    env.reset(options=TASK)
    assert "folders inside one another" in said(env, "create", path="a/" * 1200 + "f", content="x")
    assert said(env, "view", path="ledger.py", end=-(10**90)).endswith("more lines")
    assert env.step(call("submit"))[1:3] == (0.0, True)


def test_the_cheat_that_exits_really_reaches_the_run(env: Any) -> None:
    env.reset(options=TASK)
    for action in env.cheats()["exit status 0 before the tests"]:
        info = env.step(action)[4]
    assert info["verdict"].evidence["problem"] == "the test run broke off (exit status 0)"
