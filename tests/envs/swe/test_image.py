"""Tasks that live in a container image: played, graded, audited, and their history left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentgym.envs.swe.audit import audit_task
from agentgym.envs.swe.env import SweEnv, record_tasks
from agentgym.envs.swe.grading import grade_patch, validate_records
from agentgym.envs.swe.records import RecordLimits, SweRecord
from agentgym.envs.swe.repo import tree_diff
from agentgym.envs.swe.trees import image_facts, task_tree
from agentgym.errors import TaskError
from agentgym.tasks import FrozenDict
from agentgym.tools import ToolCall
from tests.envs.swe.tiny_image import PREFIX, image_tar, tar_of
from tests.sandbox.dockerd import running_daemon, why_not

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
]

FIXED = "def to_metres(feet):\n    return feet * 0.3048\n"
BROKEN = FIXED.replace("0.3048", "0.3084")
HIDDEN = "from lengths import to_metres\n\n\ndef test_metres():\n    assert to_metres(10) == 3.048\n\n\n"
HIDDEN += "def test_zero():\n    assert to_metres(0) == 0\n"
IMAGE = "agentgym-tests/tiny:latest"


def put(tree: Path, path: str, text: str) -> None:
    (tree / path).parent.mkdir(parents=True, exist_ok=True)
    (tree / path).write_text(text)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SweRecord]:
    docker = pytest.importorskip("docker", reason="the package docker is not installed")
    folder = tmp_path_factory.mktemp("image")
    tree, clean, fixed, tested = (folder / name for name in ("tree", "clean", "fixed", "tested"))
    for place in (clean, fixed, tested, tree):
        put(place, "lengths.py", FIXED if place == fixed else BROKEN)
        put(place, "tests/test_visible.py", "def test_nothing():\n    pass\n")
    put(tested, "tests/test_lengths.py", HIDDEN)
    put(tree, "lengths.py", FIXED)
    identity = ["-c", "user.name=u", "-c", "user.email=u@example.org"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "later: fixed"]):
        subprocess.run(["git", *identity, *command], cwd=tree, check=True)
    put(tree, "lengths.py", BROKEN)
    subprocess.run(["git", *identity, "commit", "-qam", "base"], cwd=tree, check=True)
    put(tree, "build/lib/lengths.py", FIXED)
    content = image_tar("/testbed", tree, {"root/.cache/pip/http/lengths": FIXED})
    with running_daemon() as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", address)
        patch.setenv("AGENTGYM_CACHE", str(folder / "cache"))
        client = docker.APIClient(base_url=address, version="auto")
        repository, _, tag = IMAGE.partition(":")
        client.import_image_from_data(content, repository=repository, tag=tag)
        client.close()
        yield SweRecord(
            "lengths-1",
            problem_statement="`to_metres` is a little off.",
            image=IMAGE,
            patch=tree_diff(clean, fixed),
            test_patch=tree_diff(clean, tested),
            fail_to_pass=("tests/test_lengths.py::test_metres",),
            pass_to_pass=("tests/test_lengths.py::test_zero",),
            limits=RecordLimits(time_s=60),
        )


def test_the_interpreter_is_found(record: SweRecord) -> None:
    facts = image_facts(IMAGE, "/testbed")
    assert facts.python == Path(f"/{PREFIX}/bin/python")
    assert facts.runner
    with pytest.raises(TaskError, match="say where with `image_python` and `workdir`"):
        image_facts(IMAGE, "/testbed", "/nowhere/python")
    with pytest.raises(TaskError, match="say where the tree lies with `workdir`"):
        grade_patch([replace(record, workdir="/elsewhere")], record.instance_id, "")


def test_gold_and_null(record: SweRecord) -> None:
    by_log = replace(
        record,
        instance_id="by-log",
        test_command=("python", "-m", "unittest", "-v"),
        log_parser="unittest",
        test_targets=("tests/test_lengths.py",),
    )
    report = validate_records([record])
    assert report["ok"] == 1, report
    assert (report["records"][0]["gold"], report["records"][0]["null"]) == (1.0, 0.0)
    row = validate_records([by_log])["records"][0]  # its tests are functions, which unittest does not see
    assert (row["gold"], row["ok"]) == (0.0, False)
    json.dumps(report)


def test_a_policy_sees_the_tree_without_its_history(
    record: SweRecord, request: pytest.FixtureRequest
) -> None:
    env = SweEnv(tasks=record_tasks([record], name="image"))
    request.addfinalizer(env.close)

    def bash(command: str) -> str:
        action = env.protocol.render_call(ToolCall("bash", FrozenDict(command=command)))
        return str(env.step(action)[4]["calls"][0].result.text)

    env.reset()
    assert bash("pwd; git log --all --oneline | wc -l; ls -A") == "/testbed\n1\n.git\nlengths.py\ntests"
    assert bash("python -c 'import lengths; print(lengths.__file__)'") == "/testbed/lengths.py"
    assert bash("ls -A ~/.cache").startswith("[exit status") or bash("ls -A ~/.cache") == "[no output]"
    saved = env.snapshot()
    assert bash("sed -i 's/0.3084/0.3048/' lengths.py; git diff --stat").startswith(" lengths.py | 2 +-")
    assert "0.3048" in bash("cat lengths.py")
    assert env.step(env.protocol.render_call(ToolCall("submit")))[1] == 1.0
    env.restore(saved)
    assert "0.3084" in bash("cat lengths.py")
    assert env.step(env.protocol.render_call(ToolCall("submit")))[1] == 0.0


def test_the_audit_of_an_image(record: SweRecord) -> None:
    report = audit_task(record)
    assert report.findings == ()
    assert report.complete


def test_a_copy_elsewhere_in_the_image_is_found(record: SweRecord) -> None:
    import docker

    site = f"{PREFIX}/lib/python3.{sys.version_info[1]}/site-packages"
    client = docker.APIClient(version="auto", base_url=os.environ["DOCKER_HOST"])
    container = client.create_container(IMAGE, "true")
    planted = {
        f"{site}/lengths.py": FIXED,
        "opt/checks/test_lengths.py": HIDDEN,
        "r2e_tests/test_1.py": HIDDEN,
    }
    client.put_archive(container, "/", tar_of(planted))
    client.commit(container, repository="agentgym-tests/leaky", tag="latest")
    client.remove_container(container)
    client.close()
    report = audit_task(replace(record, image="agentgym-tests/leaky:latest"))
    told = {(finding.kind, finding.where) for finding in report.findings}
    assert not any("r2e_tests" in where for _, where in told), "R2E-Gym's hidden tests are removed"
    assert ("installed copy", f"/{site}/lengths.py") in told
    assert ("gold patch", f"/{site}/lengths.py") in told
    assert ("hidden tests", "/opt/checks/test_lengths.py") in told


def test_a_name_that_means_another_image_now(record: SweRecord) -> None:
    import docker

    client = docker.APIClient(version="auto", base_url=os.environ["DOCKER_HOST"])
    moving = replace(record, image="agentgym-tests/moving:latest")
    client.tag(IMAGE, "agentgym-tests/moving", "latest")
    assert not (task_tree(moving) / "src").exists()
    container = client.create_container(IMAGE, "true")
    shadow = "import os\nos._exit(7)\n"
    client.put_archive(container, "/", tar_of({"testbed/src/json.py": shadow}))
    client.commit(
        container,
        repository="agentgym-tests/moving",
        tag="latest",
        changes=["ENV PYTHONPATH=/testbed/src:/testbed/../etc:/elsewhere"],
    )
    client.remove_container(container)
    client.close()
    assert (task_tree(moving) / "src/json.py").read_text() == shadow
    assert image_facts(moving.image, "/testbed").python_path == ("src",)
    verdict = grade_patch([moving], moving.instance_id, record.patch)
    assert verdict["resolved"], (
        verdict,
        "what the image's PYTHONPATH names must not stand before the library",
    )
