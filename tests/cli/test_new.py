from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest


def test_new_writes_four_files_and_prints_two_commands(call, tmp_path):
    called = call("new", "my_vault", "--dir", tmp_path / "envs")
    assert called.code == 0
    folder = tmp_path / "envs" / "my_vault"
    assert sorted(os.listdir(folder)) == ["README.md", "my_vault.py", "pyproject.toml", "test_my_vault.py"]
    assert "$" not in "".join(file.read_text() for file in folder.iterdir())
    commands = [line.strip() for line in called.out.splitlines() if line.startswith("    ")]
    assert [command.split(" -m ")[0].endswith("check my_vault:MyVault-v0") for command in commands] in (
        [False, False],
        [False, True],
    )
    assert "pytest" in commands[0]
    assert commands[1].endswith("check my_vault:MyVault-v0")


@pytest.mark.parametrize(("name", "cls"), [("my_vault", "MyVaultEnv"), ("vault_env", "VaultEnv")])
def test_the_class_is_called_env_once(call, tmp_path, name, cls):
    call("new", name, "--dir", tmp_path)
    text = (tmp_path / name / f"{name}.py").read_text()
    assert f"class {cls}(AgentEnv):" in text
    assert f'"{name}:{cls}"' in text


def test_new_json(call, tmp_path):
    answer = call("new", "my_vault", "--dir", tmp_path, "--json").json
    assert answer["id"] == "my_vault:MyVault-v0"
    assert len(answer["files"]) == 4
    assert len(answer["next"]) == 2


@pytest.mark.parametrize("name", ["My-Env", "1st", "a b", "../up", "class", "json", "numpy", "agentgym", ""])
def test_bad_names(call, tmp_path, name):
    called = call("new", name, "--dir", tmp_path)
    assert called.code == 2
    assert called.complaint
    assert os.listdir(tmp_path) == []


def test_new_overwrites_nothing(call, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "work.txt").write_text("precious")
    called = call("new", "mine", "--dir", tmp_path)
    assert called.code == 2
    assert "exists already" in called.complaint
    assert os.listdir(tmp_path / "mine") == ["work.txt"]


def test_new_refuses_a_file_as_folder(call, tmp_path):
    (tmp_path / "file").write_text("")
    called = call("new", "mine", "--dir", tmp_path / "file")
    assert called.code == 2
    assert "folder" in called.complaint


def test_the_environment_plays(call, tmp_path):
    call("new", "vault_for_test", "--dir", tmp_path)
    file = tmp_path / "vault_for_test" / "vault_for_test.py"
    spec = importlib.util.spec_from_file_location("vault_for_test", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    env = module.VaultForTestEnv()
    env.reset(seed=0)
    _, reward, terminated, _, _ = env.step(env.gold())
    assert (reward, terminated) == (1.0, True)


@pytest.mark.slow
def test_the_printed_commands_work_as_printed(tmp_path):
    made = subprocess.run(
        [sys.executable, "-m", "agentgym", "new", "my_vault"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    commands = [line.strip() for line in made.stdout.splitlines() if line.startswith("    ")]
    assert len(commands) == 2
    for command in commands:
        done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
