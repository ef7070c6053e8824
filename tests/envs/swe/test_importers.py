"""Rows of other projects, in the small files under shapes/; expected values are written by hand from their sources."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.envs.swe.grading import validate_records
from agentgym.envs.swe.importers import FAMILIES, FORMS, form_of, own_form, reading
from agentgym.envs.swe.importers.common import changed_files, new_file_diff, words_of
from agentgym.envs.swe.importers.projects import PROJECTS, parser_name
from agentgym.envs.swe.importers.reading import is_dataset_name, read_source
from agentgym.envs.swe.importers.writing import import_records
from agentgym.envs.swe.records import (
    SweRecord,
    load_records,
    missing,
    read_record,
    record_from_dict,
    record_to_dict,
)
from agentgym.envs.swe.repo import apply_patch, pack_tree, tree_diff
from agentgym.errors import TaskError, UsageError
from agentgym.verifiers.log_parsers import PARSERS

SHAPES = Path(__file__).with_name("shapes")
CONDA = "/opt/miniconda3/envs/testbed/bin/python"


def shape(name: str) -> list[SweRecord]:
    return load_records(SHAPES / name)


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (SHAPES / name).read_text().splitlines()]


@pytest.mark.parametrize(
    ("name", "forms"),
    [
        ("swebench.jsonl", ["swebench"] * 3),
        ("swebench_tasks", ["swebench"]),
        ("swesmith.jsonl", ["swesmith"] * 2),
        ("swegym.jsonl", ["swegym"]),
        ("rebench.jsonl", ["rebench"] * 2),
        ("r2egym.jsonl", ["r2egym"] * 2),
        ("pro.jsonl", ["pro"] * 2),
        ("live.jsonl", ["live"] * 2),
        ("harbor", ["harbor"] * 2),
        ("pull_requests.jsonl", ["swebench", "own"]),
    ],
)
def test_the_form_is_told_by_the_fields(name: str, forms: list[str]) -> None:
    found = [read_record(row) for row in read_source(SHAPES / name)]
    assert [form for _, form in found] == forms
    for record, _ in found:
        written = record_to_dict(record)
        assert form_of(written) == "own", "what we wrote is read as ours"
        assert record_from_dict(written, folder=record.folder) == record


def test_swebench() -> None:
    django, astropy, sympy = shape("swebench.jsonl")
    assert django.image == "swebench/sweb.eval.x86_64.django_1776_django-11099:latest"
    assert (django.workdir, django.image_python, django.log_parser) == ("/testbed", CONDA, "django")
    assert django.test_command[-6:] == (
        *("./tests/runtests.py", "--verbosity", "2"),
        *("--settings=test_sqlite", "--parallel", "1"),
    )
    assert django.test_targets == ("tests/auth_tests/test_validators.py",), "not the fixture"
    assert django.fail_to_pass == (
        "test_ascii_validator (auth_tests.test_validators.UsernameValidatorsTests)",
    )
    assert django.extra["environment_setup_commit"] == "419a78300f7cd27611196e1e464d50fd0385ff27"
    assert (astropy.log_parser, astropy.version) == ("pytest_v2", "1.3")
    assert astropy.test_targets == ("astropy/units/tests/test_units.py",)
    assert (
        "astropy/units/tests/test_units.py::test_compose_fractional_powers[log(photon" in astropy.pass_to_pass
    )
    assert sympy.test_command == (
        *("env", "PYTHONWARNINGS=ignore::UserWarning,ignore::SyntaxWarning"),
        *("bin/test", "-C", "--verbose"),
    )
    assert (sympy.log_parser, sympy.fail_to_pass) == ("sympy", ("test_immutable",))
    assert [missing(record) for record in (django, astropy, sympy)] == [[], [], []]


def test_the_labels_of_django_in_a_script_are_its_targets() -> None:
    script = ": '>>>>> Start Test Output'\n./tests/runtests.py --verbosity 2 auth_tests.test_validators\n"
    row = {**rows("swebench.jsonl")[0], "eval_script": script + ": '>>>>> End Test Output'\n"}
    record = record_from_dict(own_form(row)[0])
    assert record.test_command == ("./tests/runtests.py", "--verbosity", "2")
    assert record.test_targets == ("tests/auth_tests/test_validators.py",)


def test_swebench_multilingual() -> None:
    row = {
        **rows("swebench.jsonl")[2],
        "repo": "tokio-rs/tokio",
        "instance_id": "tokio-rs__tokio-4384",
        "version": "4384",
    }
    record = record_from_dict(own_form(row)[0])
    assert record.image == "swebench/sweb.eval.x86_64.tokio-rs_1776_tokio-4384:latest"
    assert (record.image_python, record.test_command) == ("", ())
    assert missing(record) == ["its log parser 'cargo' is not known"]


def test_swebench_task_folders() -> None:
    (record,) = shape("swebench_tasks")
    assert record.instance_id == "psf__requests-2317"
    assert record.version == "2.40", "not the number 2.4"
    assert record.image == "swebench/sweb.eval.x86_64.psf_1776_requests-2317:latest"
    assert record.test_command == ("pytest", "-rA", "--tb=short")
    assert record.test_targets == ("test_requests.py",)
    assert record.log_parser == "pytest_options"
    assert record.problem_statement == "method = builtin_str(method) problem\n"
    assert "-a = 1\r\n+a = 2\r\n" in record.test_patch, "line ends stay"
    assert "to_native_string" in record.patch
    assert record.extra["split"] == "test"
    (alone,) = load_records(SHAPES / "swebench_tasks/tasks/psf__requests-2317")
    assert alone == record


def test_swesmith_has_the_bug_as_its_patch() -> None:
    record, slugify = shape("swesmith.jsonl")
    assert record.patch == ""
    assert "-    return value\n+    return None" in record.bug_patch
    assert record.repo == "oauthlib/oauthlib"
    assert record.version == "1fd52536"
    assert record.image == "jyangballin/swesmith.x86_64.oauthlib_1776_oauthlib.1fd52536"
    assert record.test_targets == ("tests/test_common.py", "tests/oauth1/test_client.py")
    assert (record.log_parser, record.test_command) == ("", ()), "our own pytest runner"
    assert slugify.image == "swebench/swesmith.x86_64.un33k_1776_python-slugify.872b3750"
    assert slugify.test_command == ("bash", "-c", "python test.py --verbose"), (
        "all its tests; it takes no files"
    )
    assert slugify.log_parser == "unittest"
    assert missing(slugify) == ["no problem statement"]


def test_swesmith_without_an_image_name() -> None:
    row = rows("swesmith.jsonl")[0]
    del row["image_name"]
    record = record_from_dict(own_form(row)[0])
    assert record.image == "jyangballin/swesmith.x86_64.oauthlib_1776_oauthlib.1fd52536"
    with pytest.raises(TaskError, match=r"expected `repo` to be a mirror OWNER__NAME\.COMMIT8, got 'a/b'"):
        own_form({**row, "repo": "a/b"}, "swesmith")
    image = "swesmith.x86_64.a_1776_b.12345678"
    record = record_from_dict(own_form({**row, "repo": "a/b", "image_name": image})[0])
    assert (record.repo, record.image) == ("a/b", f"jyangballin/{image}")
    with_tree = record_from_dict(own_form({**row, "snapshot": "clean.tar.gz"})[0])
    assert (with_tree.snapshot, with_tree.image) == ("clean.tar.gz", "")
    assert with_tree.bug_patch == row["patch"]


def test_swegym() -> None:
    (record,) = shape("swegym.jsonl")
    assert record.image == "xingyaoww/sweb.eval.x86_64.getmoto_s_moto-7365:latest"
    assert record.test_targets == ("tests/test_dynamodb/test_dynamodb_update_expressions.py",)


def test_rebench() -> None:
    first, second = shape("rebench.jsonl")
    assert first.image == "swerebench/sweb.eval.x86_64.oemof_1776_tespy-653"
    assert (first.workdir, first.image_python, first.log_parser) == ("/testbed", CONDA, "pytest")
    assert first.test_command[:4] == ("pytest", "--no-header", "-rA", "--tb=line")
    assert (first.requirements, first.license) == ((), "MIT")
    assert first.extra["install_config"]["python"] == "3.9"
    assert (second.workdir, second.image_python) == ("/fiber", "")
    assert second.test_command == ("bash", "-c", "go build ./... && go test -v ./...")
    assert second.fail_to_pass == ("TestCtx",)
    assert missing(second) == ["its log parser 'gotest' is not known"]
    with_tree = record_from_dict(own_form({**rows("rebench.jsonl")[0], "snapshot": "t.tar.gz"})[0])
    assert with_tree.requirements == ("attrs==24.2.0",), "pins, without the project and what cannot be pinned"


def test_r2egym(tmp_path: Path) -> None:
    record, bare = shape("r2egym.jsonl")
    assert record.instance_id == "pkg-" + "2" * 40
    assert record.image == "namanjain12/pkg_final:" + "2" * 40
    assert record.problem_statement == "**Title:** add() subtracts"
    assert record.fail_to_pass == ("r2e_tests/test_1.py::TestAdd::test_two",)
    assert record.pass_to_pass == (
        "r2e_tests/test_1.py::TestAdd::test_many[1 - 2]",
        "r2e_tests/test_1.py::test_zero",
    )
    assert record.test_targets == ("r2e_tests",)
    assert missing(record) == []
    assert "parsed_commit_content" not in record.extra

    (tmp_path / "pkg/tests").mkdir(parents=True)
    (tmp_path / "pkg/core.py").write_text("def add(a, b):\n    return a - b\n# end\n")
    (tmp_path / "pkg/tests/test_core.py").write_text("a\n")
    apply_patch(tmp_path, record.patch)
    apply_patch(tmp_path, record.test_patch)
    assert (tmp_path / "pkg/core.py").read_text() == "def add(a, b):\n    return a + b\n# end\n"
    assert (tmp_path / "pkg/new.py").read_text() == "x = 1"
    assert (tmp_path / "pkg/tests/test_core.py").read_text() == "a\n", "tests are no part of the gold patch"
    code = json.loads(rows("r2egym.jsonl")[0]["execution_result_content"])["test_file_codes"][0]
    assert (tmp_path / "r2e_tests/test_1.py").read_text() == code

    assert set(bare.fail_to_pass) == {"TestAdd.test_two", "TestAdd.test_many[1", "test_zero"}
    assert missing(bare) == ["its log parser 'r2egym' is not known"]


def test_pro() -> None:
    python, script = shape("pro.jsonl")
    assert (
        python.image == "jefzda/sweap-images:qutebrowser.qutebrowser-qutebrowser__qutebrowser-7f9713b20f62-v1"
    )
    assert python.workdir == "/app"
    assert python.problem_statement == (
        "# Log handling\nis scattered\n\nRequirements:\n- `qtlog` must exist.\n\n"
        "New interfaces introduced:\nFunction: `qt_message_handler`"
    )
    assert python.fail_to_pass == (
        "tests/unit/utils/test_log.py::TestHideQtWarning::test_unfiltered",
        'tests/unit/utils/test_qtlog.py::test_x["a"]',
    )
    assert python.pass_to_pass == ("tests/unit/utils/test_log.py::test_it's",)
    assert python.test_targets == ("tests/unit/utils/test_log.py", "tests/unit/utils/test_qtlog.py")
    assert python.extra["before_repo_set_cmd"].startswith("git reset")
    assert (python.requirements, python.test_command) == ((), ())
    assert script.image == "jefzda/sweap-images:element-hq.element-element-hq__element-web-abc"
    assert missing(script) == [
        "no log parser, and its tests are not pytest's, such as 'test/a-test.ts | Room | shows'"
    ]


def test_live() -> None:
    first, other = shape("live.jsonl")
    assert first.image == "starryzhang/sweb.eval.x86_64.streamlink_1776_streamlink-6381"
    assert (first.test_command, first.log_parser) == (("pytest", "-rA"), "pytest")
    assert first.test_targets == ("tests/utils/test_parse.py", "tests/test_api.py")
    script = "cargo build\nfailed=0\ncargo test > log.txt 2>&1\n(($?)) && failed=1\ncat log.txt\nexit $failed"
    assert other.test_command == ("bash", "-c", script)
    assert missing(other) == ["its log parser 'def parser(log):' is not known"]


def test_live_is_run_by_our_runner_where_it_calls_pytest() -> None:
    row = {**rows("live.jsonl")[0], "rebuild_cmds": ["pip install ."], "print_cmds": ["cat reports.txt"]}
    for line in ("pytest -rA -k 'not slow' > reports.txt 2>&1", "python -m pytest -rA | tee reports.txt"):
        command = record_from_dict(own_form({**row, "test_cmds": [line]})[0]).test_command
        assert command == tuple(shlex.split(line.partition(" > ")[0].partition(" | ")[0]))
    both = record_from_dict(own_form({**row, "test_cmds": ["pytest -rA", "pytest -rA more"]})[0])
    assert both.test_command[:2] == ("bash", "-c")


@pytest.mark.parametrize(("statuses", "expected"), [("0 0", 0), ("1 0", 1), ("0 4", 1)])
def test_live_ends_as_its_tests_do(statuses: str, expected: int) -> None:
    tests = [f"(exit {status})" for status in statuses.split()]
    row = {**rows("live.jsonl")[0], "test_cmds": tests, "rebuild_cmds": ["false"], "print_cmds": ["true"]}
    command = record_from_dict(own_form(row)[0]).test_command
    assert subprocess.run(command, check=False).returncode == expected


def test_only_python_files_are_targets_where_there_are_any() -> None:
    row = rows("swegym.jsonl")[0]
    diff = "--- a/tests/{0}\n+++ b/tests/{0}\n@@ -1 +1 @@\n-a\n+b\n"
    row |= {"PASS_TO_PASS": [], "FAIL_TO_PASS": ["tests/test_a.py::test_x"]}
    row["test_patch"] = "".join(diff.format(name) for name in ("roots/index.rst", "a.html", "test_a.py"))
    assert record_from_dict(own_form(row)[0]).test_targets == ("tests/test_a.py",)


def test_harbor() -> None:
    hello, sympy = shape("harbor")
    assert (hello.instance_id, hello.image, hello.workdir) == ("hello-world", "example/hello:1", "/app")
    assert (hello.limits.time_s, hello.limits.memory_mb) == (120.0, 4096)
    assert hello.problem_statement.startswith("Create a file called hello.txt")
    assert missing(hello) == ["no tests: FAIL_TO_PASS is empty"]
    assert sympy == shape("swebench.jsonl")[2], "the record that is in the folder"


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("task.toml", "[", "expected task.toml to be TOML"),
        ("task.toml", "environment = 3", "expected `environment` to be an object"),
        (
            "task.toml",
            "[environment]\nmemory = 'much'",
            "expected `environment.memory` to be a size such as '4G'",
        ),
        ("tests/config.json", '{"instance_id": 3}', "expected `instance_id`"),
        ("tests/config.json", '{"instance_id": "a", "patch": 3}', "expected `patch`"),
        (
            "tests/config.json",
            '{"instance_id": "a", "instruction": "", "harbor_settings": {}}',
            "tests/config.json: expected a record, got another Harbor task",
        ),
    ],
)
def test_a_broken_harbor_task_is_named(tmp_path: Path, file: str, text: str, expected: str) -> None:
    shutil.copytree(SHAPES / "harbor/hello-world", tmp_path / "hello")
    (tmp_path / "hello" / file).write_text(text)
    with pytest.raises(TaskError) as caught:
        load_records(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}, folder hello: ")
    assert expected in str(caught.value)


def test_pull_requests_in_their_form_and_ours() -> None:
    theirs, ours = shape("pull_requests.jsonl")
    assert theirs.test_targets == ("checks/test_core.py",)
    assert missing(theirs) == ["no snapshot and no image: nothing holds its tree"]
    assert (ours.test_targets, ours.snapshot) == (("tests",), "tally.tar.gz")
    assert missing(ours) == ["its snapshot tally.tar.gz is not there"]
    with pytest.raises(TaskError, match="acme__tally-12: expected a `snapshot`, the record has none"):
        theirs.snapshot_path()


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["tests/a.py::x", "tests/deep/b.py::y"], ("tests",)),
        (["a.py::x", "pkg/tests/b.py::y", "a.py::z"], ("a.py", "pkg/tests/b.py")),
        (["tests/a.py::x", "b.py::y"], ("tests", "b.py")),
        (["tests.a::x"], ("tests",)),
    ],
)
def test_our_records_find_their_tests_without_targets(ids: list[str], expected: tuple[str, ...]) -> None:
    row = {"instance_id": "a", "snapshot": "s.tar.gz", "FAIL_TO_PASS": ids[:1], "PASS_TO_PASS": ids[1:]}
    assert record_from_dict(own_form(row)[0]).test_targets == expected
    given = {**row, "test_targets": ["checks"]}
    assert record_from_dict(own_form(given)[0]).test_targets == ("checks",)


def test_an_image_is_missing_where_it_is_said_not_to_be_there() -> None:
    record = shape("swebench.jsonl")[0]
    asked: list[str] = []
    lacks = missing(record, image_here=lambda name: bool(asked.append(name)))
    assert asked == [record.image]
    assert lacks == [f"its image {record.image} is not on this machine; playing it would pull it"]
    assert missing(record, image_here=lambda name: True) == []


@pytest.mark.parametrize(
    "ids",
    [["t.py::a", "t.py::b"], '["t.py::a", "t.py::b"]', "['t.py::a', 't.py::b']", "('t.py::a', \"t.py::b\")"],
)
def test_lists_of_tests_in_any_spelling(ids: Any) -> None:
    row = {**rows("swebench.jsonl")[0], "FAIL_TO_PASS": ids, "PASS_TO_PASS": ""}
    record = record_from_dict(own_form(row)[0])
    assert (record.fail_to_pass, record.pass_to_pass) == (("t.py::a", "t.py::b"), ())


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"FAIL_TO_PASS": "tests/a.py::x"}, "expected `FAIL_TO_PASS` to be a list of texts, or it as JSON"),
        ({"FAIL_TO_PASS": "[f()]"}, "expected `FAIL_TO_PASS`"),
        ({"PASS_TO_PASS": '{"a": 1}'}, "expected `PASS_TO_PASS`"),
        ({"patch": 3}, "expected `patch` to be a text, got 3"),
        ({"test_patch": ["x"]}, "expected `test_patch` to be a text"),
        ({"instance_id": None}, "expected `instance_id`"),
        (
            {"repo": "swesmith/a__b.12345678", "test_patch": None, "patch": " "},
            "expected `patch`, the diff that makes",
        ),
        ({"install_config": "{"}, "expected `install_config` to be an object"),
        ({"install_config": {}, "repo": "django"}, "expected `repo` to be OWNER/NAME"),
        ({"test_cmds": ["pytest 'x"]}, "expected `test_cmds` to be a shell line"),
        ({"test_cmds": 3}, "expected `test_cmds`"),
        ({"expected_output_json": "[1]"}, "expected `expected_output_json` to be an object"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, change: dict[str, Any], expected: str) -> None:
    file = tmp_path / "dump.jsonl"
    good, other = rows("swebench.jsonl")[:2]
    other.update(repo="django/django")
    file.write_text(
        json.dumps(good) + "\n\n" + json.dumps({**other, "commit_hash": "1", "repo_name": "x", **change})
    )
    with pytest.raises(TaskError) as caught:
        load_records(file)
    assert "dump.jsonl, line 3: " in str(caught.value)
    assert expected in str(caught.value)


def test_a_form_can_be_forced() -> None:
    row = rows("swebench.jsonl")[0]
    assert own_form(row, "own") == ({key: value for key, value in row.items() if value is not None}, "own")
    assert own_form(row, "swegym")[0]["image"] == "xingyaoww/sweb.eval.x86_64.django_s_django-11099:latest"
    with pytest.raises(UsageError, match="Did you mean 'swebench'"):
        own_form(row, "swebenchh")


def test_every_parser_named_for_a_project_exists() -> None:
    assert {run.log_parser for run in PROJECTS.values()} <= PARSERS.keys()
    assert parser_name("parse_log_flask") == "pytest"
    assert parser_name("parse_log_scikit") == "pytest_v2"
    assert parser_name("parse_log_cargo") == "cargo"


def test_test_files_of_a_diff() -> None:
    diff = (
        "--- a/t/old.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        "--- a/t/same.py\t2020\n+++ b/t/same.py\t2020\n@@ -1 +1 @@\n-x\n+y\n"
        "--- /dev/null\n+++ b/t/data.json\n@@ -0,0 +1 @@\n+{}\n"
        '--- /dev/null\n+++ "b/t/new one.py"\n@@ -0,0 +1 @@\n+++ x\n'
    )
    assert changed_files(diff) == ["t/same.py", "t/new one.py"]


@pytest.mark.parametrize("text", ["", "a", "a\n", "a\nb", "\n", "a\n\n", "+x\n-y\n"])
def test_the_diff_of_a_new_file(tmp_path: Path, text: str) -> None:
    apply_patch(tmp_path, new_file_diff("deep/file.py", text))
    assert (tmp_path / "deep/file.py").read_text() == text


def test_words_of_a_shell_line() -> None:
    assert words_of("pytest -k 'a b'", "x") == ["pytest", "-k", "a b"]
    assert words_of("A=1 make test", "x") == ["env", "A=1", "make", "test"]
    assert words_of("cd x && make", "x") == ["bash", "-c", "cd x && make"]
    assert words_of("", "x") == []


# Sources


def test_json_files(tmp_path: Path) -> None:
    good = rows("swebench.jsonl")
    file = tmp_path / "dump.json"
    file.write_text(json.dumps(good))
    assert load_records(file) == shape("swebench.jsonl")
    file.write_text(json.dumps({row["instance_id"]: row for row in good}))
    assert load_records(file) == shape("swebench.jsonl")
    file.write_text(json.dumps(good[0]))
    assert load_records(file) == shape("swebench.jsonl")[:1]
    file.write_text("[3]")
    with pytest.raises(TaskError, match=r"dump\.json, row 1: expected a JSON object, got int"):
        load_records(file)
    file.write_text("{")
    with pytest.raises(TaskError, match=r"expected dump\.json to be JSON"):
        load_records(file)


def test_parquet_files_and_folders_of_them(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    import datetime

    table = [{**row, "created_at": datetime.datetime(2020, 1, 2)} for row in rows("swebench.jsonl")]
    (tmp_path / "data").mkdir()
    parquet.write_table(pa.Table.from_pylist(table[:2]), tmp_path / "data/test-00000-of-00001.parquet")
    parquet.write_table(pa.Table.from_pylist(table[2:]), tmp_path / "data/dev-00000-of-00001.parquet")
    records = load_records(tmp_path)
    assert [record.instance_id for record in records] == [
        "sympy__sympy-20590", "django__django-11099", "astropy__astropy-7606"
    ]  # fmt: skip
    assert records[0].extra["created_at"] == "2020-01-02 00:00:00"
    assert [row.number for row in read_source(tmp_path, split="test")] == [1, 2]
    assert load_records(tmp_path / "data/dev-00000-of-00001.parquet") == records[:1]


def test_folders(tmp_path: Path) -> None:
    with pytest.raises(
        TaskError, match=r"expected tasks\.jsonl, .* or task folders with task\.toml or task\.yaml"
    ):
        load_records(tmp_path)
    (tmp_path / "some.jsonl").write_text((SHAPES / "swegym.jsonl").read_text())
    (tmp_path / "tasks.jsonl").write_text((SHAPES / "live.jsonl").read_text())
    assert load_records(tmp_path) == shape("live.jsonl")
    (tmp_path / "tasks.jsonl").unlink()
    assert load_records(tmp_path) == shape("swegym.jsonl")


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("tests.json", "[1]", "expected tests.json to hold an object"),
        ("tests.json", "{", "expected tests.json to be JSON"),
        ("task.yaml", "a: [", "expected task.yaml to be YAML"),
        ("task.yaml", "- 1", "expected task.yaml to hold a mapping"),
        ("problem_statement.md", None, "cannot read problem_statement.md"),
    ],
)
def test_a_broken_task_folder_is_named(tmp_path: Path, file: str, text: str | None, expected: str) -> None:
    (tmp_path / "x-1").mkdir()
    (tmp_path / "x-1/task.yaml").write_text("repo: a/b\n")
    (tmp_path / "x-1/tests.json").write_text("{}")
    (tmp_path / "x-1" / file).write_bytes(b"\xff" if text is None else text.encode())
    with pytest.raises(TaskError) as caught:
        load_records(tmp_path)
    assert f"{tmp_path}, folder x-1: {expected}" in str(caught.value)


def test_names_of_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_dataset_name("SWE-bench/SWE-bench_Verified")
    assert not is_dataset_name("dumps/tasks.jsonl")
    assert not is_dataset_name("tasks.jsonl")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner/name").mkdir(parents=True)
    assert not is_dataset_name("owner/name")


# Importing


def test_import_copies_snapshots_and_skips_broken_rows(tmp_path: Path) -> None:
    source = tmp_path / "from"
    source.mkdir()
    (source / "a.tar.gz").write_bytes(b"tree")
    (source / "b.tar.gz").write_bytes(b"tree")
    task = {"problem_statement": "x", "FAIL_TO_PASS": ["t::a"], "test_patch": ""}
    lines = [
        json.dumps({"instance_id": "one", "snapshot": "a.tar.gz", "split": "train", **task}),
        "{broken",
        json.dumps({"instance_id": "two", "snapshot": "b.tar.gz", **task}),
        json.dumps({"instance_id": "one", **task}),
        json.dumps({"instance_id": "three", "snapshot": "a.tar.gz", "snapshot_sha256": "0" * 64, **task}),
        json.dumps({"instance_id": "four", "snapshot": "gone.tar.gz", **task}),
        json.dumps({"instance_id": "five", "split": "test", **task}),
    ]
    (source / "dump.jsonl").write_text("\n".join(lines))
    seen: list[str] = []
    report = import_records(str(source / "dump.jsonl"), tmp_path / "to", split="train", progress=seen.append)
    assert seen == ["one", "two", "four"]
    assert report.playable == 2
    assert [number for number, _ in report.skipped] == [2, 4, 5]
    assert "line 2: expected a JSON object" in report.skipped[0][1]
    assert "instance_id 'one' has come before" in report.skipped[1][1]
    assert "changed or truncated" in report.skipped[2][1]
    records = load_records(tmp_path / "to")
    assert [entry.record for entry in report.imported] == records
    assert records[0].snapshot_path().read_bytes() == b"tree"
    assert len(list((tmp_path / "to/snapshots").iterdir())) == 2, "named after their files"
    assert missing(records[2]) == ["its snapshot gone.tar.gz is not there"]


def test_import_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "dump.jsonl").write_text("{}\n")
    with pytest.raises(TaskError, match=r"no record in it; .*line 1: expected `instance_id`"):
        import_records(str(tmp_path / "dump.jsonl"), tmp_path / "to")
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize("named", ["/etc/hostname", "../secret.tar.gz", "link.tar.gz"])
def test_a_snapshot_outside_of_its_source_is_not_copied(tmp_path: Path, named: str) -> None:
    source, secret = tmp_path / "source", tmp_path / "secret.tar.gz"
    source.mkdir()
    secret.write_bytes(b"mine")
    (source / "link.tar.gz").symlink_to(secret)
    good = {"instance_id": "good", "snapshot": "", "test_targets": ["t"]}
    rows = [good, {**good, "instance_id": "bad", "snapshot": named}]
    (source / "tasks.jsonl").write_text("\n".join(map(json.dumps, rows)))
    report = import_records(str(source), tmp_path / "out")
    assert [entry.record.instance_id for entry in report.imported] == ["good"]
    assert "expected `snapshot` to be inside the source's folder" in report.skipped[0][1]
    assert not (tmp_path / "out/snapshots").exists()


def test_a_dataset_cannot_name_files_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.tar.gz").write_bytes(b"mine")
    row = {"instance_id": "a", "snapshot": "mine.tar.gz", "test_targets": ["t"]}
    monkeypatch.setattr(reading, "dataset_rows", lambda name, split: [row])
    (entry,) = import_records("some/dataset", tmp_path / "out").imported
    assert "its snapshot mine.tar.gz is not there" in entry.missing
    assert not (tmp_path / "out/snapshots").exists()


def test_patches_of_files_in_another_encoding(tmp_path: Path) -> None:
    folder = tmp_path / "task"
    shutil.copytree(SHAPES / "swebench_tasks/tasks/psf__requests-2317", folder)
    diff = b"--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-# caf\xe9\n+# th\xe9\n"
    (folder / "gold.patch").write_bytes(diff)
    import_records(str(folder), tmp_path / "out")
    (record,) = load_records(tmp_path / "out")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/x.py").write_bytes(b"# caf\xe9\n")
    apply_patch(tmp_path / "tree", record.patch)
    assert (tmp_path / "tree/x.py").read_bytes() == b"# th\xe9\n"


def test_import_stops_at_its_limit(tmp_path: Path) -> None:
    report = import_records(str(SHAPES / "swebench.jsonl"), tmp_path, limit=2)
    assert [entry.record.instance_id for entry in report.imported] == [
        "django__django-11099",
        "astropy__astropy-7606",
    ]


def test_a_limit_counts_rows_of_the_split(tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    lines = [
        json.dumps({"instance_id": name, "split": split, "test_targets": ["t"]})
        for name, split in zip("abcabd", ["train"] * 3 + ["test"] * 3, strict=True)
    ]
    source.write_text("\n".join(lines) + "\n")

    def taken(limit: int | None, split: str = "test") -> list[str]:
        report = import_records(str(source), tmp_path / "out", split=split, limit=limit)
        return [entry.record.instance_id for entry in report.imported]

    assert taken(2) == ["a", "b"]
    assert taken(9) == taken(None) == ["a", "b", "d"]
    assert taken(2, "train") == ["a", "b"]
    source.write_text("\n".join([*lines[:3], "broken", *lines[3:]]) + "\n")
    assert taken(2) == ["a"]  # what cannot be read may be of the split
    with pytest.raises(UsageError, match="expected limit to be a whole number >= 1, got 0"):
        taken(0)


# Any JSON object gives a record or an error that names a field.

_FIELDS = sorted(
    {key for name in SHAPES.glob("*.jsonl") for row in rows(name.name) for key in row}
    | {
        "bug_patch",
        "snapshot",
        "image",
        "limits",
        "setup",
        "eval_script",
        "harbor_settings",
        "instruction",
        "record",
    }
)
_TEXTS = st.sampled_from(
    [
        *(
            "",
            "a/b",
            "swesmith/a__b.12345678",
            "django/django",
            "a ' b",
            "x::y",
            "4G",
            "[1]",
            "['a']",
            '["a"]',
        ),
        *(
            "{}",
            '{"file_diffs": [{}]}',
            '{"file_diffs": 3}',
            '{"test_cmd": 3}',
            ": '>>>>> Start Test Output'\nx",
        ),
    ]
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | _TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["verifier", "timeout_sec", "environment", "memory", "x"]), inner, max_size=3
        )
    ),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(_FIELDS), _VALUES, max_size=9), st.sampled_from(FORMS))
def test_any_object_is_a_record_or_an_error_that_names_the_field(row: dict[str, Any], form: str) -> None:
    wrong = ""
    try:
        record = record_from_dict(own_form({"instance_id": "a", **row}, form)[0])
    except TaskError as error:
        wrong = str(error)
    if wrong:
        assert "expected `" in wrong
        return
    assert all(isinstance(line, str) for line in missing(record))
    written = record_to_dict(record)
    assert json.dumps(record_to_dict(record_from_dict(written))) == json.dumps(written)


def test_families_change_nothing_in_a_row() -> None:
    for name in SHAPES.glob("*.jsonl"):
        for row in rows(name.name):
            before = json.dumps(row)
            own_form(row)
            assert json.dumps(row) == before
    assert set(FAMILIES) == {*FORMS} - {"auto", "own"}


@pytest.mark.slow
def test_their_rows_are_played_where_a_snapshot_stands_beside_them(tmp_path: Path) -> None:
    clean = {
        "tally.py": "def add(a, b):\n    return a + b\n",
        "test_tally.py": "import pytest\nfrom tally import add\n\n\n"
        "@pytest.mark.parametrize('pair', [(1, 'a b')])\ndef test_kept(pair):\n    assert pair\n\n\n"
        "def test_add():\n    assert add(2, 3) == 5\n",
    }
    trees = {"clean": clean, "broken": {**clean, "tally.py": clean["tally.py"].replace("+", "-")}}
    trees["untested"] = {"tally.py": trees["broken"]["tally.py"]}
    for name, files in trees.items():
        for file, text in files.items():
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / file).write_text(text)
        (tmp_path / f"{name}.tar.gz").write_bytes(pack_tree(tmp_path / name))
    smith, bench = rows("swesmith.jsonl")[0], rows("swebench.jsonl")[1]
    expected = {
        "FAIL_TO_PASS": '["test_tally.py::test_add"]',
        "PASS_TO_PASS": "['test_tally.py::test_kept[pair0']",
        "requirements": ["pytest"],
    }
    smith |= {
        "snapshot": "clean.tar.gz",
        "patch": tree_diff(tmp_path / "clean", tmp_path / "broken"),
        **expected,
    }
    bench |= {
        "repo": "acme/tally",
        "snapshot": "untested.tar.gz",
        "patch": tree_diff(tmp_path / "broken", tmp_path / "clean"),
        "test_patch": new_file_diff("test_tally.py", clean["test_tally.py"]),
        **expected,
    }
    lines = [json.dumps(row) for row in (smith, bench, rows("pull_requests.jsonl")[0])]
    (tmp_path / "dump.jsonl").write_text("\n".join(lines))
    report = validate_records(load_records(tmp_path / "dump.jsonl"))
    assert [(row["gold"], row["null"], row["ok"]) for row in report["records"][:2]] == [(1.0, 0.0, True)] * 2
    assert (report["n"], report["ok"]) == (3, 2)
    assert "snapshot" in report["records"][2]["problem"]
