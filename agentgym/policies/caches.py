"""Keys and values of tokens: kept between the turns of a conversation, and of the batch that is being generated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from agentgym.policies.attention import Options, causal

# Keys and values of t tokens are one tensor (2, layers, kv heads, t, d).

_SPARE = 64  # tokens that a row may grow by before memory is moved


@dataclass(slots=True, eq=False)
class _Run:
    """A run of tokens in the tree; what follows it differs from then on."""

    ids: np.ndarray
    kept: Tensor
    parent: _Run | None
    used: int
    after: dict[int, _Run] = field(default_factory=dict)  # by first token


class PrefixCache:
    """The keys and values of conversations: a tree of tokens, so that what conversations share is held once.

    Args:
        max_tokens: most tokens held. The ends that were used least recently go first.

    Attributes:
        tokens: how many are held.
    """

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        self.tokens = 0
        self._clock = 0
        self._root = _Run(np.empty(0, np.int64), torch.empty(0), None, 0)

    def longest_prefix(self, ids: np.ndarray) -> list[Tensor]:
        """Keys and values of the longest beginning of `ids` that is held, in consecutive parts."""
        parts: list[Tensor] = []
        self._clock += 1
        run, at = self._root, 0
        while at < len(ids) and (found := run.after.get(int(ids[at]))) is not None:
            same = shared(found.ids, ids[at:])
            found.used = self._clock
            parts.append(found.kept[:, :, :, :same])
            run, at = found, at + same
            if same < len(found.ids):
                break
        return parts

    def add(self, ids: np.ndarray, kept: Tensor) -> None:
        """Hold the keys and values of a conversation; `kept` may be a view into what changes later."""
        self._clock += 1
        run, at = self._root, 0
        while at < len(ids) and (found := run.after.get(int(ids[at]))) is not None:
            same = shared(found.ids, ids[at:])
            if same < len(found.ids):
                found = self._split(found, same)
            found.used = self._clock
            run, at = found, at + same
        if at < len(ids):
            part = kept[:, :, :, at : len(ids)].clone(memory_format=torch.contiguous_format)
            run.after[int(ids[at])] = _Run(ids[at:], part, run, self._clock)
            self.tokens += len(ids) - at
        while self.tokens > self.max_tokens:
            self._drop(min(self._ends(), key=lambda end: end.used))

    def _split(self, run: _Run, at: int) -> _Run:
        """Cut a run in two; returns the first half."""
        assert run.parent is not None
        # Copies, since a view would hold the memory of both halves after one is gone.
        first = _Run(run.ids[:at], run.kept[:, :, :, :at].clone(), run.parent, run.used)
        run.parent.after[int(run.ids[0])] = first
        run.ids, run.kept, run.parent = run.ids[at:], run.kept[:, :, :, at:].clone(), first
        first.after[int(run.ids[0])] = run
        return first

    def _ends(self) -> Iterator[_Run]:
        """The runs that nothing follows."""
        left = [self._root]
        while left:
            run = left.pop()
            left += run.after.values()
            if not run.after:
                yield run

    def _drop(self, run: _Run) -> None:
        assert run.parent is not None
        del run.parent.after[int(run.ids[0])]
        self.tokens -= len(run.ids)


@dataclass(frozen=True, slots=True)
class _Span:
    """What one row of the batch adds to the packed tokens of the first forward pass."""

    row: int
    packed: slice  # its own tokens among the packed ones; empty where another row has the same prompt
    start: int  # its own tokens begin here in its sequence
    source: int  # an earlier row, of which it takes over
    shared: slice  # these positions


class Rows:
    """Keys and values of the conversations that are generated together, and the plan by which they attend.

    The first forward pass computes each token of the prompts once: not again what `cache` holds, and not twice what
    two prompts share. Every further pass adds one token to each row. Rows have one capacity, which grows, but no
    padding is computed by the model; only attention reads over it, masked.

    Args:
        prompts: token ids, at least one for each row.
        cache: what former calls left.
        shape: layers, kv heads and d of the model.
        dtype: of keys and values.
        device: theirs.

    Attributes:
        ids, positions: of the packed tokens of the first pass.
        last: (B,) where the last token of each prompt lies among them.
        reused: tokens of the prompts that were not computed.
    """

    def __init__(
        self,
        prompts: Sequence[np.ndarray],
        cache: PrefixCache,
        shape: tuple[int, int, int],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        layers, heads, d = shape
        self._spans: list[_Span] = []
        self._lengths = [len(prompt) for prompt in prompts]
        # Zeros, since attention multiplies what it does not see by 0, which not-a-number survives.
        self._kept = torch.zeros(
            2, layers, len(prompts), heads, max(self._lengths) + _SPARE, d, dtype=dtype, device=device
        )
        # Once every pass adds one token to each row: (n,) rows, (n,) their last positions, (n, longest) what is seen.
        self._now: tuple[Tensor, Tensor, Tensor] | None = None
        # Where each row's tokens lie among the packed ones; -1 for those in the cache
        places: list[np.ndarray] = []
        ids: list[np.ndarray] = []
        positions: list[np.ndarray] = []
        packed = 0
        for row, prompt in enumerate(prompts):
            held = self._load(row, prompt, cache)
            # Another row's tokens serve from `held` on, if it computes them in this pass too.
            source, until = max(
                (
                    (s, shared(prompts[s], prompt))
                    for s in range(row)
                    if not (places[s][held : held + 1] < 0).any()
                ),
                key=lambda pair: pair[1],
                default=(row, 0),
            )
            start = max(held, until)
            own = slice(packed, packed + len(prompt) - start)
            self._spans.append(_Span(row, own, start, source, slice(held, start)))
            taken = places[source][held:start] if start > held else np.empty(0, np.int64)
            places.append(np.concatenate([np.full(held, -1), taken, np.arange(own.start, own.stop)]))
            ids.append(prompt[start:])
            positions.append(np.arange(start, len(prompt)))
            packed = own.stop
        self.ids = torch.from_numpy(np.concatenate(ids)).to(device)
        self.positions = torch.from_numpy(np.concatenate(positions)).to(device)
        self.last = torch.tensor([int(place[-1]) for place in places], device=device)
        self.reused = sum(self._lengths) - packed

    def _load(self, row: int, prompt: np.ndarray, cache: PrefixCache) -> int:
        """Copy what the cache has of a prompt, but for its last token, whose hidden state is wanted."""
        at = 0
        for part in cache.longest_prefix(prompt[:-1]):
            self._kept[:, :, row, :, at : at + part.shape[3]] = part
            at += part.shape[3]
        return at

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
        """See `agentgym.policies.attention.Plan`."""
        keys, values = self._kept[0, layer], self._kept[1, layer]  # (B, kv heads, capacity, d)
        if self._now is not None:
            return self._attend_each(query, key, value, keys, values, options)
        attended = []
        for span in self._spans:
            stop = span.start + span.packed.stop - span.packed.start
            for buffer, new in ((keys, key), (values, value)):
                buffer[span.row, :, span.shared] = buffer[span.source, :, span.shared]
                buffer[span.row, :, span.start : stop] = new[0, :, span.packed]
            if stop > span.start:
                row = slice(span.row, span.row + 1)
                attended.append(
                    causal(query[:, :, span.packed], keys[row, :, :stop], values[row, :, :stop], options)
                )
        return torch.cat(attended, dim=2)

    def _attend_each(
        self, query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor, options: Options
    ) -> Tensor:
        """One new token in each of the n rows that are left."""
        assert self._now is not None
        each, at, seen = self._now
        n, longest = seen.shape
        keys[each, :, at], values[each, :, at] = key[0].transpose(0, 1), value[0].transpose(0, 1)
        if options.window is not None:
            seen = seen & (torch.arange(longest, device=at.device) > at[:, None] - options.window)
        # The query heads of one kv head stand where usually queries stand, so that no key is copied for them.
        # (n, kv heads, group, d)
        grouped = query[0].transpose(0, 1).reshape(n, key.shape[1], -1, query.shape[3])
        attended = functional.scaled_dot_product_attention(
            grouped,
            keys[:n, :, :longest],
            values[:n, :, :longest],
            attn_mask=seen[:, None, None],
            scale=options.scale,
        )
        return attended.reshape(n, query.shape[1], -1).transpose(0, 1)[None]  # (1, heads, n, d)

    def advance(self) -> Tensor:
        """Make room for one more token in each row; their positions, (n,)."""
        at = torch.tensor(self._lengths, device=self._kept.device)
        self._lengths = [length + 1 for length in self._lengths]
        if max(self._lengths) > self._kept.shape[4]:
            self._grow()
        seen = torch.arange(max(self._lengths), device=at.device) <= at[:, None]
        self._now = (torch.arange(len(at), device=at.device), at, seen)
        return at

    def _grow(self) -> None:
        """Make room for half as many tokens again in the rows that are left."""
        old = self._kept[:, :, : len(self._lengths)]
        self._kept = functional.pad(old, (0, 0, 0, old.shape[4] // 2))

    def kept(self, row: int) -> Tensor:
        """Keys and values of a row's tokens so far: a view."""
        return self._kept[:, :, row, :, : self._lengths[row]]

    def remove(self, row: int) -> None:
        """Take a row out; the last row takes its place."""
        length = self._lengths.pop()
        if row < len(self._lengths):
            self._kept[:, :, row, :, :length] = self._kept[:, :, len(self._lengths), :, :length]
            self._lengths[row] = length


def shared(first: np.ndarray, second: np.ndarray) -> int:
    """How many tokens the two begin with in common."""
    length = min(len(first), len(second))
    differ = first[:length] != second[:length]
    return int(differ.argmax()) if differ.any() else length
