"""Runners of tests and builds, linters: what they are pointed at is read, what they are told is in the run effect."""

from __future__ import annotations

from agentgym.monitor.code.embedded import recipes
from agentgym.monitor.command import Command, Row, path_words
from agentgym.monitor.effects import HOLE

_RUNNER_VALUED = (
    "k m p c o n W x rootdir confcutdir config ini-file override-ini maxfail tb junit-xml junitxml ignore "
    "ignore-glob deselect log-file cov cov-report cov-config timeout durations grep reporter config-path file "
    "spec require testpaths"
)


def _runner(command: Command) -> str:
    """pytest, mocha, jest and kin: their arguments stay in the run effect; files are read, reports written."""
    options = command.options(_RUNNER_VALUED)
    for path in options.operands:
        command.read(path.partition("::")[0])
    for path in options.values("-c", "--config", "--rootdir", "--confcutdir", "--require"):
        command.read(path)
    for path in options.values("--junit-xml", "--junitxml", "--log-file"):
        command.analysis.write(path, command.name)
    return HOLE


def _make(command: Command) -> str:
    options = command.options("f C I j o W l E file directory makefile eval")
    cwd = command.state.cwd
    for folder in options.values("-C", "--directory"):
        command.look(folder)
        command.state.cwd = command.analysis.locate(folder)[0]
    named = options.values("-f", "--file", "--makefile")
    for path in named:
        command.read(path) if path != "-" else None
    for text in options.values("-E", "--eval"):
        command.analysis.emit("code", "", "make", (), text)
        _recipes(command, text)
    if command.name in ("make", "gmake"):
        for path in named or ("GNUmakefile", "makefile", "Makefile"):
            _recipes(command, command.content_of(path) or "")
    command.state.cwd = cwd
    return HOLE


def _recipes(command: Command, text: str) -> None:
    """Runs what a makefile runs, all its targets."""
    with command.analysis.deeper("script") as possible:
        for line in recipes(text) if possible and text not in ("", HOLE) else ():
            command.shell.run_text(line)


def _checker(command: Command) -> str:
    """Linters, formatters, type checkers: paths are read (and written where they fix)."""
    for path in path_words(word for word in command.arguments if not word.startswith("-")):
        command.read(path)
    return HOLE


_RUNNERS = (
    "pytest py.test unittest nose nosetests nose2 tox nox mocha jest vitest ava tap karma cypress ctest gtest coverage "
    "stestr trial behave"
)
_CHECKERS = "flake8 pylint mypy pyright tsc shellcheck hadolint yamllint bandit"

PROGRAMS: dict[str, Row] = {
    **dict.fromkeys(_RUNNERS.split(), _runner),
    **dict.fromkeys(("make", "gmake", "ninja", "just", "task", "rake", "cmake", "bazel", "meson"), _make),
    **dict.fromkeys(_CHECKERS.split(), _checker),
}
