"""The command ``agentgym``: one module per verb.

Exit codes: 0; 1: it ran and the answer is no; 2: bad use, with one line that says what was expected; 3: the
infrastructure failed, so there is no answer; 70: a bug, with its traceback; 130: interrupted.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Callable, Sequence

from agentgym.cli import console
from agentgym.errors import InfrastructureError, UsageError, nearest
from agentgym.version import __version__

# verb: (module, what it does). A module is imported when its verb is called, so the others cost nothing.
VERBS: dict[str, tuple[str, str]] = {
    "list": ("listing", "show every environment and whether it runs here"),
    "run": ("run", "play episodes with a policy and keep the trajectories"),
    "check": ("check", "put an environment through the audit"),
    "report": ("report", "sum up and compare runs, as text or as one HTML page"),
    "view": ("view", "write one trajectory as an HTML page"),
    "new": ("new", "start an environment of your own, with its test"),
    "monitor": ("monitor", "what of tool calls crosses a line: decide, measure, explain"),
    "gateway": ("gateway", "serve a policy to agent programs of any kind, and record what they do with it"),
    "data": ("data", "say where an environment's official data comes from, and check a folder of it"),
    "shop": ("shop", "replay recorded episodes of the original WebShop"),
    "swe": ("swe", "make, import, prove, audit, judge and grade repository repair tasks"),
    "web": ("web", "judge a page by using it in a real browser"),
    "alfworld": ("alfworld", "ALFWorld's games: make new ones, play recorded episodes again"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb.

    Args:
        argv: the words after ``agentgym``; those of the process where None.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    return guarded(lambda: _dispatch(words))


def guarded(command: Callable[[], int]) -> int:
    """Run a command as every command here runs: its exit code, and one line on standard error where it fails."""
    # `module:Id-v0` and `module:attribute` name the user's own code in the folder they stand in; the console script
    # does not put it on the path, `python -m` does.
    # Last, so that a file there never stands in for a module of the standard library.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        with console.short_warnings():
            return command()
    except console.HelpShown:
        return console.OK
    except KeyboardInterrupt as interrupt:
        console.complain(str(interrupt) or "interrupted")
        return console.INTERRUPTED
    except InfrastructureError as error:
        console.complain(str(error))
        return console.INFRASTRUCTURE
    except UsageError as error:
        console.complain(str(error))
        return console.USAGE
    except OSError as error:
        if error.filename is None or isinstance(error, BrokenPipeError):
            return _unexpected(error)
        console.complain(f"{error.filename}: {error.strerror}")
        return console.INFRASTRUCTURE if error.errno in _MACHINE else console.USAGE
    except (Exception, SystemExit) as error:  # an environment or policy that calls sys.exit is a bug too
        return _unexpected(error)


# What the machine, and not a path that the user gave, is short of.
_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE)


def _unexpected(error: BaseException) -> int:
    # Where the reader of our output has gone (`agentgym list | head`), rich turns that into SystemExit.
    if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return console.BROKEN_PIPE
    console.traceback()
    return console.BUG


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return console.OK
    if words[0] in ("-V", "--version"):
        print(f"agentgym {__version__}")
        return console.OK
    verb, *rest = words
    if verb not in VERBS:
        raise UsageError(f"unknown verb {verb!r}.{nearest(verb, VERBS)}")
    code: int = importlib.import_module(f"agentgym.cli.{VERBS[verb][0]}").main(rest)
    return code


def _help() -> str:
    lines = [
        "agentgym: environments, wrappers and trajectories for reinforcement learning of language-model agents",
        "",
        "usage: agentgym VERB ...",
        "",
        *(f"  {verb:<8} {does}" for verb, (_, does) in VERBS.items()),
        "",
        "Each verb has --help, with an example, and --json for machines.",
        "",
        "Example:",
        "  agentgym list",
        "  agentgym run agentgym/Relay-v0 --policy gold --episodes 5 --out runs/gold",
        "  agentgym report runs/gold",
    ]
    return "\n".join(lines)
