"""What the rules see of a very long text: its two ends, and the places where one of their words stands.

A review has a bound on its time. Plain search is so quick that a megabyte may be scanned for words; expressions and
parsers then only get what is around them.
"""

from __future__ import annotations

from functools import lru_cache

from agentgym.monitor.effects import Effect

MOST_READ = 20_000
"""Characters of one text that the rules read."""
_END = 3_000  # of each of the two ends
_AROUND = 600  # before and behind a word
_HITS = 6  # places that are looked at for each word

# Words that the content rules look for, in the spelling that programs and texts give them.
_WORDS = (
    "__eq__ __ne__ __torch_function__ __array_function__ allclose assert_close isclose assertEqual"
    " os._exit ._exit( sys.exit SystemExit"
    " SkipTest pytest.skip getppid process.exit quick_exit perf_counter elapsed_time time.time"
    " monotonic synchronize data_ptr"
    " PYTEST_ JEST_WORKER sys.modules sys.argv inspect.stack _getframe f_locals get_objects hexdigest"
    " md5 sha1 sha256"
    " pytest_runtest pytest_collection collect_ignore addSuccess site-packages dist-packages _vendor"
    " require.cache builtins."
    " judge grader evaluator reviewer referee rubric previous instructions im_start [INST]"
    " navigator.webdriver Headless"
    " policy_commands walkthrough expert_plan unwrapped || true exit 0 test_cases expected .out .ans"
).split(" ")


def is_long(effect: Effect) -> bool:
    """Whether one of the effect's texts is longer than the rules read."""
    return (
        len(effect.content or "") > MOST_READ
        or len(effect.target) > MOST_READ
        or sum(map(len, effect.detail)) > MOST_READ
    )


def shorten(effect: Effect) -> Effect:
    """The effect with its long texts cut to what the rules read."""
    content = effect.content
    if content is not None and len(content) > MOST_READ:
        effect = effect._replace(content=excerpt(content))
    if len(effect.target) > MOST_READ:
        effect = effect._replace(target=effect.target[:MOST_READ])
    if sum(map(len, effect.detail)) > MOST_READ:
        share = max(200, MOST_READ // len(effect.detail))
        effect = effect._replace(detail=tuple(word[:share] for word in effect.detail[: MOST_READ // 20]))
    return effect


@lru_cache(4)  # a written program comes as two effects with the same text
def excerpt(text: str) -> str:
    """The two ends of a text and the lines around the words that rules look for, in order."""
    spans = [(0, _END), (len(text) - _END, len(text))]
    for word in _WORDS:
        place = text.find(word, _END, -_END)
        for _ in range(_HITS):
            if place < 0:
                break
            spans.append((max(0, place - _AROUND), place + _AROUND))
            place = text.find(word, place + _AROUND, -_END)
    pieces, end, total = [], 0, 0
    for start, stop in sorted(spans):
        start = max(start, end)
        if stop <= start or (total > MOST_READ - 2 * _END and stop < len(text)):
            continue
        # Whole lines, so that a parser finds whole statements.
        first = text.find("\n", start, stop) + 1 if start > end else start
        pieces.append(text[first or start : stop])
        total += stop - start
        end = stop
    return "\n".join(pieces)
