from __future__ import annotations

import subprocess
import sys

import pytest

from agentgym import InfrastructureError, __version__, registration
from agentgym.cli import VERBS, arguments, console, listing, main
from agentgym.errors import UsageError

PYTHON = [sys.executable, "-m", "agentgym"]


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help_names_every_verb(call, words):
    called = call(*words)
    assert called.code == 0
    assert all(f"  {verb} " in called.out for verb in VERBS)


def test_version(call):
    assert call("--version").out == f"agentgym {__version__}\n"


SUBVERBS = [["swe", "build"], ["swe", "validate"], ["swe", "grade"]]


@pytest.mark.parametrize("words", [*([verb] for verb in VERBS), *SUBVERBS])
def test_every_verb_has_help_with_an_example(call, words):
    called = call(*words, "--help")
    assert called.code == 0
    assert "Example:" in called.out
    assert f"agentgym {' '.join(words)}" in called.out


def test_help_ends_a_script_of_ones_own_without_a_traceback(capsys):
    with pytest.raises(SystemExit) as ended:
        arguments.parse(listing.Args, "mine", "What it does.", ["--help"])
    assert not ended.value.code
    assert "What it does." in capsys.readouterr().out


def test_unknown_verb(call):
    called = call("lst")
    assert called.code == 2
    assert "Did you mean 'list'?" in called.complaint


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["list", "--jsn"], "Perhaps you meant: --json"),
        (["run"], "ID"),
        (["run", "x", "--episodes", "many"], "expected --episodes INT|{all}, got 'many'"),
        (["run", "x", "--compact", "many"], "expected --compact INT, got 'many'"),
        (["run", "x", "--episode-timeout", "for ever, " * 9], "got 'for ever, for ever"),
        (["run", "x", "stray"], "stray"),
        (["swe", "grad"], "Did you mean 'grade'?"),
    ],
)
def test_parse_errors_are_one_line(call, words, says):
    called = call(*words)
    assert called.code == 2
    assert says in called.complaint
    assert "│" not in called.err


def test_a_bug_shows_its_traceback(call, monkeypatch):
    monkeypatch.setattr(listing, "_row", lambda entry: 1 / 0)
    called = call("list")
    assert called.code == 70
    assert "ZeroDivisionError" in called.err


def test_infrastructure_is_one_line(call, monkeypatch):
    def fail(entry):
        raise InfrastructureError("the disk is\nfull")

    monkeypatch.setattr(listing, "_row", fail)
    called = call("list")
    assert called.code == 3
    assert called.complaint == "agentgym: the disk is full\n"


def test_list_json(call):
    called = call("list", "--json")
    assert called.code == 0
    rows = {row["id"]: row for row in called.json}
    relay = rows["agentgym/Relay-v0"]
    assert set(relay) == {"id", "registry", "family", "available", "needs", "splits", "description"}
    assert relay["available"] is True
    assert relay["needs"] is None
    assert relay["registry"] == "gymnasium"


def test_list_says_what_is_missing(call, monkeypatch):
    monkeypatch.setenv("PATH", "")
    (row,) = [row for row in call("list", "--json").json if row["id"] == "agentgym/SWE-v0"]
    assert row["available"] is False
    assert row["needs"] == "needs the program git: apt-get install git"
    assert "needs the program git" in call("list").out


def test_list_keeps_the_name_of_the_extra(call, monkeypatch):
    """In square brackets, which the table would take for markup."""
    monkeypatch.setattr(registration.importlib.util, "find_spec", lambda name: None)
    assert "'agentgym-suite[text]'" in " ".join(call("list").out.split())


def test_list_imports_nothing_heavy():
    code = (
        "import sys; from agentgym.cli import main; main(['list']);"
        "print(sorted({'torch', 'transformers', 'matplotlib', 'scipy', 'jinja2', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_module_runs_as_a_program():
    done = subprocess.run([*PYTHON, "list", "--json"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("[")
    done = subprocess.run([*PYTHON, "frobnicate"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


def test_a_reader_that_leaves_is_no_bug():
    process = subprocess.Popen(
        [*PYTHON, "list", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    assert process.wait() in (0, 141)
    process.stderr.close()


def test_pairs_are_json_or_text():
    assert arguments.read_pairs(["a=1", "b=two", "c=[1]", "d=x=y", "e=", "f=true"]) == {
        "a": 1, "b": "two", "c": [1], "d": "x=y", "e": "", "f": True,
    }  # fmt: skip


@pytest.mark.parametrize("pairs", [["a"], ["=1"], ["a=1", "a=2"]])
def test_bad_pairs(pairs):
    with pytest.raises(UsageError):
        arguments.read_pairs(pairs)


def test_progress_prints_plain_lines_where_there_is_no_terminal(capsys, monkeypatch):
    monkeypatch.setattr(console, "_PLAIN_FIRST", 0.01)
    err = ""
    with console.Progress("things", 2) as progress:
        progress.step("first")
        while "first" not in err:  # a line may come before the step
            err = capsys.readouterr().err
    assert "1/2 things, first" in err.splitlines()[-1]


def test_a_short_verb_prints_no_progress(capsys):
    with console.Progress("things", 2) as progress:
        progress.step("first")
    assert capsys.readouterr().err == ""


def test_an_environment_that_exits_is_a_bug_and_no_success(call, monkeypatch, capsys):
    def leave(words):
        raise SystemExit(0)

    monkeypatch.setattr("agentgym.cli.listing.main", leave)
    assert main(["list"]) == 70
    assert "SystemExit" in capsys.readouterr().err


def test_a_file_in_the_current_folder_replaces_no_standard_module(tmp_path):
    (tmp_path / "html.py").write_text("raise SystemExit('the wrong html')\n")
    (tmp_path / "tabnanny.py").write_text("raise SystemExit('the wrong tabnanny')\n")
    code = "from agentgym.cli import main; main(['--version']); import tabnanny"
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
