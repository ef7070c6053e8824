"""Files in and out, and snapshots: the part of conformance where untrusted code plants traps for the host.

Everything a trap could reach lies in `tmp_path`: one of the backends does not isolate.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from agentgym.errors import UsageError
from agentgym.sandbox import Limits, Sandbox, TreeError

from .conftest import MakeSandbox

SECRET = "host-secret-4412"
DEEP = """python3 -c 'import os
for _ in range({}): os.mkdir("d"); os.chdir("d")'"""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of the host with a secret, where nothing may be read or changed."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text(SECRET)
    return folder


def state_of(folder: Path) -> dict[str, tuple[object, ...]]:
    """Everything a snapshot must keep, by relative path."""
    found: dict[str, tuple[object, ...]] = {}
    inodes: dict[int, str] = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        info = path.lstat()
        name = str(path.relative_to(folder))
        content: object = None
        if stat.S_ISLNK(info.st_mode):
            content = os.readlink(path)
        elif stat.S_ISREG(info.st_mode):
            content = (path.read_bytes(), inodes.setdefault(info.st_ino, name))
        found[name] = (info.st_mode, info.st_mtime_ns, content)
    return found


def host_folder(box: Sandbox) -> Path:
    return box._tree.workspace  # type: ignore[attr-defined, no-any-return]


class TestReadWrite:
    @pytest.mark.parametrize("path", ["f", "a/b/c", "./y", "name with 'quotes' and\nnewline", "漢字", "-rf"])
    def test_round_trip(self, box: Sandbox, path: str) -> None:
        data = bytes(range(256)) * 1000
        box.write(path, data)
        assert box.read(path) == data
        assert box.read(f"{box.workspace}/{path}") == data
        assert box.exec(["wc", "-c", "--", path]).stdout.split()[0] == str(len(data))

    def test_commands_and_host_see_the_same(self, box: Sandbox) -> None:
        box.write("in.txt", "héé\n")
        assert box.exec("cat in.txt; printf back >out.txt").stdout == "héé\n"
        assert box.read("out.txt") == b"back"

    def test_write_replaces_and_keeps_the_mode(self, box: Sandbox) -> None:
        box.exec("echo long old content >f; chmod 755 f")
        box.write("f", "new")
        assert box.exec("cat f; stat -c %a f").stdout == "new755\n"

    def test_errors_are_those_of_open(self, box: Sandbox) -> None:
        box.write("d/f", "")
        with pytest.raises(FileNotFoundError):
            box.read("none")
        with pytest.raises(IsADirectoryError):
            box.read("d")
        with pytest.raises(IsADirectoryError):
            box.write("d", "")
        with pytest.raises(NotADirectoryError):
            box.write("d/f/g", "")

    @pytest.mark.parametrize("path", ["../x", "/etc/agentgym-test", "a/../../x"])
    def test_nothing_is_written_outside_the_workspace(self, box: Sandbox, path: str) -> None:
        with pytest.raises(PermissionError):
            box.write(path, "x")
        assert not os.path.exists("/etc/agentgym-test")

    def test_links_inside_the_workspace_are_followed(self, box: Sandbox) -> None:
        box.write("d/f", "old")
        box.exec("ln -s d/f one; ln -s d two")
        box.write("one", "new")
        box.write("two/g", "more")
        assert (box.read("d/f"), box.read("d/g"), box.read("two/f")) == (b"new", b"more", b"new")

    def test_pipes_and_sockets_do_not_block(self, box: Sandbox) -> None:
        box.exec("mkfifo pipe")
        with socket.socket(socket.AF_UNIX) as server:
            old = os.getcwd()
            os.chdir(host_folder(box))  # the name of a socket is limited to 108 bytes
            try:
                server.bind("socket")
            finally:
                os.chdir(old)
            for name in ("pipe", "socket"):
                with pytest.raises(OSError, match=r"regular|No such device"):
                    box.read(name)
                with pytest.raises(OSError, match=r"regular|No such device"):
                    box.write(name, "x")

    def test_large_file(self, box: Sandbox) -> None:
        box.exec("head -c 30M /dev/zero >big")
        assert len(box.read("big")) == 30 << 20


# What the policy prepares ({out} is the host's folder), and the path we then use.
LINKS = {
    "file": ("ln -s {out}/secret trap", "trap"),
    "folder": ("ln -s {out} trap", "trap/secret"),
    "parents": ("mkdir a; ln -s ../../../../../../../../../../..{out} a/trap", "a/trap/secret"),
    "chain": ("ln -s {out} one; ln -s one two; ln -s two/secret trap", "trap"),
    "magic link": ("ln -s /proc/self/root{out} trap", "trap/secret"),
    "magic cwd": ("ln -s /proc/self/cwd trap", "trap/secret"),
}


class TestTraps:
    @pytest.mark.parametrize("trap", LINKS)
    def test_read(self, box: Sandbox, outside: Path, trap: str) -> None:
        command, path = LINKS[trap]
        box.exec(command.format(out=outside))
        with pytest.raises(OSError, match=r"."):
            box.read(path)

    @pytest.mark.parametrize("trap", LINKS)
    @pytest.mark.parametrize("new", [False, True])
    def test_write(self, box: Sandbox, outside: Path, trap: str, new: bool) -> None:
        command, path = LINKS[trap]
        box.exec(command.format(out=outside))
        with pytest.raises(OSError, match=r"."):
            box.write(path.replace("secret", "deep/new") if new else path, "changed")
        assert {path.name: path.read_text() for path in outside.iterdir()} == {"secret": SECRET}

    @pytest.mark.parametrize("trap", LINKS)
    def test_upload(self, box: Sandbox, outside: Path, tmp_path: Path, trap: str) -> None:
        command, path = LINKS[trap]
        box.exec(command.format(out=outside))
        source = tmp_path / "source"
        (source / "sub").mkdir(parents=True)
        (source / "secret").write_text("uploaded")
        for what in (source, source / "secret"):
            with pytest.raises(OSError, match=r"."):
                box.upload(what, path)
        assert {path.name: path.read_text() for path in outside.iterdir()} == {"secret": SECRET}

    def test_upload_replaces_links_in_the_way(self, box: Sandbox, outside: Path, tmp_path: Path) -> None:
        box.exec(f"ln -s {outside}/secret secret; ln -s {outside} sub")
        source = tmp_path / "source"
        (source / "sub").mkdir(parents=True)
        (source / "secret").write_text("uploaded")
        (source / "sub" / "secret").write_text("uploaded too")
        box.upload(source)
        assert {path.name: path.read_text() for path in outside.iterdir()} == {"secret": SECRET}
        assert box.read("secret") == b"uploaded"
        assert box.read("sub/secret") == b"uploaded too"

    @pytest.mark.parametrize("trap", LINKS)
    def test_download(self, box: Sandbox, outside: Path, tmp_path: Path, trap: str) -> None:
        command, path = LINKS[trap]
        box.exec(command.format(out=outside))
        with pytest.raises(OSError, match=r"."):
            box.download(path, tmp_path / "got")
        box.download(".", tmp_path / "all")
        for found in (tmp_path / "all").rglob("*"):
            assert found.is_symlink() or not found.is_file()

    def test_download_keeps_links_and_does_not_follow_old_ones(
        self, box: Sandbox, outside: Path, tmp_path: Path
    ) -> None:
        box.exec(f"ln -s {outside} x")
        box.download(".", tmp_path / "got")
        assert os.readlink(tmp_path / "got" / "x") == str(outside)
        box.exec("rm x; mkdir x; echo evil >x/secret")
        box.download(".", tmp_path / "got")
        assert (tmp_path / "got" / "x" / "secret").read_text() == "evil\n"
        assert (outside / "secret").read_text() == SECRET

    def test_a_folder_swapped_for_a_link_again_and_again(self, box: Sandbox, outside: Path) -> None:
        box.exec("mkdir d; echo mine >d/secret")
        shell = box.shell()
        shell.run(
            f"(while :; do mv d e; ln -s {outside} d; rm d; mv e d; done) >/dev/null 2>&1 & disown",
            timeout=10,
        )
        seen = set()
        for _ in range(2000):
            try:
                seen.add(_read_directly(box, "d/secret"))
            except OSError:
                pass
            try:
                box.write("d/made", "x")
            except OSError:
                pass
        assert SECRET.encode() not in seen
        assert {path.name for path in outside.iterdir()} == {"secret"}

    def test_set_id_bits_and_pipes_stay_inside(self, box: Sandbox, tmp_path: Path) -> None:
        box.exec("cp /bin/true evil; chmod 6755 evil; mkfifo pipe")
        box.download(".", tmp_path / "got")
        assert stat.S_IMODE((tmp_path / "got" / "evil").stat().st_mode) == 0o755
        assert {path.name for path in (tmp_path / "got").iterdir()} == {"evil"}
        box.download("evil", tmp_path / "one")
        assert stat.S_IMODE((tmp_path / "one").stat().st_mode) == 0o755


def _read_directly(box: Sandbox, path: str) -> bytes:
    """Only the attempt on the host's side, which is where a race would be won."""
    tree = box._tree  # type: ignore[attr-defined]
    with open(tree.open_regular(path), "rb") as file:
        return file.read()


class TestUploadDownload:
    def test_folder_round_trip(self, box: Sandbox, tmp_path: Path) -> None:
        source = tmp_path / "source"
        (source / "a" / "empty").mkdir(parents=True)
        (source / "a" / "run.sh").write_text("#!/bin/bash\necho ran\n")
        (source / "a" / "run.sh").chmod(0o755)
        (source / "link").symlink_to("a/run.sh")
        (source / "dangling").symlink_to("/nowhere")
        os.link(source / "a" / "run.sh", source / "hard")
        os.utime(source / "a" / "run.sh", ns=(10**18, 10**18))
        box.upload(source, "deep/er")
        assert box.exec("./deep/er/link").stdout == "ran\n"
        box.download("deep/er", tmp_path / "back")
        assert state_of(tmp_path / "back") == state_of(source)

    def test_file_names(self, box: Sandbox, tmp_path: Path) -> None:
        source = tmp_path / "f"
        source.write_text("x")
        box.upload(source)
        box.upload(source, "new/name")
        box.upload(source, "folder/")
        assert box.exec("find . -type f | sort").stdout == "./f\n./folder/f\n./new/name\n"
        (tmp_path / "there").mkdir()
        box.download("new/name", tmp_path / "there")
        box.download("new/name", tmp_path / "fresh" / "other")
        assert (tmp_path / "there" / "name").read_text() == "x"
        assert (tmp_path / "fresh" / "other").read_text() == "x"

    def test_missing_sources(self, box: Sandbox, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            box.upload(tmp_path / "none")
        with pytest.raises(FileNotFoundError):
            box.download("none", tmp_path / "got")

    def test_holes_stay_holes(self, box: Sandbox, tmp_path: Path) -> None:
        box.exec("truncate -s 200M sparse; echo end >>sparse")
        box.download("sparse", tmp_path / "got")
        assert (tmp_path / "got").stat().st_size == (200 << 20) + 4
        assert (tmp_path / "got").stat().st_blocks * 512 < 1 << 20

    def test_too_many_levels_is_an_error_not_a_crash(self, box: Sandbox, tmp_path: Path) -> None:
        assert box.exec(DEEP.format(1500)).exit_code == 0
        with pytest.raises(OSError, match="inside one another"):
            box.download(".", tmp_path / "got")


class TestSnapshot:
    def fill(self, box: Sandbox) -> None:
        box.exec(
            "mkdir -p a/b c; echo 1 >a/f; echo 2 >a/b/g; ln -s a/f l; ln -s /nowhere n; ln a/f hard; mkfifo p;"
            "chmod 400 a/b/g; chmod 2750 c; touch -d '2001-02-03 04:05:06.789' a/f a c; chmod 711 ."
        )

    def test_restore_puts_everything_back(self, box: Sandbox) -> None:
        self.fill(box)
        before = state_of(host_folder(box))
        taken = box.snapshot()
        box.exec("echo changed >a/f; rm -r a/b; touch new; chmod 777 . c; rm l; ln -s x l; rmdir c; echo >c")
        assert state_of(host_folder(box)) != before
        box.restore(taken)
        assert state_of(host_folder(box)) == before
        box.exec("rm -rf *")
        box.restore(taken)
        assert state_of(host_folder(box)) == before

    def test_restore_in_another_sandbox_after_the_first_is_gone(self, make: MakeSandbox) -> None:
        first, second = make(), make()
        self.fill(first)
        before = state_of(host_folder(first))
        taken = first.snapshot()
        first.close()
        second.write("other", "x")
        second.restore(taken)
        assert state_of(host_folder(second)) == before

    def test_restore_kills_what_runs(self, box: Sandbox) -> None:
        shell = box.shell()
        box.write("f", "old")
        taken = box.snapshot()
        shell.run("x=1; (while :; do echo new >f; done) & disown")
        box.restore(taken)
        assert box.read("f") == b"old"
        assert shell.run('echo "[$x]"').stdout == "[]\n"

    def test_files_without_permissions(self, box: Sandbox) -> None:
        box.exec("mkdir d; echo x >d/f; chmod 000 d/f d")
        taken = box.snapshot()
        box.exec("chmod 700 d; rm -rf d")
        box.restore(taken)
        assert (
            box.exec("stat -c %a d; chmod 700 d; stat -c %a d/f; chmod 600 d/f; cat d/f").stdout
            == "0\n0\nx\n"
        )

    def test_a_wrong_snapshot_is_a_usage_error(self, box: Sandbox) -> None:
        with pytest.raises(UsageError, match="snapshot"):
            box.restore("yesterday")

    def test_snapshot_folders_go_with_the_snapshot(self, box: Sandbox) -> None:
        taken = box.snapshot()
        folder = taken.folder
        assert folder.is_dir()
        del taken
        assert not folder.exists()


class TestCleaningUp:
    @pytest.mark.parametrize(
        "mess",
        [
            "mkdir -p d/e; touch d/e/f; chmod 000 d/e/f d/e d; chmod 000 .",
            DEEP.format(3000),
            "mkdir d; for i in {1..3000}; do : >d/$i; done; chmod 500 d",
            "mkfifo p; ln -s / root; ln -s . self; touch -- '-rf' $'new\\nline' $'\\xff'",
        ],
    )
    def test_close_removes_whatever_was_made(self, make: MakeSandbox, mess: str) -> None:
        box = make()
        result = box.exec(mess)
        assert result.exit_code == 0, result.stderr
        assert box.exec("echo usable").stdout == "usable\n"
        folder = host_folder(box)
        box.close()
        assert not folder.exists()

    def test_close_leaves_what_links_point_to(self, box: Sandbox, outside: Path) -> None:
        box.exec(f"ln -s {outside} d; mkdir e; ln -s {outside} e/d; chmod 000 e")
        box.close()
        assert (outside / "secret").read_text() == SECRET
        assert stat.S_IMODE(outside.stat().st_mode) & 0o700 == 0o700


def test_sandboxes_do_not_share_files(make: MakeSandbox) -> None:
    one, two = make(), make()
    one.write("f", "x")
    with pytest.raises(FileNotFoundError):
        two.read("f")


def test_reads_while_a_command_writes(make: MakeSandbox) -> None:
    box = make(limits=Limits(wall_s=20))
    thread = threading.Thread(target=lambda: box.exec("for i in {1..200}; do echo $i >f; done"))
    box.write("f", "0\n")
    thread.start()
    while thread.is_alive():
        content = box.read("f").strip()
        assert content.isdigit() or content == b""
    thread.join()
    assert box.read("f") == b"200\n"


def test_a_download_stops_at_its_bounds(box: Sandbox, tmp_path: Path) -> None:
    box.exec(
        "mkdir -p a/b/c skipped; touch a/b/c/f; truncate -s 1000 a/hole; ln a/hole again; seq 100 | split - skipped/"
    )
    bounds = {"skip": lambda path: path == "skipped", "most_entries": 6, "most_bytes": 2000}
    box.download(".", tmp_path / "fits", **bounds)
    assert {str(p.relative_to(tmp_path / "fits")) for p in (tmp_path / "fits").rglob("*")} == {
        "a", "a/b", "a/b/c", "a/b/c/f", "a/hole", "again",
    }  # fmt: skip
    for name, change, said in (
        ("entries", {"most_entries": 5}, "more than 5 files and folders"),
        ("bytes", {"most_bytes": 1999}, "more than 1999 bytes in files"),
    ):
        with pytest.raises(TreeError, match=said):
            box.download(".", tmp_path / name, **{**bounds, **change})
        assert list((tmp_path / name).iterdir()) == []
    box.exec("cd a; for i in $(seq 201); do mkdir x; cd x; done")
    for kept in ({}, {"most_entries": 10_000}):
        with pytest.raises(TreeError, match="more than 200 folders inside one another"):
            box.download(".", tmp_path / f"deep{len(kept)}", **kept)


def test_a_file_is_read_up_to_a_size(box: Sandbox) -> None:
    box.write("f", b"12345")
    assert box.read("f", most=5) == b"12345"
    for path in ("f", f"{box.workspace}/f"):
        with pytest.raises(OSError, match="larger than 4 bytes") as caught:
            box.read(path, most=4)
        assert caught.value.errno == errno.EFBIG
    with pytest.raises(OSError, match="larger than 4 bytes"):
        box.read("/usr/bin/env", most=4)  # not in the workspace
