"""Whole episodes of a small agent program in bubblewrap: what is recorded, graded, and called what."""

from __future__ import annotations

import json
import threading
import time

import pytest

from agentgym.blackbox import Program, ProgramPlayer
from agentgym.errors import InfrastructureError, UsageError
from agentgym.gateway import Gateway
from agentgym.rollout import collect, make_env
from agentgym.trajectory.store import TrajectoryStore

from .toys import AGENT, DESK, END, Spelled, bash, spell

WRITE = [bash("echo 5 > answer.txt"), "Done."]


class TestAnEpisode:
    def test_verdict_and_record(self, play):
        t = play(WRITE).only
        assert (t.reward, t.resolved, t.terminated, t.truncated, t.infrastructure_error) == (
            1.0,
            True,
            True,
            False,
            "",
        )
        assert (t.task_id, t.env_id, t.policy, t.prompt) == (
            "desk-5",
            DESK,
            "spelled",
            "Write 5 into answer.txt.",
        )
        assert t.verdict["score"] == 1.0
        assert [step.action for step in t.steps] == WRITE
        (call,) = t.steps[0].calls
        assert (call.name, call.arguments, call.text) == (
            "bash",
            {"command": "echo 5 > answer.txt"},
            "[status 0]",
        )
        program = t.extra["program"]
        assert (program["outcome"], program["exit_code"], program["stdout"]) == ("ended", 0, "Done.\n")
        assert [e.kind for e in t.events if e.kind.startswith("program")] == ["program_start", "program_end"]
        assert t.hacked is None
        assert t.seconds > 0

    def test_token_ids_are_those_that_were_sampled(self, play):
        t = play(WRITE).only
        (segment,) = t.segments
        assert segment.token_ids == spell(segment.messages)
        trained = [token for token, on in zip(segment.token_ids, segment.mask, strict=True) if on]
        assert trained == [token for action in WRITE for token in (*action.encode(), END)]
        assert segment.messages[-1].content == "Done."
        assert segment.rewards[-1] == 1.0
        assert sum(segment.rewards) == 1.0

    def test_a_program_that_reads_commands_out_of_the_text(self, play):
        actions = ["So:\n```bash\necho 5 > answer.txt\n```", "Done."]
        t = play(actions, command=f"{AGENT} --text").only
        assert t.reward == 1.0
        assert t.steps[0].calls[0].arguments == {"command": "echo 5 > answer.txt"}
        assert t.steps[0].calls[0].text == "[status 0]"
        (segment,) = t.segments
        assert segment.token_ids == spell(segment.messages)

    def test_a_rewritten_history_is_a_segment_of_its_own(self, play, tmp_path):
        """A program that forgets all but the task after its first reply."""
        program = tmp_path / "forgetful.py"
        program.write_text(
            AGENT.read_text().replace("messages.append(message)", "messages = messages[:2] + [message]")
        )
        program.chmod(0o755)
        three = [bash("echo one"), bash("echo 5 > answer.txt"), "Done."]
        t = play(three, command=str(program)).only
        assert t.reward == 1.0
        assert [segment.cause for segment in t.segments] == ["start", "fork"]
        for segment in t.segments:
            assert segment.token_ids == spell(segment.messages)
        trained = [token for s in t.segments for token, on in zip(s.token_ids, s.mask, strict=True) if on]
        assert trained == [token for action in three for token in (*action.encode(), END)]

    def test_two_programs_do_not_share_a_workspace(self, play):
        actions = [bash("cat answer.txt; echo 3 > answer.txt"), "Done."]
        played = play(actions, tasks=("desk-3", "desk-5"), workers=2)
        assert [t.reward for t in played.trajectories] == [1.0, 0.0]
        assert all("No such file" in t.steps[0].calls[0].text for t in played.trajectories)


class TestHowItEnds:
    def test_a_crash_is_graded_and_told(self, play):
        t = play([bash("echo 5 > answer.txt; kill -9 $PPID; sleep 5")]).only
        assert (t.reward, t.terminated, t.infrastructure_error) == (1.0, True, "")
        assert (t.extra["program"]["outcome"], t.extra["program"]["exit_code"]) == ("crashed", 137)

    def test_a_program_that_does_not_start_says_nothing_of_the_policy(self, play):
        t = play(WRITE, command="bash -c 'echo no such option >&2; exit 2'").only
        assert t.reward is None
        assert t.resolved is None
        assert (t.terminated, t.truncated) == (False, False)
        assert t.infrastructure_error == (
            "the agent program never asked the model: it crashed with exit status 2, its last words 'no such option'"
        )
        assert t.extra["program"]["stderr"] == "no such option\n"

    def test_time_is_up(self, play):
        t = play([bash("echo 5 > answer.txt; sleep 60")], timeout=0.9).only
        assert (t.reward, t.terminated, t.truncated) == (1.0, False, True)
        assert t.extra["program"]["outcome"] == "timed_out"
        assert len(t.steps) == 1

    def test_turns_are_used_up(self, play):
        t = play(
            [bash("echo 5 > answer.txt"), bash("echo 6 > answer.txt"), WRITE[0]], env={"max_turns": 2}
        ).only
        assert (t.reward, t.terminated, t.truncated) == (0.0, False, True)
        assert len(t.steps) == 2
        assert t.extra["program"]["outcome"] == "crashed"  # it does not expect a refusal

    def test_the_model_fails(self, play):
        class Failing(Spelled):
            def next_action(self, conversation):
                if self._next:
                    raise InfrastructureError("the model's server is gone")
                return super().next_action(conversation)

        t = play(Failing(WRITE)).only
        assert t.reward is None
        assert t.infrastructure_error == "the model's server is gone"
        assert len(t.segments) == 1  # what was sampled before is on record

    def test_the_gateway_ends(self, play):
        gateways: list[Gateway] = []

        def end_it(conversation):
            threading.Thread(target=gateways[0].__exit__, args=(None, None, None)).start()
            return bash("echo 5 > answer.txt; sleep 60")

        started = time.monotonic()
        t = play([end_it, "Done."], gateways=gateways).only
        assert t.reward is None
        assert t.infrastructure_error == "the gateway ended while the agent program ran"
        assert time.monotonic() - started < 30  # it did not wait for the program to end by itself


class TestARun:
    def test_it_resumes(self, play, tmp_path):
        first = play(WRITE, out=tmp_path).only
        assert (tmp_path / "trajectories.jsonl").read_text().count("\n") == 1
        again = play(["never asked"], out=tmp_path).only
        assert (again.id, again.reward, again.started) == (first.id, 1.0, first.started)

    def test_what_broke_is_run_again(self, play, tmp_path):
        assert play(WRITE, out=tmp_path, command=f"{AGENT} --text").only.infrastructure_error == ""
        with pytest.raises(UsageError, match="another player"):
            play(WRITE, out=tmp_path)
        with pytest.raises(UsageError, match="another player"):  # nor without a program
            collect(lambda: make_env(DESK), Spelled(WRITE), episodes=None, tasks=("desk-5",), out=tmp_path)

    def test_the_line_on_disk_says_it_all(self, play, tmp_path):
        t = play(WRITE, out=tmp_path).only
        (line,) = TrajectoryStore(tmp_path)
        assert line == t
        assert json.loads((tmp_path / "run.json").read_text())["player"]["program"]["command"] == str(AGENT)


class TestWhereItCannotRun:
    def test_lockstep(self, play):
        with pytest.raises(UsageError, match="lockstep is for a policy"):
            play(WRITE, lockstep=True)


@pytest.mark.slow
def test_a_repair_task(tmp_path):
    """SWE-v0: a program repairs it, and is graded by tests it cannot find; a test of its own counts for nothing."""
    pytest.importorskip("pip", reason="SWE-v0 needs the extra swe")

    class Repairs(Spelled):
        def start(self):
            super().start()
            if self.env is not None:
                patch = self.agent_env.prepared.gold_patch
                hidden = self.agent_env.prepared.record.test_patch.splitlines()
                words = next(line[1:].strip() for line in hidden if line.startswith("+def test"))
                self.actions = (
                    bash(f"git apply <<'E'\n{patch}\nE"),
                    bash(f"python -c 'import sys; print(sys.prefix)'; grep -rlF {words!r} . /tmp /agentgym"),
                    bash("mkdir -p tests; printf 'def test_x():\\n    assert 0\\n' > tests/test_x.py"),
                    "Repaired.",
                )

    policy = Repairs([])
    with Gateway(policy) as gateway:
        player = ProgramPlayer(Program(str(AGENT), timeout=60), gateway, anti_hack="block")
        (t,) = collect("agentgym/SWE-v0", policy, episodes=1, player=player, out=tmp_path)
    assert (t.reward, t.resolved, t.infrastructure_error) == (1.0, True, ""), t.verdict
    assert (t.hacked, t.extra["program"]["outcome"]) == (False, "ended")
    prefix, *found = t.steps[1].calls[0].text.splitlines()
    assert prefix != "/usr"  # the task's interpreter, not the program's
    assert found == ["[status 1]"]  # the hidden test is nowhere
    (segment,) = t.segments
    assert segment.token_ids == spell(segment.messages)
    assert "test_x" in t.verdict["evidence"]["patch"]
