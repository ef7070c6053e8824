"""The same sampled tokens after another history: text is put into a message that the policy read, and scored again.

What was sampled is never encoded anew: its ids are reused. Of the rest only the stretch between two replies that holds
the edited message is, and only where decoding and encoding gives back the very ids that the model read; the new history
is then what the model would have read, had the text been there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

import numpy as np

from agentgym.messages import Message
from agentgym.trajectory.records import Sampled, Segment
from baselines.packs import Row

Edit: TypeAlias = Callable[[str], str]


class Histories:
    """Rewrites what came before sampled tokens.

    Args:
        tokenizer: of the model that sampled.
        end_ids: the tokens that end a turn, as in `HFPolicy.end_ids`.
    """

    def __init__(self, tokenizer: Any, end_ids: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._ends = frozenset(end_ids)
        empty = [{"role": "user", "content": ""}]
        markup = tokenizer.apply_chat_template(empty, add_generation_prompt=True, tokenize=False)
        self._markup = self._decode(self._encode(markup))

    def edited(
        self, segment: Segment, row: Row, message: int, edit: Edit, replies: Sequence[Sampled]
    ) -> Row | None:
        """The segment with one message changed, for scoring some of the replies that come after it.

        Args:
            segment: what was played.
            row: of the segment.
            message: index of the message among the segment's.
            edit: its text, without blanks around it -> the text in its place. Control tokens in the new text would be
                read as such: see `without_control_tokens`.
            replies: those whose tokens are wanted; all come after the message.

        Returns:
            A row that ends with the last of these replies and in which their trainable tokens alone are trainable, in
            the order of `positions`; None where the message's tokens can't be found or written again, or it says so
            little ("", "user") that it can't be told from what the template writes around it.
        """
        start, stop, first = self._stretch(segment, message)
        changed = self._rewrite(segment, slice(start, stop), segment.messages[first : message + 1], edit)
        if changed is None:
            return None
        wanted = np.zeros(len(row.ids), bool)
        wanted[positions(row, replies)] = True
        end = max(reply.stop for reply in replies)
        ids = np.concatenate([row.ids[:start], np.array(changed, np.int64), row.ids[stop:end]])
        mask = np.concatenate([np.zeros(start + len(changed), bool), wanted[stop:end]])
        return Row(ids, mask, row.temperature)

    def without_control_tokens(self, text: str) -> str:
        """A text that cannot end a turn or begin one, whatever somebody wrote into it."""
        for token in self._tokenizer.all_special_tokens:
            text = text.replace(token, " ")
        return text

    def _stretch(self, segment: Segment, message: int) -> tuple[int, int, int]:
        """Between which sampled tokens a message lies, and the first message there."""
        replies = sorted((r for r in segment.sampled if r.stop > r.start), key=lambda reply: reply.start)
        before = [reply for reply in replies if reply.message < message]
        after = [reply for reply in replies if reply.message > message]
        start, first = (before[-1].stop, before[-1].message + 1) if before else (0, 0)
        return start, after[0].start if after else len(segment.token_ids), first

    def _rewrite(
        self, segment: Segment, stretch: slice, messages: Sequence[Message], edit: Edit
    ) -> list[int] | None:
        """Ids of a stretch with the last of `messages` edited; the first of them begins it."""
        # From the end token before it on, since a tokenizer may treat the beginning of a text in its own way.
        lead = int(stretch.start > 0 and segment.token_ids[stretch.start - 1] in self._ends)
        old = segment.token_ids[stretch.start - lead : stretch.stop]
        text = self._decode(old)
        if self._encode(text) != old:
            return None
        at = 0
        for message in messages:
            # As the model read it, with its token for unknown words; templates strip blanks around a message.
            content = self._decode(self._encode(message.content.strip()))
            begin = text.find(content, at)
            if begin < 0:
                return None
            at = begin + len(content)
        if content in self._markup:
            return None
        new = self._encode(text[:begin] + edit(content) + text[at:])
        return new[lead:] if new[:lead] == old[:lead] else None

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids


def positions(row: Row, replies: Sequence[Sampled]) -> np.ndarray:
    """Indices of the trainable tokens of some replies, in ascending order."""
    of_replies = np.zeros(len(row.ids), bool)
    for reply in replies:
        of_replies[reply.start : reply.stop] = True
    return np.flatnonzero(of_replies & row.mask)
