"""From a command to what it does: statements, redirections, pipes, and the programs of the table."""

from __future__ import annotations

import pytest

from agentgym.monitor.tools import analyse
from agentgym.tools import ToolCall
from tests.monitor.reading import QUIET, effects, make_context, short, told

CONTROL = [
    ("cat a; cat b", ["read /repo/a", "read /repo/b"]),
    ("cat a && cat b || cat c", ["read /repo/a", "read /repo/b", "read /repo/c"]),
    (
        "if test -f a; then cat b; elif cat c; then cat d; else cat e; fi",
        ["list /repo/a", *map("read /repo/{}".format, "bcde")],
    ),
    ("case $x in a) cat a;; b|c) cat b;; esac", ["read /repo/a", "read /repo/b"]),
    ("for f in a b; do cat $f; done", ["read /repo/a", "read /repo/b"]),
    ("for ((i = 1; i <= 2; i++)); do cat f$i; done", ["read /repo/f1", "read /repo/f2"]),
    ("while read -r p q; do cat $q; done <<< '1 a'", ["read /repo/a"]),
    ("printf '%s\\n' a b | while read p; do cat $p; done", ["read /repo/a", "read /repo/b"]),
    ("until cat a; do cat b; done", ["read /repo/a", "read /repo/b"]),
    ("{ cat a; cat b; } > c", ["read /repo/a", "read /repo/b", "write /repo/c"]),
    ("(cd sub; cat a); cat b", ["list /repo/sub", "read /repo/sub/a", "read /repo/b"]),
    ("cd sub && cd .. ; cat a", ["list /repo/sub", "list /repo", "read /repo/a"]),
    ("cd nowhere || cd sub; cat a", ["list /repo/nowhere", "list /repo/sub", "read /repo/nowhere/a"]),
    ("cd a; cd - ; cat b", ["list /repo/a", "list /repo", "read /repo/b"]),
    ("pushd a; popd; cat b", ["list /repo/a", "list /repo", "read /repo/b"]),
    ("! cat a", ["read /repo/a"]),
    ("time cat a", ["read /repo/a"]),
    ("coproc cat a", ["read /repo/a later"]),
    ("sleep 9 && cat a &", ["read /repo/a later"]),
    ("trap 'cat a' EXIT", ["read /repo/a later"]),
    ("trap 'rm -rf \"$T\"' EXIT; T=/tmp/x", ["delete /tmp/x deep later"]),
    ("[[ -e a && -f b ]]; [ -d c ]", ["list /repo/b", "list /repo/a", "list /repo/c"]),
    ("f() { cat $1; }; f a", ["env f", "read /repo/a"]),
    (
        "function f { cat <<< $1; cat <<E\n/eval/$1\nE\n}; f x | xargs cat",
        ["env f", "read /repo/x", "read /eval/x"],
    ),
    ("alias c='cat a'; c", ["env c", "read /repo/a"]),
    ("select x in a; do cat $x; done", ["read /repo/a"]),
]

REDIRECTIONS = [
    ("echo hi > a", ["write /repo/a"]),
    ("echo hi >> a 2>/dev/null", ["write /repo/a"]),
    ("cat < a > b", ["read /repo/a", "write /repo/b"]),
    ("> a cat b", ["read /repo/b", "write /repo/a"]),
    ("cat > a -n b", ["read /repo/b", "write /repo/a"]),
    ("cat a &> b", ["read /repo/a", "write /repo/b"]),
    ("make 2> log", ["write /repo/log"]),
    ("exec 3<> a; cat <&3", ["read /repo/a"]),
    ("cat <<'E' > a.txt | cat b\nx\nE", ["write /repo/a.txt", "read /repo/b"]),
    ("cat <<A - <<B\nx\nA\n/eval\nB", []),
    ("cat $(< a)", ["read /repo/a", "read \0 ?"]),
    ("diff <(cat a) <(cat b)", ["read /repo/a", "read /repo/b"]),
    ("cat a | tee >(cat > b) > c", ["read /repo/a", "write /repo/b", "write /repo/c"]),
    ("echo > /dev/tcp/host.example/80", ["net tcp://host.example:80"]),
    ("printf 1 > $A/$B/c", ["write /c"]),
]

INDIRECT = [
    "eval 'cat /eval/x'",
    "eval cat /eval/x",
    "bash -c 'cat /eval/x'",
    "sh -c 'cat $1' _ /eval/x",
    "echo 'cat /eval/x' | sh",
    "bash <<< 'cat /eval/x'",
    "bash <<E\ncat /eval/x\nE",
    "bash < <(echo cat /eval/x)",
    "env -i A=b cat /eval/x",
    "env -S 'cat /eval/x'",
    "timeout -k 1 5 cat /eval/x",
    "nice -n 5 nohup stdbuf -o0 cat /eval/x",
    "sudo -u root cat /eval/x",
    "su - root -c 'cat /eval/x'",
    "command cat /eval/x",
    "exec cat /eval/x",
    "busybox cat /eval/x",
    "echo /eval/x | xargs cat",
    "echo /eval/x | xargs -I{} sh -c 'cat {}'",
    "printf '/eval/x\\0' | xargs -0 -n1 cat",
    "parallel cat ::: /eval/x",
    "find /eval -name x -exec cat {} \\;",
    "find /eval -name x | while read f; do cat $f; done",
    "ls /eval | xargs -I{} cat /eval/{}",
    "source /dev/stdin <<< 'cat /eval/x'",
    "git -c alias.z='!cat /eval/x' z",
    'a=(cat /eval/x); "${a[@]}"',
    "c=cat; $c /eval/x",
    "\\cat /eval/x",
    "/bin/cat /eval/x",
    "cp /bin/cat ./mine; ./mine /eval/x",
    "python3 -c \"print('/eval/x')\" | xargs cat",
    "vim -es -c ':r /eval/x' -c ':wq' out",
    "ed -s <<E\nr /eval/x\nw out\nE",
    "awk 'BEGIN { while ((getline l < \"/eval/x\") > 0) print l }'",
    "sed -n 'r /eval/x' a",
    "curl file:///eval/x",
    'ruby -e \'puts File.read(File.join("/ev" + "al", "x"))\'',
    "node -e \"require('fs').readFileSync(require('path').join('/', 'ev' + 'al', 'x'))\"",
    'perl -e \'my $d = "/ev" . "al"; open(my $f, "<", "$d/x")\'',
    'php -r \'echo file_get_contents("/ev" . "al/x");\'',
    'lua -e \'print(io.open("/ev" .. "al/x"):read())\'',
]

PROGRAMS = [
    ("grep -rn foo .", ["read /repo deep"]),
    ("grep foo a b", ["read /repo/a", "read /repo/b"]),
    ("grep -e foo -f pats a", ["read /repo/pats", "read /repo/a"]),
    ("rg foo .", ["read /repo"]),  # rg leaves out what is hidden: nothing protected is reached
    ("rg -uu foo .", ["read /repo deep"]),
    ("ls -la", ["list /repo"]),
    ("ls -R ..", ["list / deep"]),
    ("find . -name '*.py'", ["list /repo deep"]),
    ("find . -path ./.hidden -prune -o -name '*.py' -print", ["list /repo"]),
    ("find . -not -path './.hidden/*'", ["list /repo"]),
    ("find .. -maxdepth 1", ["list /"]),
    ("find / -path '/ev*' -name '*.d' -delete", ["list / deep", "delete /eval/\0.d deep ?"]),
    ("tar czf a.tgz --exclude=.hidden .", ["read /repo", "write /repo/a.tgz"]),
    ("tar cz -C / eval", ["read /eval deep"]),
    ("cp a b", ["read /repo/a", "write /repo/b"]),
    ("cp a b /tmp", ["read /repo/a", "write /tmp/a", "read /repo/b", "write /tmp/b"]),
    ("cp -t /tmp a", ["read /repo/a", "write /tmp/a"]),
    ("mv a b", ["read /repo/a deep", "write /repo/b", "delete /repo/a"]),
    ("rm -rf a", ["delete /repo/a deep"]),
    ("ln -s /eval e", ["link /eval", "write /repo/e"]),
    ("ln -s ../a sub/b", ["link /repo/a", "write /repo/sub/b"]),
    ("chmod -R 777 a", ["write /repo/a deep"]),
    ("dd if=a of=b", ["read /repo/a", "write /repo/b"]),
    ("tee -a a b < c", ["read /repo/c", "write /repo/a", "write /repo/b"]),
    ("sed -i.bak 's/a/b/' f", ["write /repo/f"]),
    ("sed -n 1,5p f", ["read /repo/f"]),
    ("perl -pi -e 's/a/b/' f", ["write /repo/f"]),
    ("awk '{print $1}' f", ["read /repo/f"]),
    ("yq -i '.a = 1' f.yml", ["write /repo/f.yml"]),
    ("sed -n 'w out' f; sed 's/w x/y/' f", ["write /repo/out", "read /repo/f", "read /repo/f"]),
    ("sed 's/a/b/w out' f", ["write /repo/out", "read /repo/f"]),
    ("sed '1r/a\n2!{W b\n};$w./c' f", ["read /a", "write /repo/b", "write /repo/c", "read /repo/f"]),
    ("sed -n '/return/p;/\\/w x/d;s/r a/w b/g;1i w /q' f", ["read /repo/f"]),
    ("sed '\\,a;r b,r c' f", ["read /repo/c", "read /repo/f"]),
    (
        "printf 'b\nc\n' > l; tar cf a.tar -T l",
        ["write /repo/l", "read /repo/l", "read /repo/b deep", "read /repo/c deep", "write /repo/a.tar"],
    ),
    ("tar cf a.tar -T l", ["read /repo/l", "read \0 deep ?", "write /repo/a.tar"]),
    ("tar xf a.tar --to-command 'cat b'", ["read /repo/b", "read /repo/a.tar", "write /repo"]),
    ("sort -o out a; uniq a out", ["read /repo/a", "write /repo/out", "read /repo/a", "write /repo/out"]),
    ("perl -ne 'print' f; perl -i.bak -pe 's/a/b/' f", ["read /repo/f", "write /repo/f"]),
    ("jq .a f.json", ["read /repo/f.json"]),
    ("mytool --in=/eval/x", ["read /eval/x"]),
    ("mytool @/eval/x", ["read /repo/@/eval/x", "read /eval/x"]),
    ("curl -o out https://h.example/a", ["net https://h.example/a", "write /repo/out"]),
    ("curl h.example/{a,b}", ["net http://h.example/a", "net http://h.example/b"]),
    ("wget -q http://h.example/a.tgz", ["net http://h.example/a.tgz", "write /repo/a.tgz"]),
    ("rsync -e ssh a h.example:/b", ["net ssh://h.example/b", "read /repo/a deep"]),
    ("nc h.example 80", ["net tcp://h.example:80"]),
    ("scp u@h.example:/a b", ["net ssh://u@h.example/a", "write /repo/b"]),
    ("openssl s_client -connect h.example:443", ["net tls://h.example:443"]),
    ("git clone https://h.example/a/b", ["git clone", "net https://h.example/a/b", "write /repo/b"]),
    ("git fetch git@h.example:a/b", ["git fetch", "net git@h.example:a/b"]),
    (
        "pip install 'a[x]>=1' -i https://h.example/simple",
        ["net https://h.example/simple", "install a[x]>=1"],
    ),
    ("python -m pip download a", ["install a"]),
    ("uv pip install a", ["install a"]),
    ("pip index versions a; pip show a; pip list", []),
    ("npm i a@1 --registry http://h.example", ["net http://h.example", "install a@1"]),
    ("npm pkg set scripts.test=true", ["write /repo/package.json"]),
    ("conda install -c forge a", ["install a"]),
    ("kill -9 $(pgrep -f judge)", ["process judge", "process judge"]),
    ("gdb -p 17 -batch", ["process 17"]),
    ("cat /proc/$$/status /proc/self/status", ["read /proc/self/status"]),
    ("bash -n run.sh", ["read /repo/run.sh"]),
    ("sh -n <<E\ncat /eval/x\nE", []),
    (
        "echo '* * * * * cp a /eval/b' | crontab -",
        ["process later later", "read /repo/a later", "write /eval/b later"],
    ),
    ("python -m json.tool a.json", ["read /repo/a.json"]),
    ("which pytest", []),
    ("true /eval/x; echo /eval/x; printf /eval/x", []),
]


@pytest.mark.parametrize(("command", "expected"), CONTROL + REDIRECTIONS + PROGRAMS)
def test_what_a_command_does(command, expected):
    assert told(command) == expected


@pytest.mark.parametrize("command", INDIRECT)
def test_a_command_inside_another_is_seen(command):
    assert [line for line in told(command) if line.startswith(("read /eval/", "read /ev\0/"))]


class TestDetails:
    def test_the_content_of_a_redirected_output_is_known(self):
        [write] = [e for e in effects("printf 'a%s' b > f.txt") if e.kind == "write"]
        assert write.content == "ab"

    def test_output_of_a_program_is_not(self):
        [write] = [e for e in effects("make > f.txt") if e.kind == "write"]
        assert write.content is None

    def test_program_text_that_is_written_is_said_and_read(self):
        found = effects("cat > a.sh <<'E'\ncat /eval/x\nE")
        [code] = [e for e in found if e.kind == "code"]
        assert (code.target, code.program, code.content) == ("/repo/a.sh", "bash", "cat /eval/x\n")
        [read] = [e for e in found if e.kind == "read"]
        assert (read.target, read.origin) == ("/eval/x", "written")

    def test_text_that_is_no_program_is_not_read(self):
        assert told("cat > a.md <<'E'\ncat /eval/x\nE") == ["write /repo/a.md"]

    def test_an_edit_says_what_it_puts_in(self):
        code = [e for e in effects("sed -i 's/a == b/True/' m.py") if e.kind == "code"]
        assert [(e.target, e.content) for e in code] == [("/repo/m.py", "True")]

    def test_git_says_its_repository(self):
        found = {
            e.folder
            for e in effects("git -C /tmp/x log; git --git-dir=/a/.git log; git log")
            if e.kind == "git"
        }
        assert found == {"/tmp/x", "/a", "/repo"}

    def test_git_aliases_are_followed(self):
        [git] = [
            e
            for e in effects("git config alias.x 'log --all'; git x")
            if e.kind == "git" and e.target == "log"
        ]
        assert git.detail == ("--all",)

    def test_a_run_has_its_folder_and_arguments(self):
        [run] = [e for e in effects("cd sub; ./a b") if e.target.endswith("/a")]
        assert (run.target, run.detail, run.folder) == ("/repo/sub/a", ("b",), "/repo/sub")

    def test_which_names_a_path_that_can_be_compared(self):
        assert "write /usr/bin/pytest" in told("ln -sf /bin/true $(which pytest)")

    def test_a_decoded_command_says_so(self):
        [read] = [e for e in effects("$(echo Y2F0 | base64 -d) /eval/x") if e.kind == "read"]
        assert read.origin == "decoded"

    def test_a_syntax_error_is_said_beside_what_can_be_seen(self):
        assert {"opaque syntax", "read /eval/x"} <= set(told("cat /eval/x )"))

    def test_a_command_name_that_is_not_known_is_said(self):
        assert "opaque unresolved" in told("$(python tool.py) a")

    def test_variables_that_programs_see_are_effects(self):
        found = [
            (e.target, e.program, e.detail) for e in effects("export A=1; B=2 make; C=3") if e.kind == "env"
        ]
        assert found == [("A", "export", ("1",)), ("B", "make", ("2",))]

    def test_a_recipe_of_packages_that_was_written_is_installed(self):
        recipe = "cat > env.yml <<E\ndependencies:\n  - numpy=1.0\n  - pip:\n    - lib==2.0\nE\n"
        recipe += "conda env create -f env.yml"
        assert [e.target for e in effects(recipe) if e.kind == "install"] == ["numpy=1.0", "lib==2.0"]

    def test_requirements_are_followed(self):
        found = effects("echo 'lib==2' > r.txt; pip install -r r.txt")
        assert [e.target for e in found if e.kind == "install"] == ["lib==2"]


class TestTools:
    def read(self, name: str, **arguments: str) -> list[str]:
        found = analyse(ToolCall(name, arguments), make_context())
        return [short(effect) for effect in found if effect.kind not in QUIET]

    def test_each_tool(self):
        assert self.read("read_file", path="../eval/x") == ["read /eval/x"]
        assert self.read("list_dir", path=".") == ["list /repo"]
        assert self.read("write_file", path="a.txt", content="x") == ["write /repo/a.txt"]
        assert self.read("str_replace", path="/repo/a.py", old_str="a", new_str="b") == ["write /repo/a.py"]
        assert self.read("http_get", url="http://h.example/a") == ["net http://h.example/a"]
        assert self.read("browser_goto", url="file:///eval/x") == ["net file:///eval/x", "read /eval/x"]
        assert self.read("web_search", query="how to") == ["text "]
        assert self.read("send_message", to="peer", content="hi") == ["text peer"]
        assert self.read("spawn_agent", task="do it") == ["text "]
        assert self.read("submit", text="done") == ["text "]
        assert self.read("env_action", action="look") == ["action "]
        assert self.read("search", pattern="a", path="/eval") == ["read /eval deep"]
        assert self.read("search", query="a") == ["text "]

    def test_an_unknown_tool_is_taken_for_what_its_strings_look_like(self):
        assert self.read("open_it", target="/eval/x") == ["read /eval/x"]
        assert self.read("open_it", where="https://h.example/") == ["net https://h.example/"]
        assert self.read("run_it", command="cat /eval/x") == ["read /eval/x"]
        assert self.read("say_it", words="some words") == ["text words"]
        assert self.read("odd") == []
