"""Finding, without a tokenizer, where a known conversation ends in a newly rendered prompt.

A segment holds the ids that were sampled. The next prompt holds the same text as the tokenizer encodes it,
which may be other ids, and therefore another number of them. What is new in the prompt starts behind the
known conversation, and that place must be found from ids alone.

It can be, because chat templates end a message with a token that text never yields (``<|im_end|>``,
``<|eot_id|>``): no merge crosses it, so the n-th such token stands at the same place of the text in both
sequences. Between two of them the ids may differ, but only as two encodings of one text differ. Where that
is not so, there is no answer, and the caller begins a new segment, which is always right.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

# Two encodings of one text: after equal ids at both ends are cut off, neither rest is empty, and neither is
# many times longer than the other. A template that drops the reasoning of old turns leaves one rest empty or
# nearly so.
_LONGEST_TOKEN = 16


def tail_start(
    held: Sequence[int],
    sampled_start: int,
    rendered: Sequence[int],
    prompt: Sequence[int],
    ends: Collection[int],
) -> int | None:
    """Index in `prompt` of the first token after the conversation that `held` encodes.

    Args:
        held: ids of a segment, its last reply included.
        sampled_start: where in `held` the last reply starts.
        rendered: the prompt of the last reply: the text of ``held[:sampled_start]`` as the backend encoded
            it.
        prompt: the new prompt, which holds the same messages and more.
        ends: ids that end a message.

    Returns:
        None where no such place can be vouched for.
    """
    old, new = 0, 0
    if tuple(prompt[: len(rendered)]) == tuple(rendered):
        old, new = sampled_start, len(rendered)  # only the reply is encoded in another way
    while old < len(held):
        old_end, new_end = _find_end(held, old, ends), _find_end(prompt, new, ends)
        if new_end == len(prompt) or not _same_text(held[old:old_end], prompt[new:new_end]):
            return None
        if old_end == len(held):  # the reply stopped without its end token; the prompt's closes it
            return new_end
        old, new = old_end + 1, new_end + 1
    return new


def learn_end_of_turn(sampled: Sequence[int], renders: Iterable[tuple[Sequence[int], int]]) -> int | None:
    """The last sampled id, if it behaves as the token that ends every message.

    Args:
        sampled: ids of a reply that was not cut off.
        renders: prompts as the backend encoded them, each with its number of messages.

    Returns:
        The id if it stands once in the reply and in every prompt once for each message; a template may add
        one for a system message of its own, or merge one away. Otherwise None.
    """
    if not sampled:
        return None
    candidate = sampled[-1]
    surplus = {ids.count(candidate) - messages for ids, messages in renders}
    if sampled.count(candidate) == 1 and len(surplus) == 1 and surplus <= {-1, 0, 1}:
        return candidate
    return None


def common_prefix(first: Sequence[object], second: Sequence[object]) -> int:
    """How many items the two sequences begin with in common."""
    low, high = 0, min(len(first), len(second))
    step = high
    while low < high:  # comparing slices is far quicker than comparing items one by one
        if list(first[low : low + step]) == list(second[low : low + step]):
            low += step
        else:
            high = low + step - 1
        step = max(1, (high - low + 1) // 2)
    return low


def _find_end(ids: Sequence[int], start: int, ends: Collection[int]) -> int:
    """Index of the first end token from `start` on; the length of `ids` if there is none."""
    return next((index for index in range(start, len(ids)) if ids[index] in ends), len(ids))


def _same_text(first: Sequence[int], second: Sequence[int]) -> bool:
    """Whether the two can be encodings of one text."""
    same = common_prefix(first, second)
    first, second = first[same:], second[same:]
    same = common_prefix(first[::-1], second[::-1])
    shorter, longer = sorted((len(first) - same, len(second) - same))
    return longer <= shorter * _LONGEST_TOKEN
