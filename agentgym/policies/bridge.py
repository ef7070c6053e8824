"""The prompt of the next turn: the ids a conversation already holds, and only the rest newly tokenised.

A tokenizer seldom gives back the ids that were sampled: the model may write "he" + "llo" where the tokenizer writes
"hello". Encoding the whole conversation anew each turn would condition the model on tokens it never wrote. So the
ids of a conversation are kept as they were sampled, and what follows is tokenised alone.

That is done only where the chat template itself says that the rest follows: where it renders the new conversation as
the text of the old prompt, the reply, and more. A template that rewrites old turns, for example by leaving out their
reasoning, gives another text; then the whole is encoded anew, and the recorder sees a new segment.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from agentgym.messages import Conversation, to_openai

_MOST_HELD = 8192  # replies; their ids are held once, those of one conversation in a chain


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """A conversation up to the end of a reply."""

    before: _Held | None  # the conversation that it continues
    ids: tuple[int, ...]  # what came after that, the reply included
    text: str  # of the reply

    def all_ids(self) -> list[int]:
        parts: list[tuple[int, ...]] = []
        held: _Held | None = self
        while held is not None:
            parts.append(held.ids)
            held = held.before
        return [token for part in reversed(parts) for token in part]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model reads.

    Attributes:
        ids: all of it.
    """

    ids: tuple[int, ...]
    _held: _Held | None
    _digest: Any  # of its text; more can be added


class Bridge:
    """Remembers which ids conversations hold.

    Args:
        tokenizer: with a chat template.
        end_ids: the tokens that end a turn.
    """

    def __init__(self, tokenizer: Any, end_ids: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._ends = {token: self.decode([token]) for token in sorted(end_ids)}
        texts = sorted(filter(None, self._ends.values()), key=len, reverse=True)
        self._end = re.compile("|".join(map(re.escape, texts)) or r"(?!)")
        # Digest of a text -> the conversations with this text, which may differ in ids; the latest comes last.
        self._held: OrderedDict[bytes, list[_Held]] = OrderedDict()

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, control tokens included."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def prompt(self, conversation: Conversation, most: int | None = None) -> Prompt:
        """The ids to answer a conversation from: those it holds, then the rest of its text.

        Args:
            conversation: what is to be answered.
            most: tokens that are wanted. Sampled ids may be more than those of the same text encoded anew, which token
                counters count; above this number the fewer of both are taken.
        """
        text: str = self._tokenizer.apply_chat_template(
            to_openai(conversation), add_generation_prompt=True, tokenize=False
        )
        digest = _start()
        best: tuple[_Held, re.Match[str], bool] | None = None
        at = 0
        for end in self._end.finditer(text):
            digest.update(text[at : end.start()].encode())
            cut_off = self._find(digest, conversation)  # it stopped without a token that ends it
            digest.update(end.group().encode())
            ended = self._find(digest, conversation)
            at = end.end()
            if (found := ended or cut_off) is not None:
                best = (found, end, ended is not None)
        digest.update(text[at:].encode())
        prompt = self._continued(text, digest, *best) if best is not None else None
        if prompt is None or (most is not None and len(prompt.ids) > most):
            anew = Prompt(tuple(self._encode(text)), None, digest)
            return anew if prompt is None or len(anew.ids) < len(prompt.ids) else prompt
        return prompt

    def _continued(
        self, text: str, digest: Any, held: _Held, end: re.Match[str], ended: bool
    ) -> Prompt | None:
        """What is held, then what `text` holds from `end` on, or after it if the held reply ended itself."""
        # Tokenised from the end token on, since a tokenizer may treat the beginning of a text in its own way.
        rest = self._encode(text[end.start() :])
        if not rest or self._ends.get(rest[0]) != end.group():
            return None
        return Prompt((*held.all_ids(), *(rest[1:] if ended else rest)), held, digest)

    def hold(self, prompt: Prompt, sampled: Sequence[int], text: str) -> None:
        """Remember a reply.

        Args:
            prompt: what was answered.
            sampled: ids of the reply.
            text: of the reply, as later conversations will hold it.
        """
        before = prompt._held
        new = prompt.ids[len(before.all_ids()) :] if before is not None else prompt.ids
        held = _Held(before, (*new, *sampled), text)
        end = self._ends.get(sampled[-1], "")
        for shown in {text, text.strip()}:  # templates strip blanks around a message
            digest = prompt._digest.copy()
            digest.update((shown + end).encode())
            key = digest.digest()
            twins = self._held.pop(key, [])
            self._held[key] = [twin for twin in twins if twin.all_ids() != held.all_ids()] + [held]
        while len(self._held) > _MOST_HELD:
            self._held.popitem(last=False)

    def clear(self) -> None:
        """Forget all replies."""
        self._held.clear()

    def _find(self, digest: Any, conversation: Conversation) -> _Held | None:
        twins = self._held.get(digest.digest())
        if not twins:
            return None
        # Episodes of one group may write the same text in other tokens. Whose turn it is no text can tell; but within
        # one process the message holds the very string that the reply was, and else any of them is a right answer.
        own = (h for h in reversed(twins) if any(h.text is message.content for message in conversation))
        return next(own, twins[-1])

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids


def _start() -> Any:
    return hashlib.blake2b(digest_size=16)
