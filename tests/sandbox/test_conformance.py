"""What every backend must do. `make` and `box` run each test once per backend."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from agentgym.errors import SandboxError, UsageError
from agentgym.sandbox import Limits, Sandbox, python_binds

from .conftest import MakeSandbox, Sleeper


class TestExec:
    @pytest.mark.parametrize("code", [0, 1, 3, 255])
    def test_exit_code_is_a_result(self, box: Sandbox, code: int) -> None:
        assert box.exec(f"exit {code}").exit_code == code

    @pytest.mark.parametrize("name", ["TERM", "KILL", "SEGV", "PIPE"])
    def test_death_by_signal_is_128_plus_its_number(self, box: Sandbox, name: str) -> None:
        result = box.exec(["bash", "-c", f"kill -{name} $$; exit 9"])
        assert result.exit_code == 128 + signal.Signals[f"SIG{name}"]
        assert result.stderr == ""

    def test_argument_list_is_not_read_by_a_shell(self, box: Sandbox) -> None:
        assert box.exec(["printf", "%s|", "a b", "$HOME", "*", ";id", ""]).stdout == "a b|$HOME|*|;id||"

    def test_text_is_read_by_bash(self, box: Sandbox) -> None:
        assert box.exec("x=(a b); echo ${x[1]}; false || echo or").stdout == "b\nor\n"

    def test_program_not_found_is_127(self, box: Sandbox) -> None:
        result = box.exec(["no-such-program"])
        assert result.exit_code == 127
        assert "no-such-program" in result.stderr

    def test_program_not_runnable_is_126(self, box: Sandbox) -> None:
        box.write("data", "x")
        assert box.exec(["./data"]).exit_code == 126

    def test_a_variable_may_be_empty(self, box: Sandbox) -> None:
        assert box.exec('echo "[${X-unset}]"', env={"X": ""}).stdout == "[]\n"

    def test_a_variable_is_one_word(self, box: Sandbox) -> None:
        """Where variables are handed over as a list of words, a NUL would begin another word, even an option."""
        for env in ({"X": "a\0--ro-bind\0/\0/host"}, {"X\0a\0--ro-bind\0/\0/host": ""}):
            assert box.exec("ls -d /host", env=env).exit_code == 126
        assert box.exec("ls -d /host").exit_code == 2

    def test_streams_are_apart(self, box: Sandbox) -> None:
        result = box.exec("echo out; echo err >&2")
        assert (result.stdout, result.stderr) == ("out\n", "err\n")

    def test_stdin_is_empty_by_default(self, box: Sandbox) -> None:
        assert box.exec("cat; echo end", timeout=20).stdout == "end\n"

    def test_stdin_larger_than_a_pipe(self, box: Sandbox) -> None:
        data = bytes(range(256)) * 2000
        assert box.exec("wc -c; exit 4", stdin=data).stdout.strip() == str(len(data))

    def test_stdin_nobody_reads(self, box: Sandbox) -> None:
        assert box.exec("echo done", stdin=b"x" * 1_000_000).stdout == "done\n"

    def test_environment_is_clean_and_given(self, make: MakeSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOST_TOKEN", "host-value-7731")
        box = make(env={"ALL": "every command"})
        shown = box.exec("env", env={"ONE": "this command"}).stdout
        assert "host-value-7731" not in shown
        assert "ALL=every command\n" in shown
        assert "ONE=this command\n" in shown
        assert "ONE=" not in box.exec("env").stdout
        assert box.exec('test -d "$HOME" && test -w "$HOME"').exit_code == 0

    def test_working_directory(self, box: Sandbox) -> None:
        box.write("sub/f", "")
        assert box.exec("pwd").stdout.strip() == box.workspace
        assert box.exec("pwd", cwd="sub").stdout.strip() == f"{box.workspace}/sub"
        assert box.exec("pwd", cwd="/usr").stdout == "/usr\n"

    def test_missing_working_directory_fails_the_command(self, box: Sandbox) -> None:
        result = box.exec("echo no", cwd="nowhere")
        assert (result.exit_code, result.stdout) == (126, "")
        assert "nowhere" in result.stderr

    def test_unicode(self, box: Sandbox) -> None:
        assert box.exec(["printf", "%s", "héé 漢字 🐍"]).stdout == "héé 漢字 🐍"

    def test_half_a_surrogate_pair_does_no_harm(self, box: Sandbox) -> None:
        assert box.exec("printf '%s' 'a\ud800b'").stdout == "a?b"

    def test_nul_byte_fails_the_command(self, box: Sandbox) -> None:
        assert box.exec("echo \0").exit_code == 126

    def test_command_too_long_for_the_kernel_fails_the_command(self, box: Sandbox) -> None:
        result = box.exec("echo " + "x" * 300_000)
        assert result.exit_code == 126
        assert "too long" in result.stderr

    def test_binary_output_is_decoded_with_replacement(self, box: Sandbox) -> None:
        assert box.exec(r"printf 'a\xff\x00b'").stdout == "a\ufffd\0b"

    def test_wrong_command_type_is_a_usage_error(self, box: Sandbox) -> None:
        for wrong in ([], [1]):
            with pytest.raises(UsageError, match="list of texts"):
                box.exec(wrong)  # type: ignore[arg-type]

    def test_background_process_ends_with_its_command(self, box: Sandbox, sleeper: Sleeper) -> None:
        assert (
            box.exec(f"{sleeper.command} & setsid {sleeper.command} & echo ok", timeout=20).stdout == "ok\n"
        )
        assert sleeper.alive() == 0

    def test_commands_in_parallel_threads(self, box: Sandbox) -> None:
        results: dict[int, str] = {}

        def work(number: int) -> None:
            results[number] = box.exec(f"sleep 0.05; echo {number}").stdout

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == {number: f"{number}\n" for number in range(8)}

    def test_no_descriptor_of_ours_is_open_inside(self, box: Sandbox) -> None:
        read_end, write_end = os.pipe()
        os.set_inheritable(write_end, True)
        try:
            shown = box.exec(["ls", "/proc/self/fd"]).stdout.split()
        finally:
            os.close(read_end)
            os.close(write_end)
        assert len(shown) == 4  # the three streams and the folder being listed


class TestOutput:
    def test_head_and_tail_are_kept(self, make: MakeSandbox) -> None:
        result = make(limits=Limits(output_bytes=100)).exec("seq 100000; exit 5")
        assert result.exit_code == 5
        assert result.truncated
        assert result.stdout.startswith("1\n2\n3\n")
        assert result.stdout.endswith("99999\n100000\n")
        total = sum(len(f"{number}\n") for number in range(1, 100001))
        assert f"\n[... {total - 100} bytes cut ...]\n" in result.stdout

    def test_output_at_the_limit_is_whole(self, make: MakeSandbox) -> None:
        result = make(limits=Limits(output_bytes=101)).exec(["printf", "%0101d", "7"])
        assert not result.truncated
        assert result.stdout == "7".rjust(101, "0")

    def test_endless_output_is_bounded(self, make: MakeSandbox) -> None:
        box = make(limits=Limits(output_bytes=10_000))
        before = psutil.Process().memory_info().rss
        result = box.exec("yes & yes >&2", timeout=0.5)
        assert result.timed_out
        assert result.truncated
        assert len(result.stdout) < 10_100
        assert len(result.stderr) < 10_100
        assert psutil.Process().memory_info().rss - before < 50 << 20

    def test_endless_output_of_a_shell_is_bounded(self, make: MakeSandbox) -> None:
        shell = make(limits=Limits(output_bytes=10_000)).shell()
        result = shell.run("yes", timeout=0.3)
        assert result.timed_out
        assert result.truncated
        assert len(result.stdout) < 10_200
        assert shell.run("yes | head -c 5000000").truncated


ESCAPES = {
    "plain": "{sleep}",
    "background": "{sleep} & wait",
    "nohup": "nohup {sleep} >/dev/null 2>&1 & sleep 30",
    "setsid": "setsid {sleep} & sleep 30",
    "double fork": "( ( setsid nohup {sleep} >/dev/null 2>&1 </dev/null & ) & ); sleep 30",
    "traps": "trap '' TERM INT HUP; {sleep}",
    "closed streams": "exec >&- 2>&- <&-; {sleep}",
}


class TestTimeout:
    @pytest.mark.parametrize("escape", ESCAPES)
    def test_time_out_kills_everything(self, box: Sandbox, sleeper: Sleeper, escape: str) -> None:
        result = box.exec(ESCAPES[escape].format(sleep=sleeper.command), timeout=0.4)
        assert result.timed_out
        assert result.exit_code == 137
        assert sleeper.alive() == 0

    def test_output_before_the_time_out_is_kept(self, box: Sandbox) -> None:
        assert box.exec("echo early; sleep 30", timeout=0.4).stdout == "early\n"

    def test_default_comes_from_the_limits(self, make: MakeSandbox) -> None:
        assert make(limits=Limits(wall_s=0.3)).exec("sleep 30").timed_out

    def test_sandbox_works_after_a_time_out(self, box: Sandbox) -> None:
        box.exec("echo kept >f; sleep 30", timeout=0.4)
        assert box.exec("cat f").stdout == "kept\n"

    def test_time_out_shorter_than_a_start(self, box: Sandbox) -> None:
        result = box.exec("sleep 30", timeout=0.0001)
        assert (result.timed_out, result.exit_code) == (True, 137)


class TestClose:
    def test_close_kills_what_a_shell_left(self, box: Sandbox, sleeper: Sleeper) -> None:
        shell = box.shell()
        shell.run(f"setsid nohup {sleeper.command} >/dev/null 2>&1 & {sleeper.command} &")
        sleeper.wait_for(2)
        box.close()
        assert sleeper.alive() == 0

    def test_closing_a_shell_kills_what_it_left(self, box: Sandbox, sleeper: Sleeper) -> None:
        shell = box.shell()
        shell.run(f"setsid {sleeper.command} &")
        sleeper.wait_for(1)
        shell.close()
        shell.close()
        assert sleeper.alive() == 0
        with pytest.raises(SandboxError, match="closed"):
            shell.run("true")

    def test_a_dropped_sandbox_is_closed(self, make: MakeSandbox, sleeper: Sleeper) -> None:
        # Not through `make`, which keeps a reference.
        box = type(make())()
        box.shell().run(f"{sleeper.command} &")
        del box
        assert sleeper.alive() == 0

    def test_close_during_a_command_of_another_thread(self, box: Sandbox, sleeper: Sleeper) -> None:
        ended: list[int] = []
        thread = threading.Thread(target=lambda: ended.append(box.exec(sleeper.command).exit_code))
        thread.start()
        sleeper.wait_for(1)
        box.close()
        thread.join(20)
        assert ended == [137]

    def test_close_twice_and_use_after(self, box: Sandbox) -> None:
        shell = box.shell()
        box.close()
        box.close()
        for use in (lambda: box.exec("true"), box.shell, box.snapshot, lambda: shell.run("true")):
            with pytest.raises(SandboxError, match="closed"):
                use()

    @pytest.mark.parametrize(
        "start", ["box.exec(COMMAND)", "box.shell().run(COMMAND)", "in_a_thread(COMMAND)"]
    )
    def test_nothing_survives_a_killed_parent(self, make: MakeSandbox, sleeper: Sleeper, start: str) -> None:
        command = f"setsid nohup {sleeper.command} >/dev/null 2>&1 & {sleeper.command}"
        program = f"""
import threading
from agentgym.sandbox import make_sandbox
COMMAND = {command!r}
box = make_sandbox({make().backend!r}, allow_unsafe=True)
def in_a_thread(command):
    shells = []
    thread = threading.Thread(target=lambda: shells.append(box.shell()))
    thread.start()
    thread.join()
    shells[0].run(command)
{start}
"""
        parent = subprocess.Popen([sys.executable, "-W", "ignore", "-c", program])
        try:
            sleeper.wait_for(2)
        finally:
            parent.kill()
            parent.wait()
        sleeper.wait_for(0)

    def test_files_of_a_killed_parent_are_swept(
        self, make: MakeSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        backend = make().backend
        program = (
            "import os, sys\nfrom agentgym.sandbox import make_sandbox\n"
            f"box = make_sandbox({backend!r}, allow_unsafe=True)\nbox.exec('mkdir d; touch d/f; chmod 000 d')\n"
            "os.write(1, b'ready\\n')\nif sys.argv[1:]: os.kill(os.getpid(), 9)\n"
        )
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        command = [sys.executable, "-W", "ignore", "-c", program]
        killed = subprocess.run([*command, "die"], env=environment, check=False, capture_output=True)
        assert killed.stdout == b"ready\n"
        assert len(list(tmp_path.iterdir())) == 1
        subprocess.run(command, env=environment, check=True, capture_output=True)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.slow
    def test_fifty_cycles_leave_nothing(self, make: MakeSandbox) -> None:
        me = psutil.Process()

        def cycle() -> None:
            with make() as box:
                shell = box.shell()
                shell.run("sleep 100 &")
                box.exec("echo x >f")
                box.restore(box.snapshot())
                box.exec("sleep 100", timeout=0.01)

        cycle()  # what is made once per process
        cycle()
        probe = make()
        cycles = 4 if probe.backend == "docker" else 50
        temporary = Path(os.path.realpath(probe._state.folder.parent))  # type: ignore[attr-defined]
        probe.close()

        def held() -> dict[str, int]:
            return {
                "descriptors": me.num_fds(),
                "processes": len(me.children(recursive=True)),
                "threads": me.num_threads(),
                "folders": len(os.listdir(temporary)),
            }

        before = held()
        for _ in range(cycles):
            cycle()
        # What an earlier test left may go meanwhile, so fewer is no fault.
        assert {what: count for what, count in held().items() if count > before[what]} == {}


class TestShell:
    def test_state_lives_on(self, box: Sandbox) -> None:
        shell = box.shell()
        shell.run("mkdir d; cd d; x='a b'; f() { echo \"f $1\"; }; export Y=1")
        assert shell.run('pwd; echo "$x"; f 2; env | grep ^Y').stdout == f"{box.workspace}/d\na b\nf 2\nY=1\n"

    def test_exit_codes_and_last_status(self, box: Sandbox) -> None:
        shell = box.shell()
        assert shell.run("(exit 7)").exit_code == 7
        assert shell.run("echo $?").stdout == "7\n"

    def test_both_streams_in_order(self, box: Sandbox) -> None:
        assert box.shell().run("echo a; echo b >&2; echo c").stdout == "a\nb\nc\n"

    def test_stdin_is_empty_and_is_not_the_protocol(self, box: Sandbox) -> None:
        shell = box.shell()
        assert (
            shell.run('cat; read x; echo "<$x>"; bash; python3 -i -q </dev/stdin', timeout=20).timed_out
            is False
        )
        assert shell.run("echo still").stdout == "still\n"

    @pytest.mark.parametrize(
        "command",
        [
            "echo 'unbalanced",
            'echo "unbalanced',
            "cat <<EOF\nno end",
            "if true; then echo",
            "echo )",
            "echo $(",
            "f() {",
            "}",
            "case x in",
            "`",
            "\\",
            "# only a comment",
            "",
            "\n\n",
            "echo a &&",
            "!",
            "return 3",
            "break",
            "set -x",
            "set -v",
            "trap 'echo trapped' DEBUG ERR",
            "exec 3>&1 4>&1 5>&1",
            "eval 'eval \"'",
            "_ag x 0",
            "exec 61<&-; exec 61</dev/null",
            "echo 0123456789abcdef 0; echo '[timed out]'",
            "exec 62>&-",
            "exec 0</dev/zero",
            "PATH=/nowhere",
            "shopt -s extglob; set -o posix",
        ],
    )
    def test_odd_commands_do_not_disturb_the_next(self, box: Sandbox, command: str) -> None:
        shell = box.shell()
        shell.run("keep=yes")
        first = shell.run(command, timeout=10)
        assert not first.timed_out
        second = shell.run("echo $((6 * 7)) $keep; (exit 9)", timeout=10)
        assert "42 yes\n" in second.stdout
        assert second.exit_code == 9
        assert shell.run("true", timeout=10).exit_code == 0

    @pytest.mark.parametrize("command", ["exec 1>&-", "exec 1>&- 2>&-", "exec >/dev/null 2>&1"])
    def test_a_shell_that_closes_its_output_still_reports(self, box: Sandbox, command: str) -> None:
        shell = box.shell()
        assert not shell.run(command, timeout=10).timed_out
        assert shell.run("echo lost; (exit 6)", timeout=10).exit_code == 6
        assert shell.run("sleep 0.1; exit 8", timeout=10).exit_code == 8
        assert shell.run("echo back", timeout=10).stdout == "back\n"

    @pytest.mark.parametrize(
        ("command", "code"), [("exit 3", 3), ("kill -9 $$", 137), ("exec false", 1), ("set -e; false", 1)]
    )
    def test_a_shell_that_ended_starts_anew(self, box: Sandbox, command: str, code: int) -> None:
        shell = box.shell()
        shell.run("x=old; cd /")
        result = shell.run(f"echo last; {command}", timeout=10)
        assert (result.exit_code, result.stdout, result.timed_out) == (code, "last\n", False)
        assert shell.run('echo "[$x]"; pwd').stdout == f"[]\n{box.workspace}\n"

    def test_a_shell_killed_between_commands_starts_anew(self, box: Sandbox) -> None:
        shell = box.shell()
        shell.run("(sleep 0.1; kill -9 $$) & disown")
        time.sleep(0.5)
        assert shell.run("echo new").stdout == "new\n"

    @pytest.mark.parametrize(
        "command", ["{sleep}", "{sleep} & setsid nohup {sleep} & wait", "set -n; {sleep}\n"]
    )
    def test_time_out_kills_the_tree_and_says_so(self, box: Sandbox, sleeper: Sleeper, command: str) -> None:
        shell = box.shell()
        shell.run("x=old")
        result = shell.run("echo early\n" + command.format(sleep=sleeper.command) + "\n", timeout=0.5)
        if result.timed_out:
            assert result.stdout.startswith("early\n")
            assert "timed out after 0.5 s" in result.stdout
            assert result.exit_code == 137
        else:  # `set -n` stops bash from running anything, which shows at the next command
            assert shell.run("echo never", timeout=0.5).timed_out
        assert sleeper.alive() == 0
        assert shell.run('echo "[$x]"').stdout == "[]\n"

    def test_background_process_lives_between_commands(self, box: Sandbox, sleeper: Sleeper) -> None:
        shell = box.shell()
        assert not shell.run(f"{sleeper.command} &", timeout=10).timed_out
        shell.run("true")
        sleeper.wait_for(1)

    def test_long_and_odd_text(self, box: Sandbox) -> None:
        shell = box.shell()
        text = "'\"$`\\!é漢\ud800" * 20_000
        result = shell.run(f"cat >f <<'END'\n{text}\nEND\nwc -c <f", timeout=60)
        assert int(result.stdout) == len(text.encode(errors="replace")) + 1

    def test_nul_byte_fails_the_command(self, box: Sandbox) -> None:
        shell = box.shell()
        assert shell.run("echo \0").exit_code == 126
        assert shell.run("echo on").stdout == "on\n"

    def test_two_shells_are_apart(self, box: Sandbox) -> None:
        one, two = box.shell(), box.shell()
        one.run("x=1")
        assert two.run('echo "[$x]"').stdout == "[]\n"
        one.close()
        assert two.run("echo alive").stdout == "alive\n"

    def test_shell_outlives_the_thread_that_made_it(self, box: Sandbox) -> None:
        shells = []
        thread = threading.Thread(target=lambda: shells.append(box.shell()))
        thread.start()
        thread.join()
        assert shells[0].run("x=1").exit_code == 0
        time.sleep(0.1)
        assert shells[0].run("echo $x").stdout == "1\n"

    def test_many_commands(self, box: Sandbox) -> None:
        shell = box.shell()
        for number in range(300):
            assert shell.run(f"echo {number}").stdout == f"{number}\n"


class TestLimits:
    def test_every_limit_is_accounted_for(self, make: MakeSandbox) -> None:
        said = make().limits_in_force
        assert {
            "wall_s",
            "memory_mb",
            "processes",
            "cpu_s",
            "disk_mb",
            "output_bytes",
            "network",
            "files",
        } == set(said)
        assert all(said.values())
        assert "not limited" in make(limits=Limits(memory_mb=None)).limits_in_force["memory_mb"]

    def test_memory_bomb_ends(self, make: MakeSandbox) -> None:
        box = make(limits=Limits(memory_mb=200))
        bomb = "x = []\nwhile True: x.append(bytearray(10 << 20))"
        result = box.exec(["python3", "-c", bomb], timeout=60)
        assert not result.timed_out
        assert result.exit_code != 0
        assert box.exec("echo fine").stdout == "fine\n"

    def test_memory_below_the_limit_is_given(self, make: MakeSandbox) -> None:
        box = make(limits=Limits(memory_mb=400))
        assert box.exec(["python3", "-c", "x = bytearray(200 << 20)"]).exit_code == 0

    def test_file_size_bomb_ends(self, make: MakeSandbox) -> None:
        box = make(limits=Limits(disk_mb=2))
        result = box.exec("head -c 100M /dev/zero >big; echo $?; stat -c %s big")
        assert result.stdout == f"153\n{2 << 20}\n"

    def test_processor_bomb_ends(self, make: MakeSandbox) -> None:
        box = make(limits=Limits(cpu_s=1))
        result = box.exec("while :; do :; done", timeout=60)
        assert not result.timed_out
        assert result.exit_code in (128 + signal.SIGKILL, 128 + signal.SIGXCPU)

    @pytest.mark.slow
    def test_fork_bomb_ends_and_the_host_survives(self, make: MakeSandbox, sleeper: Sleeper) -> None:
        box = make(limits=Limits(processes=40))
        said = box.limits_in_force["processes"]
        if said.startswith("not enforced"):
            pytest.skip(f"{box.backend}: {said}")
        seen = []
        watch = threading.Timer(1.0, lambda: seen.append(sleeper.alive()))
        watch.start()
        result = box.exec(f"f() {{ {sleeper.command} & f | f & }}; f; sleep 30", timeout=2)
        watch.join()
        assert result.timed_out or result.exit_code != 0
        assert 0 < seen[0] <= 40
        assert sleeper.alive() == 0
        assert box.exec("echo fine").stdout == "fine\n"

    def test_wrong_limits_are_usage_errors(self) -> None:
        for wrong in (
            *({"memory_mb": 0}, {"memory_mb": 1.5}, {"processes": "9"}, {"cpu_s": True}),
            *({"wall_s": -1.0}, {"wall_s": 0}, {"wall_s": None}, {"wall_s": float("inf")}),
            *(
                {"wall_s": 1e7},
                {"cpu_s": 0.5},
                {"memory_mb": 512.0},
                {"output_bytes": 0},
                {"output_bytes": None},
            ),
        ):
            with pytest.raises(UsageError, match=next(iter(wrong))):
                Limits(**wrong)  # type: ignore[arg-type]


def test_given_python_runs_inside(make: MakeSandbox) -> None:
    box = make(binds=python_binds())
    result = box.exec([sys.executable, "-c", "import json, sys; print(sys.prefix)"])
    assert result.stdout.split() == [sys.prefix], result.stderr
