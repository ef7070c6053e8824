"""SWE-rebench and SWE-bench-extra: SWE-bench's fields and, per task, how it was installed and its tests are run."""

from __future__ import annotations

from agentgym.envs.swe.fields import Row, object_of, text_of, texts_of
from agentgym.envs.swe.importers.common import (
    CONDA_PYTHON,
    TESTBED,
    converted,
    in_image,
    instance_image,
    owner_and_name,
    pull_request,
    words_of,
)
from agentgym.envs.swe.importers.projects import parser_name
from agentgym.envs.swe.runtime.names import canonical, requirement_name


def matches(row: Row) -> bool:
    """Rows with an install configuration, or with one of its images."""
    images = (row.get("docker_image"), row.get("image_name"))
    return "install_config" in row or any(
        isinstance(image, str) and "swerebench" in image for image in images
    )


def convert(row: Row) -> Row:
    """The task in our own form. The second edition has the tree under the project's name instead of /testbed."""
    repo, install = owner_and_name(row), object_of(row, "install_config")
    image = text_of(row, "docker_image") or text_of(row, "image_name")
    second = "swerebenchv2" in image or "base_image_name" in install
    where = in_image(
        row,
        image or instance_image("swerebench", text_of(row, "instance_id")),
        workdir=f"/{repo.partition('/')[2]}" if second else TESTBED,
        python="" if second else CONDA_PYTHON,
    )
    return converted(
        row,
        # Text of a whole "pip freeze"; our field of that name is a list of what a snapshot needs.
        without=("requirements", "environment", "docker_image", "image_name"),
        license=text_of(row, "license") or text_of(row, "license_name"),
        **pull_request(row),
        test_command=_command(install),
        log_parser=parser_name(text_of(install, "log_parser")),
        requirements=_pins(row) if row.get("snapshot") else [],
        **where,
    )


def _command(install: Row) -> list[str]:
    lines = install.get("test_cmd", "")
    return words_of(
        lines if isinstance(lines, str) else " && ".join(texts_of(install, "test_cmd")), "test_cmd"
    )


def _pins(row: Row) -> list[str]:
    """The requirements with a version, without the project itself."""
    project = canonical(owner_and_name(row).partition("/")[2])
    lines = [line.strip() for line in text_of(row, "requirements").splitlines()]
    return [line for line in lines if "==" in line and requirement_name(line) not in ("", project)]
