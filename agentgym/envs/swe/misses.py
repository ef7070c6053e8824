"""Why a text to replace was not found in a file, in words that help to write the next one."""

from __future__ import annotations

import difflib

from agentgym.texts import split_lines

_SHOWN_LINES = 12
_SHOWN_DIFFERENCES = 5
_SEARCHED_LINES = 5000
_LIKE = 0.6  # similarity of a line below which it is not worth showing


def explain_miss(path: str, text: str, old: str) -> str:
    """What is wrong with the `old` text, which does not occur exactly once in `text`.

    Several occurrences are told by their lines. None: the lines that differ in white space only, with both forms; or
    else the lines most like it.
    """
    if not old:
        return "expected a text to replace, the old text is empty; to make a new file, use create"
    count = text.count(old)
    if count > 1:
        return (
            f"expected the old text to occur exactly once in {path}, it occurs {count} times, at lines"
            f" {_places(text, old)}; add lines around it until it is the only one"
        )
    wanted, lines = split_lines(old), split_lines(text)
    start = _same_but_for_space(lines, wanted)
    if start is not None:
        there = lines[start : start + len(wanted)]
        return "\n".join(
            [
                f"the old text does not occur in {path}; lines {_span(start, len(wanted))} differ from it in white"
                " space only:",
                *_differences(there, wanted, start),
            ]
        )
    start = _most_alike(lines, wanted) if old.strip() else None
    if start is None:
        return f"the old text does not occur in {path}, nor anything like it"
    there = lines[start : start + len(wanted)][:_SHOWN_LINES]
    shown = [f"{number:6}\t{line}" for number, line in enumerate(there, start + 1)]
    return "\n".join(
        [f"the old text does not occur in {path}; the closest is lines {_span(start, len(wanted))}:", *shown]
    )


def _places(text: str, old: str) -> str:
    numbers: list[int] = []
    position = text.find(old)
    while position >= 0 and len(numbers) < _SHOWN_LINES:
        numbers.append(text.count("\n", 0, position) + 1)
        position = text.find(old, position + len(old))
    return ", ".join(map(str, numbers)) + (", ..." if position >= 0 else "")


def _span(start: int, length: int) -> str:
    return f"{start + 1}-{start + length}" if length > 1 else str(start + 1)


def _squeezed(line: str) -> str:
    return "".join(line.split())


def _same_but_for_space(lines: list[str], wanted: list[str]) -> int | None:
    """Where lines stand that are the wanted ones once all white space is taken out."""
    target = [_squeezed(line) for line in wanted]
    if not any(target):
        return None
    squeezed = [_squeezed(line) for line in lines]
    for start in range(len(lines) - len(target) + 1):
        if squeezed[start : start + len(target)] == target:
            return start
    return None


def _differences(there: list[str], wanted: list[str], start: int) -> list[str]:
    rows = [
        f"  line {number}: the file has {has!r}, the old text {given!r}"
        for number, (has, given) in enumerate(zip(there, wanted, strict=True), start + 1)
        if has != given
    ]
    if not rows:
        return ["  the line breaks differ: the file's or the old text's end in more than a line feed"]
    more = [f"  and {len(rows) - _SHOWN_DIFFERENCES} more lines"] if len(rows) > _SHOWN_DIFFERENCES else []
    return rows[:_SHOWN_DIFFERENCES] + more


def _most_alike(lines: list[str], wanted: list[str]) -> int | None:
    """Where the longest run of equal lines puts the wanted text, or else the line most like its longest one."""
    lines = [line.strip() for line in lines[:_SEARCHED_LINES]]
    target = [line.strip() for line in wanted]
    longest = max(range(len(target)), key=lambda number: len(target[number]))
    block = difflib.SequenceMatcher(None, lines, target).find_longest_match()
    if any(target[block.b : block.b + block.size]):
        start = block.a - block.b
    else:
        near = difflib.get_close_matches(target[longest], lines, n=1, cutoff=_LIKE)
        if not near:
            return None
        start = lines.index(near[0]) - longest
    return min(max(0, start), max(0, len(lines) - len(target)))
