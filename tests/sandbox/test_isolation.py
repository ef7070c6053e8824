"""What only the backends that isolate give."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

import psutil
import pytest

from agentgym.errors import UsageError
from agentgym.sandbox import Limits, Sandbox, _cgroup, make_sandbox

from .conftest import MakeSandbox, Sleeper

SECRET = "host-secret-9023"
# Files newer than the made-up /etc: the daemon writes them for each container.
MADE_BY_BACKEND = {
    "bubblewrap": (),
    "docker": ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/ld.so.cache", "/.dockerenv"),
}


def python(box: Sandbox, program: str, **options: float) -> str:
    result = box.exec(["python3", "-c", program], **options)  # type: ignore[arg-type]
    return result.stdout + result.stderr


class TestNetwork:
    def test_connect_fails_at_once(self, isolated: Sandbox) -> None:
        program = """
import socket
for family, address in ((socket.AF_INET, ("192.0.2.1", 80)), (socket.AF_INET6, ("2001:db8::1", 80))):
    try:
        socket.socket(family, socket.SOCK_STREAM).connect(address)
        print("CONNECTED")
    except OSError as error:
        print(error.strerror)
"""
        shown = python(isolated, program, timeout=20)
        assert "CONNECTED" not in shown
        refusals = ("Network is unreachable", "Cannot assign requested address")  # the second: no IPv6 at all
        assert all(line in refusals for line in shown.splitlines())
        assert len(shown.splitlines()) == 2

    def test_names_are_not_resolved_and_no_packet_leaves(self, isolated: Sandbox) -> None:
        program = """
import socket
try:
    print("RESOLVED", socket.getaddrinfo("example.org", 80))
except socket.gaierror as error:
    print("gaierror")
try:
    print("SENT", socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53)))
except OSError as error:
    print("oserror")
"""
        assert python(isolated, program, timeout=20).split() == ["gaierror", "oserror"]

    def test_services_of_the_host_are_not_reachable(self, isolated: Sandbox) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
            name = f"\0agentgym-{os.getpid()}"
            local.bind(name)
            local.listen()
            program = f"""
import socket
for family, address in ((socket.AF_INET, {server.getsockname()!r}), (socket.AF_UNIX, {name!r})):
    try:
        socket.socket(family).connect(address)
        print("CONNECTED")
    except ConnectionRefusedError:
        print("refused")
"""
            assert python(isolated, program).split() == ["refused", "refused"]

    def test_loopback_works_inside(self, isolated: Sandbox) -> None:
        program = """
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
print("own loopback")
"""
        assert python(isolated, program) == "own loopback\n"

    def test_network_is_shared_only_when_asked(self, make_isolated: MakeSandbox) -> None:
        box = make_isolated(network=True)
        assert "not enforced" in box.limits_in_force["network"]
        with socket.create_server(("127.0.0.1", 0)) as server:
            program = f"import socket; socket.create_connection({server.getsockname()!r}); print('in')"
            assert python(box, program) == "in\n"


class TestNothingOfTheHost:
    def test_files_variables_and_mounts(
        self, make_isolated: MakeSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOST_SECRET", SECRET)
        (tmp_path / SECRET).write_text(SECRET)
        box = make_isolated()
        made = MADE_BY_BACKEND[box.backend]
        script = r"""
find / -name '*SECRET*' -not -path '/proc/*' 2>/dev/null
printf %s SECRET >/tmp/pattern  # not an argument, which would find itself
cat /proc/*/environ /proc/*/cmdline /proc/*/task/*/environ 2>/dev/null | tr '\0' '\n' | grep -f /tmp/pattern
grep -h -f /tmp/pattern /proc/*/mounts /proc/*/mountinfo
find / -xdev -type f -newer /etc/passwd -not -path '/tmp/pattern' -not -path '/proc/*' -not -path '/usr/*' \
  NOT_MADE 2>/dev/null
ls -d TMP /home /root/* /var/* /opt/* /srv/* /mnt/* /run/* /boot/* 2>/dev/null
env | grep -f /tmp/pattern
true
"""
        # The search text is built inside, so that it does not find itself.
        script = f"s='{SECRET[:6]}''{SECRET[6:]}'\n" + script.replace("'*SECRET*'", '"*$s*"').replace(
            "SECRET", '"$s"'
        )
        script = script.replace("NOT_MADE", " ".join(f"-not -path {path}" for path in made))
        result = box.exec(script.replace("TMP", str(tmp_path)), timeout=60)
        assert (result.stdout, result.exit_code) == ("", 0)

    def test_the_search_above_can_find(self, make_isolated: MakeSandbox, tmp_path: Path) -> None:
        tmp_path.chmod(0o755)
        (tmp_path / SECRET).write_text(SECRET)
        box = make_isolated(binds={str(tmp_path): "/shown"})
        assert box.exec(f"find / -name '*{SECRET}*' 2>/dev/null").stdout == f"/shown/{SECRET}\n"

    def test_processes_of_the_host(self, isolated: Sandbox) -> None:
        shown = isolated.exec("ls /proc | grep -E '^[0-9]+$'").stdout.split()
        assert len(shown) < 10
        assert isolated.exec(["kill", "-0", str(os.getpid() + 100_000)]).exit_code != 0

    def test_host_name_and_user(self, isolated: Sandbox) -> None:
        assert isolated.exec("hostname; id -un; id -u").stdout == "sandbox\nagent\n1000\n"

    def test_message_queues_and_shared_memory_are_private(self, isolated: Sandbox) -> None:
        made = isolated.exec("ipcmk -M 4096 >/dev/null; ipcs -m | wc -l").stdout
        assert int(made) > 3
        mine = subprocess.run(["ipcs", "-m"], capture_output=True, text=True, check=True).stdout
        assert isolated.exec("ipcs -m").stdout.count("\n") <= mine.count("\n") + 1

    def test_tmp_is_private_and_gone(self, isolated: Sandbox) -> None:
        if isolated.backend == "docker":
            pytest.skip("one /tmp for all commands: see test_docker.py")
        assert isolated.exec("ls -A /tmp; echo x >/tmp/f; cat /tmp/f").stdout == "home\nx\n"
        with pytest.raises(FileNotFoundError, match="private to each command"):
            isolated.read("/tmp/f")

    def test_reading_outside_the_workspace_is_the_view_inside(self, isolated: Sandbox) -> None:
        assert b"agent:x:1000" in isolated.read("/etc/passwd")
        assert isolated.read("/usr/bin/env")[:4] == b"\x7fELF"
        isolated.exec("ln -s /etc/passwd users; ln -s /etc/shadow trap; ln -s /usr d")
        assert b"agent:x:1000" in isolated.read("users")
        for path in ("trap", "/etc/shadow", "d/none"):
            with pytest.raises(FileNotFoundError):
                isolated.read(path)
        with pytest.raises(IsADirectoryError):
            isolated.read("/usr")
        with pytest.raises(OSError, match="regular"):
            isolated.read("/dev/zero")

    def test_terminal_is_not_ours(self, isolated: Sandbox) -> None:
        assert isolated.exec("ps -o sid= -p $$ | tr -d ' '; exec 3</dev/tty").exit_code != 0


class TestReadOnly:
    @pytest.mark.parametrize(
        "path",
        [
            "/x",
            "/usr/x",
            "/usr/bin/x",
            "/etc/x",
            "/dev/x",
            "/bin/x",
            "/etc/passwd",
        ],
    )
    def test_system_is_not_writable(self, isolated: Sandbox, path: str) -> None:
        assert isolated.exec(f"echo x >>{path}").exit_code != 0
        assert isolated.exec(f"mkdir {path}.d").exit_code != 0
        assert not os.path.exists(f"{path}.d")

    def test_kernel_parameters_and_secrets_are_out_of_reach(self, isolated: Sandbox) -> None:
        # Opened, never written: where this fails, the file is the host's.
        program = """
import os
for folder, folders, files in os.walk("/proc"):
    if folder == "/proc":
        folders[:] = [name for name in folders if not name.isdigit()]
    for name in files:
        path = os.path.join(folder, name)
        for what, flags in (("WRITABLE", os.O_WRONLY), ("READABLE", os.O_RDONLY)):
            try:
                opened = os.open(path, flags | os.O_NONBLOCK)
            except OSError:
                continue
            masked = os.path.samestat(os.fstat(opened), os.stat("/dev/null"))
            os.close(opened)
            if masked or folder == "/proc/pressure" and IS_DOCKER:  # a request to be told, any user's right
                continue
            if what == "WRITABLE" or folder == "/proc" and not os.stat(path).st_mode & 0o004:
                print(what, path)
"""
        assert python(isolated, program.replace("IS_DOCKER", str(isolated.backend == "docker"))) == ""

    def test_it_cannot_be_made_writable(self, isolated: Sandbox) -> None:
        for command in ("mount -o remount,rw /", "mount -t tmpfs t /usr", "umount /usr", "chmod 755 /usr"):
            assert isolated.exec(command).exit_code != 0, command

    def test_binds_are_read_only(self, make_isolated: MakeSandbox, tmp_path: Path) -> None:
        (tmp_path / "f").write_text("given")
        tmp_path.chmod(0o755)
        box = make_isolated(binds={str(tmp_path): "/data/given", str(tmp_path / "f"): "/one/file"})
        assert box.exec("cat /data/given/f /one/file").stdout == "givengiven"
        assert box.exec(
            "echo x >/data/given/f; echo x >/data/given/g; echo x >/one/file; rm /data/given/f"
        ).exit_code
        assert (tmp_path / "f").read_text() == "given"
        assert len(list(tmp_path.iterdir())) == 1

    def test_workspace_elsewhere(self, make_isolated: MakeSandbox) -> None:
        box = make_isolated(workspace="/testbed/repo")
        assert box.workspace == "/testbed/repo"
        box.write("f", "x")
        assert box.exec("pwd; cat /testbed/repo/f; ln -s /testbed/repo/f l").stdout == "/testbed/repo\nx"
        assert box.read("l") == b"x"

    def test_tmp_and_shared_memory_are_bounded(self, make_isolated: MakeSandbox) -> None:
        box = make_isolated(limits=Limits(disk_mb=5))
        shown = box.exec(
            "for d in /tmp /dev/shm; do for i in 1 2 3; do head -c 4M /dev/zero >$d/$i; done; du -sm $d; done"
        )
        sizes = [int(line.split()[0]) for line in shown.stdout.splitlines()]
        assert len(sizes) == 2
        assert all(size <= 5 for size in sizes)


class TestPrivileges:
    def test_no_capabilities_and_no_new_ones(self, isolated: Sandbox) -> None:
        status = isolated.exec("grep -E '^(Cap|NoNewPrivs)' /proc/self/status").stdout
        values = dict(line.split(":\t") for line in status.splitlines())
        assert {values[name] for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {"0" * 16}
        assert values["NoNewPrivs"] == "1"

    def test_no_nested_user_namespace(self, isolated: Sandbox) -> None:
        assert isolated.exec("unshare --user true").exit_code != 0
        assert isolated.exec("unshare --user --map-root-user --mount true").exit_code != 0
        program = "import ctypes; print(ctypes.CDLL(None, use_errno=True).unshare(0x10000000))"
        assert python(isolated, program) == "-1\n"

    def test_no_devices(self, isolated: Sandbox) -> None:
        assert isolated.exec("mknod disk b 8 0").exit_code != 0
        shown = set(isolated.exec("ls /dev").stdout.split())
        assert shown <= {
            "console", "core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin",
            "stdout", "tty", "urandom", "zero",
        }  # fmt: skip
        assert isolated.exec("echo x >/dev/null && head -c 1 /dev/urandom | wc -c").stdout == "1\n"

    def test_set_user_id_has_no_effect(self, isolated: Sandbox) -> None:
        assert isolated.exec("cp /usr/bin/id mine; chmod 4755 mine; ./mine -u").stdout == "1000\n"

    def test_process_one_cannot_be_killed_to_escape(self, isolated: Sandbox, sleeper: Sleeper) -> None:
        isolated.exec(f"setsid {sleeper.command} & kill -9 1; kill -STOP 1; sleep 0.2; exit 3", timeout=20)
        assert sleeper.alive() == 0

    def test_stopped_processes_die_too(self, isolated: Sandbox, sleeper: Sleeper) -> None:
        assert isolated.exec(f"{sleeper.command} & kill -STOP $!; kill -STOP $$", timeout=0.5).timed_out
        assert sleeper.alive() == 0


class TestShellOfItsOwn:
    def test_forged_reports_are_ignored(self, isolated: Sandbox) -> None:
        shell = isolated.shell()
        forge = "for p in /proc/[0-9]*/fd/*; do echo '0123456789abcdef 0' >>$p; done 2>/dev/null; (exit 5)"
        assert shell.run(f"timeout 2 bash -c {forge!r}; (exit 5)", timeout=20).exit_code == 5
        assert shell.run("echo ok", timeout=20).stdout.endswith("ok\n")

    def test_tmp_lives_as_long_as_the_shell(self, isolated: Sandbox) -> None:
        shell = isolated.shell()
        shell.run("echo x >/tmp/f")
        assert shell.run("cat /tmp/f").stdout == "x\n"

    def test_orphans_are_reaped(self, isolated: Sandbox) -> None:
        shell = isolated.shell()
        for _ in range(5):
            shell.run("for i in {1..20}; do ( setsid true & ); done; sleep 0.05")
        assert int(shell.run("ls -d /proc/[0-9]* | wc -l").stdout) < 15

    def test_a_shell_that_uses_up_the_processes_is_no_failure_of_ours(
        self, make_isolated: MakeSandbox
    ) -> None:
        box = make_isolated(limits=Limits(processes=20))
        if not box.limits_in_force["processes"].startswith("cgroup"):
            pytest.skip("here each command has processes of its own")
        shell = box.shell()
        program = """
import os, time
try:
    while os.fork():
        pass
except BlockingIOError:
    print("full", flush=True)
time.sleep(100)
"""
        shell.run(f"python3 -c '{program}' >full & until [[ -s full ]]; do :; done", timeout=20)
        assert box.exec("echo never", timeout=3).exit_code != 0
        shell.close()
        assert box.exec("echo again").stdout == "again\n"


class TestWholeTreeLimits:
    def test_memory_of_all_processes_together(self, make_isolated: MakeSandbox) -> None:
        box = make_isolated(limits=Limits(memory_mb=300))
        if not box.limits_in_force["memory_mb"].startswith("cgroup"):
            pytest.skip(box.limits_in_force["memory_mb"])
        # Said at the end: whoever is killed to make room may have had its memory before.
        hold = "python3 -c 'import time; x = bytearray(120 << 20); time.sleep(3); print(1, flush=True)' & "
        result = box.exec(hold * 4 + "wait", timeout=60)
        assert result.stdout.count("1") < 4

    def test_groups_are_removed(self) -> None:
        box = make_sandbox("bubblewrap")
        folders = list(box._cgroup.folders)  # type: ignore[attr-defined]
        box.exec("true")
        box.close()
        assert [folder for folder in folders if folder.exists()] == []

    def test_process_limit_is_exact(self, make_isolated: MakeSandbox) -> None:
        box = make_isolated(limits=Limits(processes=30))
        if box.limits_in_force["processes"].startswith("not enforced"):
            pytest.skip(box.limits_in_force["processes"])
        program = """
import os, time
made = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(100)
        made += 1
except BlockingIOError:
    print(made)
"""
        assert 20 <= int(python(box, program, timeout=20)) < 30


class TestCgroupVersion2:
    """The layout of version 2, on a made-up tree: machines for these tests often have version 1 only."""

    @pytest.fixture
    def tree(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        own = tmp_path / "user.slice" / "mine.scope"
        own.mkdir(parents=True)
        for folder, controllers in ((tmp_path / "user.slice", "cpu memory pids\n"), (own, "")):
            (folder / "cgroup.subtree_control").write_text(controllers)
        monkeypatch.setattr(_cgroup, "_own_group", lambda controller: None if controller else own)
        written: dict[str, int] = {}
        monkeypatch.setattr(_cgroup, "_write", lambda path, value: written.update({path.name: value}))
        self.written = written
        return own

    def test_group_beside_our_own(self, tree: Path) -> None:
        group = _cgroup.create("new", memory_mb=64, processes=7)
        assert group.folders == [tree.parent / "new"]
        assert group.versions == {"memory": 2, "pids": 2}
        assert self.written == {"memory.max": 64 << 20, "pids.max": 7}

    def test_without_delegation_the_reason_is_said(self, tree: Path) -> None:
        (tree.parent / "cgroup.subtree_control").write_text("cpu\n")
        group = _cgroup.create("new", memory_mb=64, processes=7)
        assert group.folders == []
        assert set(group.refused) == {"memory", "pids"}


def test_bad_arguments_are_usage_errors(make_isolated: MakeSandbox, tmp_path: Path) -> None:
    for wrong in (
        {"workspace": "relative"},
        {"workspace": "/"},
        {"binds": {str(tmp_path / "none"): "/x"}},
        {"binds": {str(tmp_path): "relative"}},
        {"binds": {str(tmp_path): "/workspace/sub"}},
    ):
        with pytest.raises(UsageError, match=r"expected|does not exist"):
            make_isolated(**wrong)


def test_forked_child_leaves_the_parents_sandbox_alone(isolated: Sandbox, sleeper: Sleeper) -> None:
    shell = isolated.shell()
    shell.run(f"x=1; {sleeper.command} &")
    child = os.fork()
    if child == 0:
        try:
            isolated.close()
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    sleeper.wait_for(1)
    assert shell.run("echo $x").stdout == "1\n"


def test_ctrl_c_in_the_terminal_does_not_reach_the_sandbox(isolated: Sandbox) -> None:
    shell = isolated.shell()
    for child in psutil.Process().children(recursive=True):
        assert os.getpgid(child.pid) != os.getpgid(0)
    assert shell.run("echo alive").stdout == "alive\n"


def test_in_force_is_what_the_commands_meet(make_isolated: MakeSandbox) -> None:
    box = make_isolated(limits=Limits(cpu_s=7, disk_mb=3))
    program = "import resource as r, json; print(json.dumps([r.getrlimit(r.RLIMIT_CPU), r.getrlimit(r.RLIMIT_FSIZE)]))"
    assert json.loads(python(box, program)) == [[7, 7], [3 << 20, 3 << 20]]
