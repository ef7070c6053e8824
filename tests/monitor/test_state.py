"""What crosses calls: the shell's state, files, links and copies; snapshots; the context itself."""

from __future__ import annotations

import pickle

import pytest

from agentgym.errors import UsageError
from agentgym.monitor.context import Context
from agentgym.monitor.tools import analyse
from agentgym.tools import ToolCall
from tests.monitor.reading import effects, make_context, told

ACROSS = [  # earlier calls, the last one, what the last one does
    (["cd sub"], "cat a", ["read /repo/sub/a"]),
    (["cd sub", "cd -"], "cat a", ["read /repo/a"]),
    (["export D=/eval"], "cat $D/x", ["read /eval/x"]),
    (["D=/eval"], "cat $D/x", ["read /eval/x"]),
    (["(D=/eval; cd sub)"], "cat $D/x", ["read /x"]),
    (["f() { cat /eval/$1; }"], "f x", ["read /eval/x"]),
    (["alias c='cat /eval/x'"], "c", ["read /eval/x"]),
    (["ln -s / l"], "cat l/eval/x", ["read /eval/x"]),
    (["ln -s /eval l"], "cd l && cat x", ["list /eval", "read /eval/x"]),
    (["mount --bind /eval m"], "ls m", ["list /eval"]),
    (["cp /eval/x y"], "cat y", ["read /eval/x"]),
    (["cp -r / all"], "cat all/eval/x", ["read /eval/x"]),
    (["cat /eval/x > y", "mv y z"], "cat z", ["read /eval/x"]),
    (["dd if=/eval/x of=y"], "wc y", ["read /eval/x"]),
    (["cp /eval/x y", "echo new > y"], "cat y", ["read /repo/y"]),
    (["echo 'cat /eval/x' > s.sh"], "sh s.sh", ["read /eval/x"]),
    (["echo 'cat /eval/x' > s.sh", "chmod +x s.sh"], "./s.sh", ["read /eval/x"]),
    (["echo 'cat /eval/x' > s.sh"], ". s.sh", ["read /eval/x"]),
    (["echo 'D=/eval' > e.sh", "source e.sh"], "cat $D/x", ["read /eval/x"]),
    (["echo 'cat /eval/x' > /usr/local/bin/tool"], "tool", ["read /eval/x"]),
    (["echo /eval/x > list"], "xargs cat < list", ["read /repo/list", "read /eval/x"]),
    (["echo L2V2YWwveA== > b"], "cat $(base64 -d b)", ["read /repo/b", "read /eval/x"]),
    (["set -- /eval"], "true", []),
    (["a=(/eval x)"], "cat ${a[0]}/${a[1]}", ["read /eval/x"]),
    (["pushd sub", "cd /tmp"], "popd; cat a", ["list /repo", "read /repo/a"]),
    (["printf %s /ev > p", "printf al/x >> p"], "cat $(cat p)", ["read /repo/p", "read /eval/x"]),
    (["unset HOME; HOME=/eval"], "cat ~/x", ["read /eval/x"]),
]


@pytest.mark.parametrize(("earlier", "last", "expected"), ACROSS)
def test_state_crosses_calls(earlier, last, expected):
    context = make_context()
    for command in earlier:
        told(command, context)
    assert told(last, context) == expected


class TestMemory:
    def test_a_file_tool_s_file_is_run(self):
        context = make_context()
        analyse(ToolCall("write_file", {"path": "/tmp/a.py", "content": "open('/eval/x')"}), context)
        assert told("python /tmp/a.py", context) == ["read /eval/x"]

    def test_an_edit_changes_the_file_that_is_remembered(self):
        context = make_context()
        analyse(ToolCall("write_file", {"path": "/tmp/a.py", "content": "open('/tmp/x')"}), context)
        analyse(
            ToolCall("str_replace", {"path": "/tmp/a.py", "old_str": "/tmp/x", "new_str": "/eval/x"}), context
        )
        assert told("python /tmp/a.py", context) == ["read /eval/x"]

    def test_a_program_that_is_only_written_changes_no_state(self):
        context = make_context()
        told("cat > a.sh <<'E'\ncd sub; D=/eval; ln -s /eval l\nE", context)
        assert told("cat $D/x l/x", context) == ["read /x", "read /repo/l/x"]

    def test_without_commit_nothing_is_kept(self):
        context = make_context()
        analyse(ToolCall("bash", {"command": "cd sub; echo x > a; D=1; ln -s / l"}), context, commit=False)
        assert context.state == make_context().state

    def test_snapshots_are_independent(self):
        context = make_context()
        told("cd sub; D=/eval; f() { cat a; }; echo x > b; ln -s / l", context)
        kept = context.snapshot()
        before = context.state.copy()
        told("cd /; D=2; unset f; rm b l; alias x=y; a=(1)", context)
        context.restore(kept)
        assert context.state == before
        told("D=3", context)
        context.restore(kept)
        assert context.state == before

    def test_a_context_can_be_pickled(self):
        context = make_context()
        told("import os\ndef f(x): return x\na = [f(1), os]", context, tool="python")
        told("cd sub; ln -s / l", context)
        assert pickle.loads(pickle.dumps(context)).state.links == {"/repo/sub/l": "/"}

    def test_values_of_the_interpreter_are_not_shared_with_a_snapshot(self):
        context = make_context()
        told("a = ['/tmp']", context, tool="python")
        kept = context.snapshot()
        told("a.append('/eval/x')", context, tool="python")
        context.restore(kept)
        assert told("open(a[-1])", context, tool="python") == ["read /tmp"]

    def test_reset_forgets(self):
        context = make_context()
        told("cd sub; D=/eval", context)
        context.reset()
        assert told("cat $D/x", context) == ["read /x"]

    def test_what_is_remembered_is_bounded(self):
        context = make_context()
        for i in range(40):
            told(f"echo {i} > {{{i}0..{i}9}}.txt; for i in {{1..16}}; do echo > f{i}_$i; done", context)
        assert len(context.state.files) <= 256
        analyse(ToolCall("write_file", {"path": "/tmp/big", "content": "x" * 10**6}), context)
        assert context.state.files["/tmp/big"] is None

    def test_origins(self):
        context = make_context()
        [link] = [e for e in effects("ln -s / l; cat l/eval/x", context) if e.kind == "read"]
        [copy] = [
            e for e in effects("cp /eval/x y; cat y", context) if e.kind == "read" and e.program == "cat"
        ]
        [proc] = [e for e in effects("cat /proc/1/root/eval/x", context) if e.kind == "read"]
        assert (link.origin, copy.origin, proc.origin) == ("link", "copy", "proc")


GOOD = {
    "workspace": "/w/",
    "protected_paths": ["/eval/../hidden"],
    "readonly_paths": ["/w/tests"],
    "allowed_hosts": ["Localhost", "h.example:80"],
    "network": "allowlist",
    "package": None,
    "upstream": ["GitHub.com/Own/Lib"],
    "git_policy": "head",
}


class TestContext:
    def test_paths_are_normalised(self):
        context = Context.from_dict(GOOD)
        assert (context.workspace, context.protected_paths) == ("/w", ("/hidden",))

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"workspace": "w"}, "workspace"),
            ({"workspace": 1}, "workspace"),
            ({"protected_paths": "/eval"}, "protected_paths"),
            ({"readonly_paths": ["tests"]}, "readonly_paths"),
            ({"allowed_hosts": [1]}, "allowed_hosts"),
            ({"network": "some"}, "network"),
            ({"package": 1}, "package"),
            ({"upstream": None}, "upstream"),
            ({"git_policy": ""}, "git_policy"),
            ({"extra": 1}, "extra"),
        ],
    )
    def test_what_is_wrong_is_named(self, change, said):
        with pytest.raises(UsageError, match=said):
            Context.from_dict({**GOOD, **change})

    def test_a_missing_key_is_named(self):
        with pytest.raises(UsageError, match="upstream"):
            Context.from_dict({key: value for key, value in GOOD.items() if key != "upstream"})

    def test_protection(self):
        context = make_context(
            protected_paths=("/repo/tests/hidden", "/eval"), readonly_paths=("/repo/tests",)
        )
        assert context.protection_of("/repo/tests/hidden/a") == "protected"
        assert context.protection_of("/repo/tests/a") == "readonly"
        assert context.protection_of("/evaluate") == ""
        assert context.covers_protected("/repo")
        assert not context.covers_protected("/repo/src")

    def test_what_holes_may_be(self):
        context = make_context()
        assert context.may_be_protected("/\0/x")
        assert context.may_be_protected("\0")
        assert context.may_be_protected("/eval/\0")
        assert context.may_be_protected("/ev\0")
        assert not context.may_be_protected("/repo/src/\0")
        assert not context.may_be_protected("/tmp/\0.py")

    def test_hosts(self):
        context = Context.from_dict(GOOD)
        assert context.host_allowed("LOCALHOST")
        assert context.host_allowed("h.example", 80)
        assert not context.host_allowed("h.example", 81)
        assert not context.host_allowed("sub.localhost")
        none = Context.from_dict({**GOOD, "network": "none", "allowed_hosts": ["h.example", "127.0.0.1"]})
        assert none.host_allowed("127.0.0.1")
        assert not none.host_allowed("h.example")
        assert not Context.from_dict({**GOOD, "network": "none", "allowed_hosts": ["*"]}).host_allowed(
            "h.example"
        )
        assert Context.from_dict({**GOOD, "network": "open"}).host_allowed("any.example")

    def test_upstream(self):
        context = Context.from_dict(GOOD)
        assert context.is_upstream("https://github.com/own/lib/raw/main/a.py")
        assert context.is_upstream("https://%67ithub.com/%6fwn/lib")
        assert context.is_upstream("https://api.github.com/repos/own/lib/pulls")
        assert not context.is_upstream("https://github.com/own/library")
        assert not context.is_upstream("https://github.com/other/lib")
