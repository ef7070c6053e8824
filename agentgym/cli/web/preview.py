"""Show a page without judging it: accessibility tree, rendered text, console, errors, what it asked the network for.

Exits with 1 where the page could not be loaded or read.

Example:
    agentgym web preview page.html
    agentgym web preview page.html --viewport 360x740 --screenshot page.png
    agentgym web preview page.html --steps '[{"op": "click", "target": {"role": "button", "name": "Add"}}]'
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.markup import escape

from agentgym.cli import console
from agentgym.cli.arguments import parse
from agentgym.cli.web.writing import write
from agentgym.errors import TaskError, UsageError
from agentgym.verifiers.web.reading import parse_actions
from agentgym.verifiers.web.task import Action

if TYPE_CHECKING:
    from agentgym.verifiers.browser import Preview


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym web preview``."""

    page: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="PAGE")]]
    """An HTML file, or a folder with index.html."""
    viewport: Annotated[str, tyro.conf.arg(metavar="WxH")] = "1280x800"
    """Size of the screen in CSS px."""
    steps: Annotated[str | None, tyro.conf.arg(metavar="JSON")] = None
    """What to do after loading: a list of actions of the task format."""
    screenshot: Annotated[str | None, tyro.conf.arg(metavar="FILE.png")] = None
    """Write a picture."""
    json: bool = False
    """Print JSON."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym web preview``."""
    args = parse(Args, "web preview", __doc__, words)
    size = re.fullmatch(r"([1-9]\d{1,3})x([1-9]\d{1,3})", args.viewport)
    if size is None:
        raise UsageError(
            f"expected --viewport WIDTHxHEIGHT of 10 to 9999 px, for example 360x740, got {args.viewport!r}"
        )
    actions = _actions(args.steps)
    with console.stdout_reserved(args.json):
        from agentgym.verifiers.browser import open_pool, read_page

        files = read_page(args.page)
        with open_pool() as pool:
            shown = pool.preview(
                files,
                viewport=(int(size[1]), int(size[2])),
                actions=actions,
                screenshot=args.screenshot is not None,
            )
    if args.screenshot is not None and shown.screenshot is not None:
        write(args.screenshot, shown.screenshot, "screenshot")
    if args.json:
        told = {f.name: getattr(shown, f.name) for f in dataclasses.fields(shown) if f.name != "screenshot"}
        console.print_json({name: list(v) if isinstance(v, tuple) else v for name, v in told.items()})
    else:
        _print_preview(shown)
    return console.NO if shown.failed else console.OK


def _actions(text: str | None) -> tuple[Action, ...]:
    if text is None:
        return ()
    try:
        return parse_actions(json.loads(text))
    except json.JSONDecodeError as error:
        raise UsageError(f"expected --steps to be a JSON list of actions: {error}") from None
    except TaskError as error:
        raise UsageError(f"--steps: {error}") from None


def _print_preview(shown: Preview) -> None:
    screen = console.out()
    for title, lines in (
        ("Accessibility tree", shown.aria.splitlines()),
        ("Text", shown.text.splitlines()),
        ("Console", shown.console),
        ("Errors", shown.errors),
        ("Asked for and not given", shown.blocked),
        ("Did not work", shown.failed),
    ):
        if any(line.strip() for line in lines):
            screen.print(f"[bold]{title}[/]")
            for line in filter(str.strip, lines):
                screen.print(escape(f"  {line}"), soft_wrap=True)
