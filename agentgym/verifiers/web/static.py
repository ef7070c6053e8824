"""Scorers that do not use the page: by its source, by a screenshot. Baselines, to show what they miss.

They stand for judges that read or look. A page that is long and full of the rubric's words, or colourful and dense,
gets much from them whether or not it works. Do not train on them.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping

import numpy as np

from agentgym.errors import MissingDependency
from agentgym.verifiers.web.task import WebTask

_WORD = re.compile(r"[a-z]{4,}")
_LONG = 64 << 10  # bytes from which more source impresses no further
_TILE = 16  # px
_COLOURS = 12  # of a picture that is as colourful as it gets
_EDGES = (
    0.08  # share of pixels that differ from their left neighbour in a picture that is as dense as it gets
)


def source_score(task: WebTask, files: Mapping[str, bytes]) -> float:
    """What a reader of the source gives: half for the rubric's words that occur in it, half for its length.

    Args:
        task: whose rubric.
        files: of the page.

    Returns:
        In [0, 1].
    """
    source = b"\n".join(files.values()).decode("utf-8", "replace").lower()
    wanted = {word for item in task.items for word in _WORD.findall(item.text.lower())}
    found = len(wanted & set(_WORD.findall(source))) / len(wanted) if wanted else 1.0
    length = math.log1p(min(len(source), _LONG)) / math.log1p(_LONG)
    return (found + length**4) / 2  # the power: ten times as long shall count


def screenshot_score(png: bytes) -> float:
    """What somebody who looks at a picture of the page gives: the mean of how filled, colourful and dense it is.

    Args:
        png: a screenshot.

    Returns:
        In [0, 1]; 0 for an empty page.

    Raises:
        MissingDependency: pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError:
        raise MissingDependency(
            "looking at screenshots needs pillow: pip install 'agentgym-suite[web]'"
        ) from None
    with Image.open(io.BytesIO(png)) as image:
        pixels = np.asarray(image.convert("RGB"), dtype=np.int16)
    return (_filled(pixels) + _colourful(pixels) + _dense(pixels)) / 3


def _filled(pixels: np.ndarray) -> float:
    """Share of tiles that are not of one colour."""
    height, width = (size // _TILE * _TILE for size in pixels.shape[:2])
    tiles = pixels[:height, :width].reshape(height // _TILE, _TILE, width // _TILE, _TILE, 3)
    spread = tiles.max(axis=(1, 3)) - tiles.min(axis=(1, 3))
    return float((spread.max(axis=-1) > 8).mean())


def _colourful(pixels: np.ndarray) -> float:
    """How many colours, out of 8 x 8 x 8, cover more than a thousandth, beside the most frequent one."""
    eighths = pixels // 32
    codes = eighths[..., 0] * 64 + eighths[..., 1] * 8 + eighths[..., 2]
    shares = np.bincount(codes.ravel(), minlength=512) / codes.size
    return float(min(1.0, ((shares > 0.001).sum() - 1) / _COLOURS))


def _dense(pixels: np.ndarray) -> float:
    """Share of pixels that differ from their left neighbour, against `_EDGES`."""
    steps = np.abs(np.diff(pixels, axis=1)).max(axis=-1) > 32
    return float(min(1.0, steps.mean() / _EDGES))
