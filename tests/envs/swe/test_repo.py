from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from agentgym.envs.swe.repo import apply_patch, clean_tree, make_repository, pack_tree, tree_diff, unpack
from agentgym.errors import TaskError
from agentgym.verifiers.patches import PatchError, list_tree, overlay


def put(tree: Path, path: str, content: str | bytes) -> None:
    (tree / path).parent.mkdir(parents=True, exist_ok=True)
    (tree / path).write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    put(tree, "pkg/a.py", "one\ntwo\nthree\n")
    put(tree, "pkg/b.py", "no newline at the end")
    put(tree, "crlf.txt", "a\r\nb\r\n")
    put(tree, "data.bin", bytes(range(256)))
    put(tree, "latin.txt", "caf\xe9\n".encode("latin-1"))
    put(tree, "run.sh", "#!/bin/sh\n")
    (tree / "run.sh").chmod(0o755)
    (tree / "link").symlink_to("pkg/a.py")
    return tree


def copy(tree: Path, name: str = "copy") -> Path:
    return Path(shutil.copytree(tree, tree.with_name(name), symlinks=True))


# Diffs


def test_every_kind_of_change_survives_diff_and_apply(tree: Path) -> None:
    changed = copy(tree)
    put(changed, "pkg/a.py", "one\n2\nthree")
    put(changed, "pkg/b.py", "now with one\n")
    put(changed, "new/deep/c.py", "new\n")
    put(changed, "empty.py", "")
    put(changed, "with space.py", "x\n")
    put(changed, "näme.py", "ü\n")
    put(changed, "data.bin", bytes(reversed(range(256))))
    put(changed, "latin.txt", "caf\xe8\n".encode("latin-1"))
    put(changed, "crlf.txt", "a\nb\r\n")
    (changed / "run.sh").chmod(0o644)
    (changed / "link").unlink()
    (changed / "link").symlink_to("pkg/b.py")
    (changed / "pkg/a.py").rename(changed / "pkg/renamed.py")
    diff = tree_diff(tree, changed)
    assert diff.encode("utf-8", "surrogateescape")
    target = copy(tree, "target")
    apply_patch(target, diff)
    assert list_tree(target) == list_tree(changed)
    apply_patch(target, diff, reverse=True)
    assert list_tree(target) == list_tree(tree)


def test_equal_trees_have_no_diff(tree: Path) -> None:
    assert tree_diff(tree, copy(tree)) == ""
    apply_patch(tree, "")


def test_a_folder_that_becomes_a_file_and_back(tree: Path) -> None:
    changed = copy(tree)
    shutil.rmtree(changed / "pkg")
    put(changed, "pkg", "a file\n")
    for one, other in ((tree, changed), (changed, tree)):
        target = copy(one, f"target-{one.name}")
        overlay(target, other, protected=lambda path: False)
        assert list_tree(target) == list_tree(other)


def test_apply_is_all_or_nothing(tree: Path) -> None:
    diff = "--- a/pkg/a.py\n+++ b/pkg/a.py\n@@ -1,3 +1,3 @@\n-one\n+1\n two\n three\n"
    broken = diff + "--- a/pkg/b.py\n+++ b/pkg/b.py\n@@ -1 +1 @@\n-nothing like it\n+x\n"
    before = list_tree(tree)
    with pytest.raises(PatchError, match="does not apply"):
        apply_patch(tree, broken)
    assert list_tree(tree) == before
    apply_patch(tree, diff)
    assert (tree / "pkg/a.py").read_text().startswith("1\n")


def test_a_diff_without_its_last_line_break(tree: Path) -> None:
    diff = "--- a/pkg/a.py\n+++ b/pkg/a.py\n@@ -1,3 +1,3 @@\n-one\n+1\n two\n three"
    apply_patch(tree, diff)
    assert (tree / "pkg/a.py").read_text() == "1\ntwo\nthree\n"


@pytest.mark.parametrize(
    "path", ["../outside.py", "/tmp/outside.py", "pkg/../../outside.py", ".git/hooks/x", "out/x.py"]
)
def test_apply_stays_inside(tree: Path, path: str) -> None:
    (tree / "out").symlink_to(tree.parent)
    diff = f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"
    with pytest.raises(PatchError):
        apply_patch(tree, diff)
    assert not (tree.parent / "outside.py").exists()
    assert not (tree.parent / "x.py").exists()


def test_apply_inside_another_repository(tree: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tree.parent, check=True)
    changed = copy(tree)
    put(changed, "pkg/a.py", "changed\n")
    apply_patch(tree, tree_diff(tree, changed))
    assert (tree / "pkg/a.py").read_text() == "changed\n"


def test_a_hostile_tree_runs_nothing_and_hides_nothing(tree: Path) -> None:
    changed = copy(tree)
    trap = f"touch {tree.parent}/ran; cat"
    subprocess.run(["git", "init", "-q"], cwd=changed, check=True)
    put(
        changed,
        ".git/config",
        f'[filter "x"]\n\tclean = {trap}\n\tsmudge = {trap}\n[diff "x"]\n\ttextconv = {trap}\n'
        f"[core]\n\tfsmonitor = {trap}\n\thooksPath = hooks\n",
    )
    put(changed, "hooks/post-index-change", f"#!/bin/sh\n{trap}\n")
    (changed / "hooks/post-index-change").chmod(0o755)
    put(changed, ".gitattributes", "* filter=x diff=x text eol=crlf\npkg/a.py -diff binary\n")
    put(changed, ".gitignore", "*\n")
    put(changed, "pkg/a.py", "changed\n")
    put(changed, "nested/.git/HEAD", "ref: refs/heads/main\n")
    put(changed, "nested/file.py", "x\n")
    os.mkfifo(changed / "pipe")
    diff = tree_diff(tree, changed)
    assert "+changed" in diff
    assert "nested/file.py" in diff
    assert ".git/" not in diff
    target = copy(tree, "target")
    apply_patch(target, diff)
    assert (target / "pkg/a.py").read_bytes() == b"changed\n"
    assert (target / "crlf.txt").read_bytes() == b"a\r\nb\r\n"
    make_repository(target)
    assert not (tree.parent / "ran").exists()


def test_overlay_keeps_protected_files_whatever_is_put_over_them(tree: Path) -> None:
    put(tree, "pkg/conftest.py", "ours\n")
    changed = copy(tree)
    shutil.rmtree(changed / "pkg")
    (changed / "pkg").symlink_to("/etc")
    base = copy(tree, "base")
    carried, dropped = overlay(base, changed, protected=lambda path: path.endswith("conftest.py"))
    assert (base / "pkg/conftest.py").read_text() == "ours\n"
    assert "pkg/conftest.py" in dropped
    assert "pkg" in dropped
    assert "pkg/a.py" in carried


def test_overlay_never_writes_through_a_link(tree: Path) -> None:
    outside = tree.parent / "outside"
    outside.mkdir()
    (tree / "dir").symlink_to(outside)
    changed = copy(tree)
    (changed / "dir").unlink()
    put(changed, "dir/file.py", "x\n")
    overlay(tree, changed, protected=lambda path: False)
    assert not any(outside.iterdir())
    assert (tree / "dir/file.py").read_text() == "x\n"


# Repositories


def git(tree: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=tree, check=True, capture_output=True, text=True).stdout


def test_the_repository_has_one_commit_and_nothing_else(tree: Path) -> None:
    put(tree, ".gitignore", "data.bin\n")
    commit = make_repository(tree)
    other = copy(tree)
    put(other, ".git/stale", "x")
    assert make_repository(other) == commit
    assert not (other / ".git/stale").exists()
    assert git(tree, "rev-list", "--all").split() == [commit]
    assert git(tree, "branch", "--show-current").strip() == "main"
    assert git(tree, "remote") == ""
    assert git(tree, "reflog") == ""
    assert git(tree, "status", "--porcelain") == ""
    assert "data.bin" in git(tree, "ls-files")
    assert not (tree / ".git/hooks").exists()
    assert git(tree, "fsck", "--unreachable", "--no-reflogs") == ""
    assert "1970" not in git(tree, "log", "--format=%ad")
    put(tree, "pkg/a.py", "changed\n")
    git(tree, "commit", "-qam", "the policy can commit")


def test_clean_tree_removes_what_may_hold_another_state(tree: Path) -> None:
    for path in (
        "pkg/__pycache__/a.pyc",
        "pkg/b.pyc",
        "build/lib/pkg/a.py",
        "dist/x.whl",
        ".git/HEAD",
        ".tox/x",
        "x.egg-link",
    ):
        put(tree, path, "x")
    put(tree, "pkg/build/keep.py", "x")
    put(tree, "pkg.egg-info/PKG-INFO", "x")
    clean_tree(tree)
    kept = set(list_tree(tree))
    assert {"pkg/build/keep.py", "pkg.egg-info/PKG-INFO", "pkg/a.py", "link"} <= kept
    assert not (tree / ".git").exists()
    assert not {
        path
        for path in kept
        if path.endswith((".pyc", ".egg-link")) or path.startswith(("build", "dist", ".tox"))
    }


# Archives


def test_pack_and_unpack(tree: Path, tmp_path: Path) -> None:
    content = pack_tree(tree)
    assert content == pack_tree(copy(tree))
    (tmp_path / "t.tar.gz").write_bytes(content)
    unpack(tmp_path / "t.tar.gz", tmp_path / "out")
    assert list_tree(tmp_path / "out") == list_tree(tree)
    assert {path.name for path in tmp_path.iterdir()} == {"tree", "copy", "t.tar.gz", "out"}


def test_unpack_without_a_top_folder_and_from_zip(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "flat.tar", "w") as tar:
        for name in ("a.py", "b/c.py"):
            info = tarfile.TarInfo(name)
            info.size = 1
            tar.addfile(info, io.BytesIO(b"x"))
    unpack(tmp_path / "flat.tar", tmp_path / "flat")
    assert set(list_tree(tmp_path / "flat")) == {"a.py", "b/c.py"}
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as zipped:
        zipped.writestr("top/a.py", "x")
    unpack(tmp_path / "z.zip", tmp_path / "z")
    assert set(list_tree(tmp_path / "z")) == {"a.py"}


@pytest.mark.parametrize("name", ["../escape.py", "/escape.py", "top/../../escape.py"])
def test_unpack_refuses_to_leave(tmp_path: Path, name: str) -> None:
    archive = tmp_path / "in" / "x.tar"
    archive.parent.mkdir()
    with tarfile.open(archive, "w") as tar:
        info = tarfile.TarInfo(name)
        info.size = 1
        tar.addfile(info, io.BytesIO(b"x"))
    if name.startswith("/"):
        unpack(archive, tmp_path / "out" / "t")  # the leading slash goes
        assert (tmp_path / "out" / "t" / "escape.py").exists()
    else:
        with pytest.raises(TaskError, match="cannot be unpacked"):
            unpack(archive, tmp_path / "out" / "t")
    assert not (tmp_path / "escape.py").exists()
    assert not (tmp_path / "out" / "escape.py").exists()


def test_unpack_refuses_links_that_lead_out_and_rubbish(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        info = tarfile.TarInfo("link")
        info.type = tarfile.SYMTYPE
        info.linkname = "../../etc/passwd"
        tar.addfile(info)
    (tmp_path / "y.tar.gz").write_bytes(b"no archive")
    for name in ("x.tar", "y.tar.gz"):
        with pytest.raises(TaskError, match="cannot be unpacked"):
            unpack(tmp_path / name, tmp_path / "out")
        assert not (tmp_path / "out").exists()
