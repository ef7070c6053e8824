"""What is Docker's own: images, leftovers, and commands that get in the way of process 1."""

from __future__ import annotations

import io
import os
import pickle
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentgym.errors import MissingDependency, SandboxError, TaskError, UsageError
from agentgym.sandbox import Limits, Sandbox, TreeError, make_sandbox

from .conftest import Sleeper
from .dockerd import free_port
from .registry import registry

docker = pytest.importorskip("docker", reason="the package docker is not installed")

from agentgym.sandbox import _docker_container as container_module  # noqa: E402
from agentgym.sandbox import _docker_leftovers as leftovers  # noqa: E402
from agentgym.sandbox._docker_client import connect  # noqa: E402
from agentgym.sandbox._docker_images import host_image  # noqa: E402
from agentgym.sandbox._docker_job import Frames, Remarks  # noqa: E402
from agentgym.sandbox._docker_tar import unpack  # noqa: E402
from agentgym.sandbox.docker import image_id, image_is_here  # noqa: E402

MakeImageSandbox = Callable[..., Sandbox]
# Programs for the images below, shown from this machine.
BINDS = {path: path for path in ("/usr", "/etc/ld.so.cache", "/etc/alternatives")}


@pytest.fixture(scope="module")
def image(daemon: str) -> str:
    """An image with a repository at /testbed, for root, its programs not included."""
    client = connect()
    base = host_image(client, 1000, 1000)
    made = client.create_container(base, command=["none"])["Id"]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, text in (
            ("testbed/a.py", b"x = 1\n"),
            ("testbed/pkg/b.py", b""),
            ("opt/tool", b"old\n"),
            ("root/.x", b""),
        ):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(text), 0o644
            archive.addfile(entry, io.BytesIO(text))
    client.put_archive(made, "/", buffer.getvalue())
    changes = ["ENV GREETING=hello", "WORKDIR /testbed"]
    client.commit(made, repository="agentgym-test/repo", tag="1", changes=changes)
    client.remove_container(made)
    return "agentgym-test/repo:1"


@pytest.fixture
def make_image(image: str) -> Iterator[MakeImageSandbox]:
    made: list[Sandbox] = []

    def make(name: str = image, **options: Any) -> Sandbox:
        made.append(make_sandbox("docker", image=name, **{"binds": BINDS, **options}))
        return made[-1]

    yield make
    for box in made:
        box.close()


@pytest.fixture(scope="module")
def shared(image: str) -> Iterator[Sandbox]:
    """One sandbox for tests that do not get in each other's way."""
    with make_sandbox("docker", image=image, binds=BINDS) as box:
        yield box


def ours(kind: str) -> set[str]:
    client = connect()
    list_them = client.containers if kind == "containers" else client.images
    return {found["Id"] for found in list_them(all=True, filters={"label": leftovers.SESSION})}


def wait_until(happened: Callable[[], bool], seconds: float = 30.0) -> None:
    """The bound only keeps a broken test from hanging."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class TestImage:
    def test_its_files_variables_and_user(self, shared: Sandbox) -> None:
        assert shared.workspace == "/testbed"
        shown = shared.exec("pwd; cat a.py; echo $GREETING; id -u; stat -c %U pkg")
        assert shown.stdout == "/testbed\nx = 1\nhello\n0\nroot\n"
        assert shared.read("a.py") == b"x = 1\n"
        assert shared.read("/opt/tool") == b"old\n"

    def test_root_without_rights(self, shared: Sandbox) -> None:
        status = shared.exec("grep -E '^(Cap|NoNewPrivs)' /proc/self/status").stdout
        values = dict(line.split(":\t") for line in status.splitlines())
        assert {values[name] for name in values if name.startswith("Cap")} == {"0" * 16}
        assert values["NoNewPrivs"] == "1"
        assert shared.exec("chown 1000 a.py; unshare --net true; mount -t tmpfs t /mnt").exit_code != 0
        assert shared.exec("ls /sys/class/net").stdout == "lo\n"

    def test_files_in_and_out(self, shared: Sandbox, tmp_path: Path) -> None:
        shared.write("new dir/f\n.txt", "text")
        assert shared.exec(["cat", "new dir/f\n.txt"]).stdout == "text"
        (tmp_path / "up" / "sub").mkdir(parents=True)
        (tmp_path / "up" / "sub" / "run").write_text("#!/bin/bash\necho ran\n")
        (tmp_path / "up" / "sub" / "run").chmod(0o755)
        (tmp_path / "up" / "link").symlink_to("sub/run")
        shared.upload(tmp_path / "up", "up")
        shared.upload(tmp_path / "up" / "sub" / "run", "other/name")
        shared.upload(tmp_path / "up" / "sub" / "run", "other/")
        assert (
            shared.exec("up/link; other/name; other/run; stat -c '%u %a' up/sub/run").stdout
            == "ran\n" * 3 + "0 755\n"
        )
        shared.download(".", tmp_path / "down", skip=lambda path: path == "other")
        names = {str(path.relative_to(tmp_path / "down")) for path in (tmp_path / "down").rglob("*")}
        assert {"a.py", "pkg/b.py", "up/sub/run", "up/link", "new dir/f\n.txt"} <= names
        assert not any(name.startswith("other") for name in names)
        assert os.readlink(tmp_path / "down" / "up" / "link") == "sub/run"
        assert os.access(tmp_path / "down" / "up" / "sub" / "run", os.X_OK)

    def test_files_outside_the_workspace_are_not_written(self, shared: Sandbox, tmp_path: Path) -> None:
        shared.exec("ln -s /opt out; ln -s /opt/tool tool")
        (tmp_path / "f").write_text("changed")
        for path in ("/opt/tool", "../opt/tool", "out/tool", "tool", "out/new"):
            with pytest.raises(PermissionError):
                shared.write(path, "changed")
            with pytest.raises(PermissionError):
                shared.upload(tmp_path / "f", path)
            with pytest.raises(PermissionError):
                shared.download(path, tmp_path / "got")
        assert shared.read("/opt/tool") == b"old\n"

    def test_errors_are_those_of_open(self, shared: Sandbox, tmp_path: Path) -> None:
        for wrong, path in ((FileNotFoundError, "none"), (IsADirectoryError, "pkg")):
            with pytest.raises(wrong):
                shared.read(path)
        with pytest.raises(IsADirectoryError):
            shared.write("pkg", "")
        with pytest.raises(NotADirectoryError):
            shared.write("a.py/b", "")
        with pytest.raises(FileNotFoundError):
            shared.download("none", tmp_path)
        with pytest.raises(FileNotFoundError):
            shared.upload(tmp_path / "none")
        with pytest.raises(OSError, match="larger than 3 bytes"):
            shared.read("a.py", most=3)

    def test_a_download_stops_at_its_bounds(self, shared: Sandbox, tmp_path: Path) -> None:
        shared.exec("mkdir many; touch many/{1..9}; truncate -s 900M many/hole")
        for bounds, said in (
            ({"most_entries": 5}, "more than 5 files"),
            ({"most_bytes": 1 << 20}, "bytes in files"),
        ):
            with pytest.raises(TreeError, match=said):
                shared.download("many", tmp_path / "got", **bounds)
        assert not (tmp_path / "got").exists()
        shared.exec("rm -r many")

    @pytest.mark.slow
    def test_a_snapshot_is_of_all_files(self, make_image: MakeImageSandbox, tmp_path: Path) -> None:
        box = make_image()
        box.exec(
            "mkdir -p a/d; echo 1 >a/f; ln a/f hard; ln -s a/f l; mkfifo p; chmod 2750 a; chmod 400 hard; rm a.py"
        )
        box.exec("echo new >/opt/tool; touch -d 2001-02-03 a")
        look = "find . /opt -printf '%p %M %U %n %T@ %l\\n' | sort; cat l /opt/tool; [ a/f -ef hard ] && echo one"
        box.exec("find . /opt -exec touch -h -d 2010-01-01 {} +")  # whole seconds
        before = box.exec(look).stdout
        assert before.endswith("1\nnew\none\n")
        taken = box.snapshot()
        shell = box.shell()
        shell.run("x=1; rm -rf ./*; echo z >/opt/tool")
        copied = pickle.loads(pickle.dumps(taken))
        box.restore(copied)
        assert box.exec(look).stdout == before
        assert shell.run('echo "[$x]"').stdout == "[]\n"
        other = make_image()
        other.restore(taken)
        box.close()
        assert other.exec(look).stdout == before

    @pytest.mark.slow
    def test_images_of_snapshots_go_with_them(self, make_image: MakeImageSandbox) -> None:
        before = ours("images")
        box = make_image()
        first = box.snapshot()
        box.restore(first)
        second = box.snapshot()
        del first  # what runs is made from it, and so is the second
        assert len(ours("images") - before) == 2
        box.close()
        assert len(ours("images") - before) == 2
        del second
        assert ours("images") == before

    def test_a_workspace_the_image_lacks_is_made(self, make_image: MakeImageSandbox) -> None:
        box = make_image(workspace="/new/place")
        box.write("f", "x")
        assert box.exec("pwd; cat f").stdout == "/new/place\nx"

    def test_a_workspace_that_cannot_be_written(self, make_image: MakeImageSandbox, daemon: str) -> None:
        client = connect()
        made = client.create_container("agentgym-test/repo:1", command=["none"])["Id"]
        client.commit(made, repository="agentgym-test/repo", tag="nobody", changes=["USER 65534"])
        client.remove_container(made)
        with pytest.raises(TaskError, match="user 65534, without capabilities, cannot write to /testbed"):
            make_image("agentgym-test/repo:nobody")
        assert (
            make_image("agentgym-test/repo:nobody", workspace="/tmp/mine").exec("id -u >f; cat f").stdout
            == "65534\n"
        )

    def test_an_image_without_bash(self, image: str) -> None:
        with pytest.raises(TaskError, match="no bash"):
            make_sandbox("docker", image=image)

    def test_the_layer_is_said_to_be_unbounded(self, shared: Sandbox) -> None:
        assert "not bounded" in shared.limits_in_force["disk_mb"]

    def test_a_wrong_snapshot_is_a_usage_error(self, shared: Sandbox) -> None:
        with make_sandbox("docker") as other:
            for one, wrong in ((shared, other.snapshot()), (shared, "yesterday"), (other, object())):
                with pytest.raises(UsageError, match="snapshot"):
                    one.restore(wrong)


class TestPull:
    def test_from_a_registry(self, daemon: str) -> None:
        with registry("team/tool", {"bin/README": b"no shell here"}) as address:
            with pytest.raises(TaskError, match="no bash"):  # so it was pulled
                make_sandbox("docker", image=f"{address}/team/tool")
            with pytest.raises(
                TaskError, match="team/none:1 is not on this machine and cannot be pulled: manifest"
            ):
                make_sandbox("docker", image=f"{address}/team/none:1")

    def test_no_registry(self, daemon: str) -> None:
        name = f"127.0.0.1:{free_port()}/team/tool:1"
        with pytest.raises(
            SandboxError, match=rf"the image {name} is not on this machine.*connection refused"
        ) as caught:
            make_sandbox("docker", image=name)
        assert not isinstance(caught.value, UsageError)
        assert "\n" not in str(caught.value)

    def test_no_name(self, daemon: str) -> None:
        for ask in (lambda name: make_sandbox("docker", image=name), image_is_here, image_id):
            with pytest.raises(TaskError, match="expected a name"):
                ask("No Such Name")

    def test_whether_an_image_is_here(self, daemon: str, image: str) -> None:
        assert image_is_here("agentgym-test/repo:1")
        assert not image_is_here(f"127.0.0.1:{free_port()}/team/tool:1")

    def test_a_name_and_what_it_means(self, daemon: str, image: str) -> None:
        client = connect()
        first = image_id("agentgym-test/repo:1")
        client.tag(first, "agentgym-test/moving", "1")
        assert image_id("agentgym-test/moving:1") == first
        client.tag(host_image(client, 1000, 1000), "agentgym-test/moving", "1")
        assert image_id("agentgym-test/moving:1") != first
        client.remove_image("agentgym-test/moving:1")


class TestReach:
    def test_a_daemon_elsewhere(self, daemon: str, image: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DOCKER_HOST", daemon)  # over TCP: for all we know on another machine
        with pytest.raises(UsageError, match="give an image"):
            make_sandbox("docker")
        with pytest.raises(UsageError, match="binds: the Docker daemon is on another machine"):
            make_sandbox("docker", image=image, binds=BINDS)

    def test_commands_over_tcp(self, daemon: str, image: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DOCKER_HOST", daemon)
        monkeypatch.setattr(
            "agentgym.sandbox._docker_base.daemon_is_here", lambda: True
        )  # the programs' sake
        with make_sandbox("docker", image=image, binds=BINDS) as box:
            assert box.exec("cat; exit 3", stdin=b"in").stdout == "in"
            assert box.shell().run("echo shell").stdout == "shell\n"

    def test_nobody_answers(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        for address in (f"unix://{tmp_path}/none.sock", f"tcp://127.0.0.1:{free_port()}"):
            monkeypatch.setenv("DOCKER_HOST", address)
            with pytest.raises(
                SandboxError, match=f"no Docker daemon answers at {address} .*DOCKER_HOST"
            ) as caught:
                make_sandbox("docker", image="any")
            assert "\n" not in str(caught.value)

    @pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
    def test_no_permission(self, daemon: str) -> None:
        socket = Path(os.environ["DOCKER_HOST"].removeprefix("unix://"))
        mode = socket.parent.stat().st_mode
        connect()  # what it imports, nobody may not read
        socket.parent.chmod(0o755)
        os.seteuid(65534)
        try:
            with pytest.raises(SandboxError, match="this user may not use the Docker daemon's socket"):
                connect()
        finally:
            os.seteuid(0)
            socket.parent.chmod(mode)

    def test_other_kinds_of_address(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DOCKER_HOST", "ssh://somebody@somewhere")
        with pytest.raises(UsageError, match=r"expected unix:///path or tcp://host:port"):
            make_sandbox("docker", image="any")

    def test_without_the_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "docker", None)
        with pytest.raises(MissingDependency, match=r"pip install 'agentgym-suite\[docker\]'"):
            make_sandbox("docker")

    def test_images_are_docker_s_only(self) -> None:
        with pytest.raises(UsageError, match="backend='docker'"):
            make_sandbox("bubblewrap", image="any")

    def test_binds_that_commands_could_not_read(self, daemon: str, tmp_path: Path) -> None:
        tmp_path.chmod(0o700)
        if os.getuid() == 0:
            with pytest.raises(UsageError, match=r"chmod a\+rX"):
                make_sandbox("docker", binds={str(tmp_path): "/data"})


KILLED = """
import os, time
from agentgym.sandbox import make_sandbox
box = make_sandbox("docker", **OPTIONS)
box.shell().run(COMMAND + " &")
kept = box.snapshot()
if FORK and os.fork() == 0:
    time.sleep(60)
    os._exit(0)
os.write(1, b"ready\\n")
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["host", "image", "fork"])
def test_nothing_is_left_of_a_killed_worker(daemon: str, image: str, sleeper: Sleeper, kind: str) -> None:
    before = ours("containers"), ours("images")
    options = {"image": image, "binds": BINDS} if kind == "image" else {}
    program = f"OPTIONS, COMMAND, FORK = {options!r}, {sleeper.command!r}, {kind == 'fork'}\n{KILLED}"
    worker = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
    assert worker.stdout is not None
    try:
        assert worker.stdout.read(6) == b"ready\n"
        assert len(ours("containers") - before[0]) == 1
        assert len(ours("images") - before[1]) == (kind == "image")
        worker.kill()
        worker.wait()
        began = time.monotonic()
        sleeper.wait_for(0)
        wait_until(lambda: (ours("containers"), ours("images")) == before)
        print(f"gone {time.monotonic() - began:.1f} s after the kill")
    finally:
        worker.stdout.close()
        try:
            os.killpg(worker.pid, signal.SIGKILL)  # the forked child
        except ProcessLookupError:
            pass


class TestReaper:
    """Only what belongs to the dead is removed."""

    def left(self, **marks: str) -> str:
        client = connect()
        labels = {**leftovers.labels(), **marks}
        return str(
            client.create_container(host_image(client, 1000, 1000), command=["none"], labels=labels)["Id"]
        )

    def owner(self, pid: int, started: str) -> str:
        return f"{leftovers._machine()} {pid} {started}"

    def test_of_dead_and_living_owners(self, daemon: str) -> None:
        gone = subprocess.Popen(["true"])
        gone.wait()
        mine = leftovers._started(os.getpid())
        far = "0000 pid:[1] 1 1"
        abandoned = [
            self.left(**{leftovers._OWNER: self.owner(gone.pid, mine)}),
            self.left(**{leftovers._OWNER: self.owner(os.getpid(), "1")}),  # the number was given anew
            self.left(**{leftovers._OWNER: far, leftovers._EXPIRES: "1"}),
        ]
        kept = [self.left(), self.left(**{leftovers._OWNER: far})]
        client = connect()
        leftovers._remove(client, leftovers._is_abandoned)
        found = ours("containers")
        assert not found & set(abandoned)
        assert found >= set(kept)
        for container in kept:
            client.remove_container(container)

    @pytest.mark.slow
    def test_it_runs_at_the_next_start(self, daemon: str) -> None:
        abandoned = self.left(**{leftovers._OWNER: self.owner(os.getpid(), "1")})
        program = "from agentgym.sandbox import make_sandbox\nmake_sandbox('docker').close()"
        subprocess.run([sys.executable, "-c", program], check=True)
        assert abandoned not in ours("containers")


class TestProcessOne:
    """Commands that try to live on, or to get in the way of their end."""

    @pytest.fixture
    def box(self, daemon: str) -> Iterator[Sandbox]:
        with make_sandbox("docker") as box:
            yield box

    def test_a_process_without_mark_and_parents(self, box: Sandbox, sleeper: Sleeper) -> None:
        escape = f"(setsid env -i {sleeper.command} >/dev/null 2>&1 &)"
        assert box.exec(f"{escape}; sleep 0.1").exit_code == 0
        assert sleeper.alive() == 0
        shell = box.shell()
        shell.run("x=1")
        box.exec(f"{escape}; sleep 0.1")
        sleeper.wait_for(1)  # while a shell is open, it might be the shell's
        assert shell.run("echo $x").stdout == "1\n"
        shell.close()
        assert sleeper.alive() == 0

    def test_what_holds_the_output_open_does_not_hold_us(self, box: Sandbox, sleeper: Sleeper) -> None:
        result = box.exec(
            f"echo early; setsid {sleeper.command} & setsid {sleeper.command} & exit 7", timeout=20
        )
        assert (result.exit_code, result.stdout, result.timed_out) == (7, "early\n", False)
        assert sleeper.alive() == 0

    def test_a_command_that_kills_its_wrapper(self, box: Sandbox, sleeper: Sleeper) -> None:
        result = box.exec(f"{sleeper.command} & kill -9 $PPID; sleep 30", timeout=20)
        assert (result.exit_code, result.timed_out) == (137, False)
        assert sleeper.alive() == 0

    @pytest.mark.slow
    def test_a_thief_of_orders(self, box: Sandbox, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(container_module, "_PATIENCE_S", 1.0)
        box.write("kept", "x")
        thieves = "for i in 1 2 3 4 5 6; do cat /proc/1/fd/0 >/dev/null & done; "
        result = box.exec(f"{thieves}{sleeper.command}", timeout=0.5)
        assert (result.timed_out, result.exit_code) == (True, 137)
        assert sleeper.alive() == 0
        assert box.exec("cat kept").stdout == "x"

    def test_a_container_removed_by_somebody(self, box: Sandbox) -> None:
        shell = box.shell()
        box._client.remove_container(box._container.id, force=True)  # type: ignore[attr-defined]
        for use in (lambda: box.exec("true"), lambda: shell.run("true")):
            with pytest.raises(SandboxError, match="No such container"):
                use()
        box.close()

    def test_tmp_lasts_until_a_restore(self, box: Sandbox) -> None:
        taken = box.snapshot()
        box.exec("mkdir -p /tmp/d; echo x | tee /tmp/d/f /tmp/home/f >/dev/null")
        assert box.read("/tmp/d/f") == b"x\n"
        box.restore(taken)
        assert box.exec("ls -A /tmp /tmp/home").stdout == "/tmp:\nhome\n\n/tmp/home:\n"

    def test_limits_of_the_container(self, daemon: str) -> None:
        with make_sandbox("docker", limits=Limits(memory_mb=None, processes=None, disk_mb=None)) as box:
            said = box.limits_in_force
            assert all(said[name].startswith("not limited") for name in ("memory_mb", "processes", "disk_mb"))
            assert (
                box.exec("cat /sys/fs/cgroup/pids/pids.max || cat /sys/fs/cgroup/pids.max").stdout == "max\n"
            )


@pytest.mark.slow
def test_several_at_once(daemon: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work(number: int) -> str:
        with make_sandbox("docker") as box:
            box.write("n", str(number))
            return box.exec("cat n").stdout

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == ["0", "1", "2", "3"]


class TestStreams:
    def test_frames_in_any_pieces(self) -> None:
        data = b"\1\0\0\0\0\0\0\3abc" + b"\2\0\0\0\0\0\0\0" + b"\2\0\0\0\0\0\1\0" + b"x" * 256
        for size in (1, 3, 8, 11, 400):
            frames = Frames()
            found = [one for at in range(0, len(data), size) for one in frames.feed(data[at : at + size])]
            assert found == [(1, b"abc"), (2, b""), (2, b"x" * 256)]

    def test_remarks_in_any_pieces(self) -> None:
        remarks = Remarks()
        secret = remarks.secret.encode()
        data = b"out" + secret + b"one 0\n" + secret[:5] + b"\x1f\n" + secret + b"two\n" + b"end" + secret[:7]
        for size in range(1, len(data) + 1):
            said, output = [], b""
            for at in range(0, len(data), size):
                for is_remark, piece in remarks.feed(data[at : at + size]):
                    if is_remark:
                        said.append(piece)
                    else:
                        output += piece
            output += remarks.rest()
            assert said == [b"one 0\n", b"two\n"]
            assert output == b"out" + secret[:5] + b"\x1f\n" + b"end" + secret[:7]


class TestUnpack:
    """No archive, whoever made it, puts anything outside the folder."""

    def archive(self, *entries: tuple[str, bytes, str]) -> Iterator[bytes]:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as made:
            for name, kind, link in entries:
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname, entry.mode = kind, link, 0o6755
                entry.size = 3 if kind == tarfile.REGTYPE else 0
                made.addfile(entry, io.BytesIO(b"abc"))
        yield buffer.getvalue()

    @pytest.mark.parametrize(
        "entries",
        [
            [("../evil", tarfile.REGTYPE, "")],
            [("t", tarfile.SYMTYPE, "{out}"), ("t/evil", tarfile.REGTYPE, "")],
            [("t", tarfile.SYMTYPE, "{out}/evil"), ("t", tarfile.REGTYPE, "")],
            [("t", tarfile.LNKTYPE, "../out/secret")],
            [("s", tarfile.SYMTYPE, "{out}"), ("t", tarfile.LNKTYPE, "s/secret")],
        ],
    )
    def test_traps(self, tmp_path: Path, entries: list[tuple[str, bytes, str]]) -> None:
        outside, folder = tmp_path / "out", tmp_path / "in"
        outside.mkdir()
        folder.mkdir()
        (outside / "secret").write_text("x")
        filled = [(name, kind, link.format(out=outside)) for name, kind, link in entries]
        with pytest.raises((OSError, SandboxError)):
            unpack(self.archive(*filled), folder)
        assert os.listdir(outside) == ["secret"]
        assert (outside / "secret").stat().st_nlink == 1

    def test_modes_links_and_kinds(self, tmp_path: Path) -> None:
        kinds = [("t", tarfile.DIRTYPE, ""), ("t/f", tarfile.REGTYPE, ""), ("t/h", tarfile.LNKTYPE, "t/f")]
        kinds += [
            ("t/p", tarfile.FIFOTYPE, ""),
            ("t/d", tarfile.CHRTYPE, ""),
            ("t/s", tarfile.SYMTYPE, "/nowhere"),
        ]
        unpack(self.archive(*kinds), tmp_path)
        assert sorted(os.listdir(tmp_path / "t")) == ["f", "h", "s"]
        assert (tmp_path / "t" / "h").samefile(tmp_path / "t" / "f")
        assert (tmp_path / "t" / "f").stat().st_mode & 0o7777 == 0o755

    def test_what_is_no_archive(self, tmp_path: Path) -> None:
        with pytest.raises(SandboxError, match="broken archive"):
            unpack(iter([b"x" * 2000]), tmp_path)
