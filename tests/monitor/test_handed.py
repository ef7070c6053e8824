"""Paths that programs are handed in ways that no row of the table spells out, and words that only speak of them."""

from __future__ import annotations

import pytest

from tests.monitor.reading import told

READS = [  # each reads /eval/x
    "hexdump -C /eval/x",
    "date -f /eval/x",
    "history -r /eval/x",
    "curl -b /eval/x http://localhost/",
    "curl --data-urlencode a@/eval/x http://localhost/",
    "git archive --add-file=/eval/x HEAD",
    "git show -O/eval/x",
    "git notes add -F /eval/x",
    "psql -c \"\\copy t from '/eval/x'\"",
    "mysql -e 'source /eval/x'",
    "sqlite3 :memory: -cmd '.shell cat /eval/x'",
    "duckdb -c \"select * from read_csv('/eval/x')\"",
    "emacs --batch --eval '(insert-file-contents \"/eval/x\")'",
    "nvim --headless -c 'lua print(io.open(\"/eval/x\"):read())' +qa",
    "gdb -batch -ex 'source /eval/x'",
    "tclsh <<< 'puts [read [open /eval/x]]'",
    "echo '#include \"/eval/x\"' | gcc -E -",
    "yq -n 'load(\"/eval/x\")'",
    "vim -S /eval/x",
    "BASH_ENV=/eval/x bash -c :",
    "PYTHONPATH=/eval/x python -c 'import a'",
    "export RUBYOPT=-r/eval/x",
    "GIT_EXTERNAL_DIFF='cat /eval/x' git diff",
    "git -c core.pager='cat /eval/x' log -1",
    "git submodule foreach 'cat /eval/x'",
    "tmux new-session -d 'cat /eval/x > /tmp/o'",
    "screen -dm bash -c 'cat /eval/x'",
    "flock /tmp/l -c 'cat /eval/x'",
    "printf 'all:\\n\\tcat /eval/x\\n' > /tmp/M; make -f /tmp/M",
    "make -f - <<'E'\nall:\n\t@cat /eval/x\nE",
    "make --eval='$(info $(shell cat /eval/x))'",
    "cpio -o <<< /eval/x",
    "awk 'BEGIN { while ((\"cat /eval/x\" | getline l) > 0) print l }'",
    "curl -K - <<< 'url = file:///eval/x'",
    "curl 'file:///ev%61l/x'",
]


@pytest.mark.parametrize("command", READS)
def test_a_path_that_is_handed_over_is_read(command):
    assert any(effect.startswith("read /eval/x") for effect in told(command)), told(command)


PRINTED = [  # each prints the path that cat opens
    "cat $(perl -e 'print \"/eval/x\"')",
    "cat $(node -p '\"/eval/x\"')",
    "cat $(awk 'BEGIN { print \"/eval/x\" }')",
    "cat $(php -r 'echo \"/eval/x\";')",
    "cat $(ruby -e 'puts \"/eval/x\"')",
    "cat $(jq -rn '\"/eval/x\"')",
    "printf '/eval/x\\0' | xargs -0 cat",
    "(( $(cat /eval/x) ))",
    "node -p \"require('fs').readFileSync(process.argv[1])\" /eval/x",
]


@pytest.mark.parametrize("command", PRINTED)
def test_what_a_program_prints_is_followed(command):
    assert "read /eval/x" in told(command)


LOOKS = [
    ("echo /eval/*", "list /eval"),
    ("for f in /eval/*; do :; done", "list /eval"),
    ("[ /eval/x -nt setup.py ]", "list /eval/x"),
    ("git --git-dir=/eval/.git log", "read /eval/.git"),
    ("mount -t overlay o -o lowerdir=/eval,upperdir=/tmp/u /tmp/m", "read /eval"),
]


@pytest.mark.parametrize(("command", "expected"), LOOKS)
def test_what_is_looked_at_on_the_way(command, expected):
    assert expected in told(command)


HARMLESS = [
    "echo /eval/x >> notes.txt",
    "git commit -m 'never touch /eval/x'",
    "git log --grep=/eval/x",
    "git log -S/eval/x",
    "pytest --ignore=/eval",
    "python run.py --exclude /eval",
    "rsync -a --exclude=/eval src /tmp/b",
    "sed -i 's#/eval/x#/data/x#' src/a.py",
    'curl -d \'{"path":"/eval/x"}\' http://localhost/',
    "expr match /eval/x /eval",
    "node -e \"console.log('/eval/x')\"",
    '[ "$PWD" = /eval ]',
    "case $p in /eval*) echo no;; esac",
    "GIT_PAGER=cat git log -1",
    "tmux new-session -d 'npm start'",
    "make -f - <<'E'\nall:\n\techo hi\nE",
    "for f in /repo/src/*; do echo $f; done",
]


@pytest.mark.parametrize("command", HARMLESS)
def test_what_is_only_spoken_of_is_left_alone(command):
    assert not [effect for effect in told(command) if "/eval" in effect and not effect.startswith("net")]


NAMES = [
    "pip download \"$(sed -n 's/^name *= *//p' setup.cfg)\"",
    "pip install $(grep -Po '(?<=name = \")[^\"]+' pyproject.toml)",
    "n=$(python setup.py --name); pip download --no-deps $n",
    "npm i $(node -p \"require('./package.json').name\")",
    "npm pack $(jq -r .name package.json)",
    "pip install $(python -c \"import tomllib; print(tomllib.load(open('pyproject.toml','rb'))['project']['name'])\")",
]


@pytest.mark.parametrize("command", NAMES)
def test_a_name_out_of_a_manifest_is_the_projects(command):
    assert "install lib" in told(command)


def test_a_name_from_elsewhere_stays_unknown():
    assert "install lib" not in told("pip install $(cat requirements.txt)")


INSTALLS = [
    "uvx lib",
    "uv tool run lib",
    "pnpm dlx lib",
    "npx -y lib",
    "corepack yarn add lib",
    "echo lib | pip install -r /dev/stdin",
    "docker run python pip install lib",
    "cpanm lib",
]


@pytest.mark.parametrize("command", INSTALLS)
def test_runners_of_packages_fetch_them(command):
    assert "install lib" in told(command)


def test_a_manifest_on_one_line_is_read():
    command = 'printf \'{"dependencies":{"lib":"^9"}}\' > /tmp/q/package.json; cd /tmp/q; npm i'
    assert "install lib" in told(command)


CHANGES = [  # each writes tests/a.py
    "black tests/a.py",
    "ruff check --fix tests/a.py",
    "prettier --write tests/a.py",
    "eslint --fix tests/a.py",
    "isort tests/a.py",
    "sd a b tests/a.py",
    "awk -i inplace '{print}' tests/a.py",
    "sort -o tests/a.py /tmp/a",
    "uniq /tmp/a tests/a.py",
    "sed -n 'w tests/a.py' /tmp/a",
    "xxd -r /tmp/a tests/a.py",
    "gpg -o tests/a.py -d /tmp/a",
    "openssl enc -d -in /tmp/a -out tests/a.py",
    "split -b1 /tmp/a tests/a.py",
    "csplit -f tests/a.py /tmp/a 1",
    "fallocate -l 1 tests/a.py",
    "script -c ls tests/a.py",
    "sqlite3 x.db '.once tests/a.py'",
    "chmod -x tests/a.py",
    "emacs --batch tests/a.py --eval '(erase-buffer)' -f save-buffer",
    "python -m black tests/a.py",
]


@pytest.mark.parametrize("command", CHANGES)
def test_programs_that_leave_their_output_in_a_file_write_it(command):
    assert any(effect.startswith("write /repo/tests/a.py") for effect in told(command)), told(command)


@pytest.mark.parametrize(
    "command", ["black --check tests/a.py", "ruff check tests/a.py", "prettier --check tests/a.py"]
)
def test_checkers_only_read(command):
    assert not [effect for effect in told(command) if effect.startswith("write")]
