"""What is started for a command, what it is told and what it sees. No model is asked here."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from agentgym.blackbox.program import TASK_FILE, Door, Program
from agentgym.errors import UsageError
from agentgym.sandbox import Limits, make_sandbox

DOOR = Door("127.0.0.1", 40009, "the-key", "the-model")


@pytest.fixture
def box():
    with make_sandbox(limits=Limits(processes=64, output_bytes=20_000)) as box:
        yield box


def script(folder: Path, text: str, name: str = "prog") -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return str(path)


def test_it_is_told_the_task_and_the_model(box):
    end = Program("env").run(box, "Repair {it}.", DOOR)
    told = dict(line.split("=", 1) for line in end.stdout.splitlines())
    assert told["AGENTGYM_TASK"] == "Repair {it}."
    assert told["AGENTGYM_TASK_FILE"] == TASK_FILE
    assert told["AGENTGYM_WORKSPACE"] == box.workspace == told["PWD"]
    assert told["AGENTGYM_MODEL"] == "the-model"
    assert told["OPENAI_BASE_URL"] == told["OPENAI_API_BASE"] == "http://127.0.0.1:40009/v1"
    assert told["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:40009"
    assert told["OPENAI_API_KEY"] == told["ANTHROPIC_API_KEY"] == "the-key"
    assert (end.outcome, end.exit_code) == ("ended", 0)


def test_nothing_of_this_process_is_passed_on(box, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_HOST", "x")
    assert "SECRET_OF_THE_HOST" not in Program("env").run(box, "t", DOOR).stdout


def test_places_in_the_command_are_filled_once(box):
    command = (
        "printf '%s|' {task} {task_file} {workspace} {base_url} {url} {key} {model} '{\"a\": 1}' {other}"
    )
    end = Program(command).run(box, "say {key}", DOOR)
    assert end.stdout.split("|")[:-1] == [
        "say {key}",
        TASK_FILE,
        box.workspace,
        "http://127.0.0.1:40009/v1",
        "http://127.0.0.1:40009",
        "the-key",
        "the-model",
        '{"a": 1}',
        "{other}",
    ]


def test_variables_of_ones_own(box):
    end = Program("env", env={"NAME": "openai/{model}", "AGENTGYM_TASK": "mine"}).run(box, "t", DOOR)
    assert "NAME=openai/the-model\n" in end.stdout
    assert "AGENTGYM_TASK=mine\n" in end.stdout


def test_a_long_task_is_in_the_file_only(box):
    task = "x" * 200_000
    end = Program(f"bash -c 'wc -c < {TASK_FILE}; echo ${{AGENTGYM_TASK-none}}'").run(box, task, DOOR)
    assert end.stdout.split() == ["200000", "none"]


def test_odd_characters_in_a_task(box):
    end = Program("cat {task_file}").run(box, "ä漢\0\ud800 'quoted\"", DOOR)
    assert end.stdout == "ä漢\0? 'quoted\""


def test_the_task_file_is_outside_of_the_workspace_and_read_only(box):
    end = Program("bash -c 'ls -A; echo x >> {task_file}'").run(box, "t", DOOR)
    assert end.stdout == ""
    assert "Read-only file system" in end.stderr
    assert box.exec(["cat", TASK_FILE]).exit_code == 1  # gone with the program


def test_crash_and_last_words(box):
    end = Program("bash -c 'echo out; echo first >&2; echo the end >&2; exit 7'").run(box, "t", DOOR)
    assert (end.outcome, end.exit_code, end.last_words) == ("crashed", 7, "the end")


def test_time_limits_of_the_program_and_of_the_episode(box):
    end = Program("sleep 60", timeout=0.3).run(box, "t", DOOR)
    assert (end.outcome, end.exit_code) == ("timed_out", 137)
    assert Program("sleep 60", timeout=50).run(box, "t", DOOR, timeout=0.3).outcome == "timed_out"


def test_a_flood_of_output_is_cut(box):
    end = Program("bash -c 'yes | head -c 50000000; echo end >&2'").run(box, "t", DOOR)
    assert len(end.stdout) <= 4000
    assert end.stderr == "end\n"


def test_a_script_is_found_with_its_python(box, tmp_path):
    """Its first line names a Python of a virtual environment, which nothing else shows to the sandbox."""
    path = script(tmp_path, f"#!{sys.executable}\nimport sys, pytest\nprint(sys.executable, sys.argv[1:])\n")
    end = Program(f"{path} one 'two words'").run(box, "t", DOOR)
    assert end.stdout == f"{sys.executable} ['one', 'two words']\n", end.stderr


def test_the_repository_does_not_replace_the_programs_imports(box, tmp_path):
    """Commands of a SWE task have PYTHONPATH; there, a program in Python would import the package it repairs."""
    box.write("pytest.py", "print('the repository')")
    path = script(
        tmp_path,
        f"#!{sys.executable}\nimport subprocess, pytest\nprint(hasattr(pytest, 'main'), flush=True)\n"
        "subprocess.run(['python3', '-c', 'import pytest'])\n",
    )
    end = Program(path, env={"PYTHONPATH": "."}).run(box, "t", DOOR)
    assert end.stdout == "True\nthe repository\n", end.stderr


def test_a_python_and_a_module(box):
    end = Program(f"{sys.executable} -m json.tool {{task_file}}").run(box, '{"a":1}', DOOR)
    assert end.stdout == '{\n    "a": 1\n}\n', end.stderr


def test_what_is_shown_and_nothing_else(box, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "note").write_text("hello")
    (tmp_path / "secret").write_text("hidden")
    path = script(tmp_path, '#!/bin/sh\ncat /opt/data/note; ls -A "$(dirname "$0")"\n')
    end = Program(path, show={str(tmp_path / "data"): "/opt/data"}).run(box, "t", DOOR)
    assert end.stdout == "helloprog\n"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("", "got an empty text"),
        ("no-such-agent -x", "there is no 'no-such-agent' on this machine"),
        ("/usr", "there is no '/usr' on this machine that may be executed"),
        (__file__, r"that may be executed \(chmod \+x .*test_program\.py\)"),
        ("echo 'x", "cannot split"),
    ],
)
def test_mistakes_are_told_before_anything_runs(command, says):
    with pytest.raises(UsageError, match=says):
        Program(command)


def test_a_program_installed_beside_this_package_is_refused(monkeypatch, tmp_path):
    """What its Python has installed is shown to it; the bundled tasks come with their solutions."""
    monkeypatch.setattr("agentgym.blackbox.program._PACKAGE", Path(sys.prefix) / "lib" / "agentgym")
    with pytest.raises(
        UsageError, match=f"prog runs by {sys.executable}, which is installed beside agentgym"
    ):
        Program(script(tmp_path, f"#!{sys.executable}\n"))
    with pytest.raises(UsageError, match=f"^{sys.executable} is installed beside agentgym"):
        Program(f"{sys.executable} -c pass")


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_time_limit_that_is_none(seconds):
    with pytest.raises(UsageError, match="above 0 s"):
        Program("true", timeout=seconds)


def test_what_is_shown_has_a_place():
    with pytest.raises(UsageError, match="shown at an absolute path, got 'inside'"):
        Program("true", show={"/usr": "inside"})


def test_a_program_whose_name_begins_like_a_pythons(box, tmp_path):
    path = script(tmp_path, "#!/bin/sh\necho $0\n", "python-agent")
    assert Program(path).run(box, "t", DOOR).stdout == f"{path}\n"


def test_settings_are_json_values(tmp_path):
    program = Program("true", timeout=5, env={"A": "b"}, show={"/usr": "/more"})
    assert program.settings == {
        "command": "true",
        "timeout": 5,
        "env": {"A": "b"},
        "show": {"/usr": "/more"},
    }
