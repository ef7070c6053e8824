"""The environment of a prepared repository as a Dockerfile, and as an image where a daemon is there."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from agentgym.errors import InfrastructureError, MissingDependency

if TYPE_CHECKING:
    from agentgym.envs.swe.runtime.prepared import Runtime

WORKSPACE = "/workspace"
BUILD_S = 1800.0

_TEMPLATE = """\
# The environment of {project}. The source tree is not in it: mount it at {workspace}.
#   docker build -t NAME . && tar -xf tree.tar.gz
#   docker run --rm --network none -v "$PWD/tree:{workspace}" NAME
ARG BASE=python:{python}-slim
FROM ${{BASE}}
COPY requirements.txt /opt/requirements.txt
RUN pip install --no-cache-dir --no-deps -r /opt/requirements.txt
ENV PYTHONPATH={python_path} PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0
WORKDIR {workspace}
CMD {command}
"""


def dockerfile(runtime: Runtime) -> str:
    """Text of a Dockerfile that installs the pins of a runtime; its command runs the tests of a mounted tree."""
    suite = runtime.suite
    command = ["python", "-m", "pytest", *suite.arguments, *suite.targets]
    return _TEMPLATE.format(
        project=" ".join(
            f"{runtime.project.name} {runtime.project.version}".split()
        ),  # a comment has one line
        python=".".join(runtime.project.interpreter.version.split(".")[:2]),
        python_path=":".join(f"{WORKSPACE}/{path}".removesuffix("/.") for path in suite.python_path),
        workspace=WORKSPACE,
        command=json.dumps(command),
    )


def build_image(folder: Path, tag: str) -> None:
    """Build the Dockerfile of a folder. The daemon pulls the base image and pip asks the index: both need the network.

    Args:
        folder: holds the Dockerfile and what it copies, nothing else that is large.
        tag: name of the image.

    Raises:
        MissingDependency: there is no docker command.
        InfrastructureError: there is no daemon, or the build failed.
    """
    try:
        done = subprocess.run(
            ["docker", "build", "--quiet", "--tag", tag, str(folder)],
            capture_output=True,
            text=True,
            timeout=BUILD_S,
        )
    except FileNotFoundError:
        raise MissingDependency("images need docker; install it with: apt-get install docker.io") from None
    except subprocess.TimeoutExpired:
        raise InfrastructureError(f"docker build took longer than {BUILD_S:g} s") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise InfrastructureError(f"docker build of {tag} failed: {last[:300]}")
