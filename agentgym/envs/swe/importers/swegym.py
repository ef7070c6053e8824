"""SWE-Gym: SWE-bench's fields over eleven other repositories, whose images have a name of their own."""

from __future__ import annotations

from agentgym.envs.swe.fields import Row, text_of
from agentgym.envs.swe.importers.common import converted, in_image, instance_image, pull_request

REPOSITORIES = frozenset(
    """
    bokeh/bokeh conan-io/conan dask/dask facebookresearch/hydra getmoto/moto iterative/dvc modin-project/modin
    pandas-dev/pandas project-monai/monai pydantic/pydantic python/mypy
    """.split()
)


def matches(row: Row) -> bool:
    """Pull requests of its repositories that say nothing of where their tree is."""
    repo = row.get("repo")
    known = isinstance(repo, str) and repo.lower() in REPOSITORIES
    return known and {"base_commit", "patch"} <= row.keys() and {"snapshot", "image"}.isdisjoint(row)


def convert(row: Row) -> Row:
    """The task in our own form."""
    return converted(
        row,
        **pull_request(row),
        test_command=["pytest", "-rA"],
        log_parser="pytest",
        **in_image(row, instance_image("xingyaoww", text_of(row, "instance_id"), separator="_s_")),
    )
