"""SWE-bench-Live: SWE-bench's fields, the commands that rebuild and test, and a parser by name or as code."""

from __future__ import annotations

from agentgym.envs.swe.fields import Row, text_of, texts_of
from agentgym.envs.swe.importers.common import converted, in_image, instance_image, pull_request, words_of
from agentgym.envs.swe.importers.projects import parser_name

_COMMANDS = ("rebuild_cmds", "test_cmds", "print_cmds")


def matches(row: Row) -> bool:
    """Rows with its commands."""
    return not frozenset(_COMMANDS).isdisjoint(row)


def convert(row: Row) -> Row:
    """The task in our own form.

    A parser that is code is kept as the name of the parser it would be: nothing of a row is ever executed here, and
    `missing` says that the parser is not known.
    """
    lines = [line for name in _COMMANDS for line in texts_of(row, name)]
    return converted(
        row,
        without=("docker_image", "parser", *_COMMANDS),
        **pull_request(row),
        test_command=words_of(" ; ".join(lines), "test_cmds"),
        log_parser=parser_name(text_of(row, "log_parser") or text_of(row, "parser")),
        **in_image(row, text_of(row, "docker_image") or _image(row), python=""),
    )


def _image(row: Row) -> str:
    return instance_image("starryzhang", text_of(row, "instance_id")).removesuffix(":latest")
