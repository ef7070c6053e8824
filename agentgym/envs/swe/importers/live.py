"""SWE-bench-Live: SWE-bench's fields, the commands that rebuild and test, and a parser by name or as code."""

from __future__ import annotations

import re

from agentgym.envs.swe.fields import Row, text_of, texts_of
from agentgym.envs.swe.importers.common import converted, in_image, instance_image, pull_request, words_of
from agentgym.envs.swe.importers.projects import parser_name
from agentgym.verifiers.log_parsers import PYTEST_IDS

_COMMANDS = ("rebuild_cmds", "test_cmds", "print_cmds")
_OUTPUT = re.compile(r"\s+(?:\d?>|&>|\|)")


def matches(row: Row) -> bool:
    """Rows with its commands."""
    return not frozenset(_COMMANDS).isdisjoint(row)


def convert(row: Row) -> Row:
    """The task in our own form.

    A parser that is code is kept as the name of the parser it would be: nothing of a row is ever executed here, and
    `missing` says that the parser is not known.
    """
    parser = parser_name(text_of(row, "log_parser") or text_of(row, "parser"))
    return converted(
        row,
        without=("docker_image", "parser", *_COMMANDS),
        **pull_request(row),
        test_command=_command(row, parser),
        log_parser=parser,
        **in_image(row, text_of(row, "docker_image") or _image(row), python=""),
    )


def _command(row: Row, parser: str) -> list[str]:
    """A call of pytest alone, without where its output goes: it is graded over a better channel than its output.

    Else all commands as one script, whose exit status is that of the tests, however they are rebuilt and shown.
    """
    rebuild, test, show = (texts_of(row, name) for name in _COMMANDS)
    if len(test) == 1 and parser in PYTEST_IDS:
        words = words_of(_OUTPUT.split(test[0])[0], "test_cmds")
        if any(word.rpartition("/")[2] == "pytest" for word in words):
            return words
    if len(test) == 1 and not rebuild and not show:
        return words_of(test[0], "test_cmds")
    noted = [part for line in test for part in (line, "(($?)) && failed=1")]
    return words_of("\n".join([*rebuild, "failed=0", *noted, *show, "exit $failed"]), "test_cmds")


def _image(row: Row) -> str:
    return instance_image("starryzhang", text_of(row, "instance_id")).removesuffix(":latest")
