"""A quick look at a text before the rules' expressions and parsers: most hold none of the words they are about."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(64)  # the rules ask of the same few texts one after another
def lowered(text: str) -> str:
    """`text.lower()`, remembered."""
    return text.lower()


def mentions(text: str, words: tuple[str, ...]) -> bool:
    """Whether any of `words` may stand in `text`, in whatever case; plain search, ten times as quick as expressions.

    Letters outside ASCII have further spellings, for Python's names and for expressions that ignore case, so a text
    with any of them is always worth a closer look.

    Args:
        text: a program or any other text.
        words: in lower case; parts of words will do.
    """
    if not text.isascii():
        return True
    folded = lowered(text)
    for word in words:  # noqa: SIM110  any() over a generator costs more than the search
        if word in folded:
            return True
    return False
