"""The HTML page of ``agentgym web gallery``: one file without outside parts, for light and dark."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from agentgym.cli.console import number
from agentgym.errors import MissingDependency
from agentgym.verifiers.web.task import WebTask
from agentgym.version import __version__

if TYPE_CHECKING:
    from agentgym.cli.web.gallery import Shown

_WIDTH = 720  # px of a picture


def render(task: WebTask, pages: Sequence[Shown], found: Mapping[str, Any]) -> str:
    """The text of the page.

    Args:
        task: that the pages were judged by.
        pages: in the order they are shown.
        found: what the batch shows, by `agentgym.verifiers.web.measures.measures`.

    Raises:
        MissingDependency: jinja2 is not installed.
    """
    try:
        import jinja2
    except ImportError:
        raise MissingDependency("the gallery needs jinja2: pip install 'agentgym-suite[report]'") from None
    template = (files("agentgym.cli") / "templates" / "gallery.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters |= {"num": number, "picture": _picture}
    text: str = environment.from_string(template).render(
        task=task, pages=[_view_of(task, page) for page in pages], found=found, version=__version__
    )
    return text


def _view_of(task: WebTask, page: Shown) -> dict[str, Any]:
    """What the template reads of a page."""
    verdict = page.judged.verdict
    lowered = verdict.flags.get("llm", {}).get("lowered", {})
    flags = []
    for name, value in verdict.flags.items():
        if value and name != "llm":
            flags.append(f"{name}: {', '.join(value) if isinstance(value, list) else value}")
    if page.judged.injection:
        flags.append(f"speaks to its judge: {page.judged.injection}")
    if page.judged.differs:
        flags.append(f"differs in an automated browser: {', '.join(page.judged.differs)}")
    return {
        "name": page.judged.name,
        "verdict": verdict,
        "size": page.judged.size,
        "scores": page.judged.scores,
        "flags": flags,
        "llm": verdict.flags.get("llm"),
        "items": [
            {"item": item, "passed": verdict.items[item.id], "why": lowered.get(item.id, "")}
            for item in task.items
        ],
        "loaded": page.loaded,
        "ends": [
            (scenario.name, picture) for scenario, picture in zip(task.scenarios, page.ends, strict=True)
        ],
    }


def _picture(png: bytes) -> str:
    """A data URL of a picture, made smaller."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as image:
        shown = image.convert("RGB")
        shown.thumbnail((_WIDTH, 4 * _WIDTH))
        buffer = io.BytesIO()
        shown.save(buffer, "WEBP", quality=80)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()
