"""Teachers: what a model says of tokens that another one sampled.

A teacher is a model on this machine, a server, or the student itself with more in its context. It has the student's
vocabulary, token by token; anything else is refused. It is asked about the ids that were sampled, never about their
text.

Shapes: R rows (segments), M trainable tokens of them all, M_r of row r, H the hidden size, V the vocabulary.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from agentgym.endpoint import Endpoint
from agentgym.errors import InfrastructureError, UsageError
from baselines.actor import Actor, Row

SELF = "self"
_NO_ECHO = "expected a server that scores prompts (`echo` with `logprobs`, as vLLM does and python -m baselines.scorer)"


class Teacher(Protocol):
    """What is asked of every teacher."""

    def score(self, rows: Sequence[Row]) -> list[Tensor]:
        """Log-probs of the rows' trainable tokens at the rows' temperatures, (M_r,) each, on the CPU.

        Raises:
            UsageError: a row is longer than the teacher's context; a temperature that it can't score at.
            InfrastructureError: its server failed.
        """

    def fits(self, row: Row) -> bool:
        """Whether it can read a row."""


class LocalTeacher:
    """A model on this machine.

    Args:
        model: with its tokenizer; never trained here. The student itself may be given.
        name: for messages.

    Attributes:
        actor: the model.
    """

    def __init__(self, model: Actor, name: str) -> None:
        self.actor = model
        self._name = name

    def score(self, rows: Sequence[Row]) -> list[Tensor]:
        """See `Teacher`."""
        self._check(rows)
        scored, _ = self.actor.score(rows, entropy=False)
        return list(scored.cpu().split([int(row.mask.sum()) for row in rows]))

    def states(self, rows: Sequence[Row]) -> Tensor:
        """The states before the rows' trainable tokens, (M, H), row by row; what `head` makes logits of."""
        self._check(rows)
        packs = self.actor.packs(rows)
        with torch.no_grad():
            hidden = torch.cat([self.actor.states(pack) for pack in packs])  # (M, H), in the packs' order
        return hidden[torch.cat([pack.flat for pack in packs]).argsort().to(hidden.device)]

    def fits(self, row: Row) -> bool:
        """See `Teacher`."""
        return len(row.ids) <= min(self.actor.policy.context, self.actor.max_tokens)

    def _check(self, rows: Sequence[Row]) -> None:
        context = self.actor.policy.context
        longest = max(len(row.ids) for row in rows)
        if longest > context:
            raise UsageError(
                f"{self._name}: expected segments that fit its context of {context} tokens, got one of {longest}; keep "
                f"them shorter with --compact {context}"
            )


class ServedTeacher:
    """A model behind an OpenAI-compatible server that scores prompts: POST /v1/completions with a list of ids, `echo`,
    `logprobs` and no new tokens, answered by a log-prob for every id but the first.

    Servers score at temperature 1, so nothing else may be sampled at.

    Args:
        endpoint: the server.
        tokenizer: the student's; what the server calls the first ids is compared with it.
        workers: requests at a time.
    """

    def __init__(self, endpoint: Endpoint, tokenizer: Any, workers: int = 8) -> None:
        self._endpoint = endpoint
        self._tokenizer = tokenizer
        self._name = f"{endpoint.model} at {endpoint.base_url}"
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="agentgym-teacher")

    def score(self, rows: Sequence[Row]) -> list[Tensor]:
        """See `Teacher`."""
        for row in rows:
            if row.temperature != 1.0:
                raise UsageError(
                    f"{self._name} scores at temperature 1; expected --temperature 1, got {row.temperature:g}"
                )
        return list(self._threads.map(self._score, rows))

    def fits(self, row: Row) -> bool:
        """See `Teacher`; how much a server reads only it knows."""
        return True

    def _score(self, row: Row) -> Tensor:
        ids = row.ids.tolist()
        asked = {"model": self._endpoint.model, "prompt": ids, "echo": True, "logprobs": 1, "max_tokens": 0}
        answer = self._endpoint.post("/v1/completions", asked)
        try:
            told = answer["choices"][0]["logprobs"]
            tokens, scores = list(told["tokens"]), list(told["token_logprobs"])
        except (LookupError, TypeError):
            raise UsageError(f"{self._name}: {_NO_ECHO}, got {json.dumps(answer)[:80]}") from None
        if len(scores) < len(ids) or len(tokens) < len(ids):
            raise UsageError(f"{self._name}: {_NO_ECHO}, got {len(scores)} log-probs for {len(ids)} ids")
        self._compare(ids, tokens)
        wanted = [scores[t] for t in np.flatnonzero(row.mask)]
        if not all(isinstance(score, int | float) and math.isfinite(score) for score in wanted):
            raise InfrastructureError(f"{self._name}: expected log-probs, got {scores!r:.80}")
        return torch.tensor(wanted, dtype=torch.float32)

    def _compare(self, ids: Sequence[int], tokens: Sequence[str]) -> None:
        """What the server calls the ids, beside the student's words for them. Parts of a character have no name."""
        for id, named in zip(ids, tokens, strict=False):
            own = self._tokenizer.decode([id], skip_special_tokens=False)
            if "\ufffd" not in own + named and own.strip() != named.strip():
                raise UsageError(
                    f"{self._name} has another vocabulary: id {id} is {named!r} there and {own!r} for the student"
                )


def places_of(words: Sequence[str]) -> dict[str, str]:
    """Where the teachers of a command line are, by key: ``[KEY=]WHERE`` each, "" without a key.

    Raises:
        UsageError: there is none; a key stands twice; one of several has no key.
    """
    places: dict[str, str] = {}
    for text in words:
        key, _, where = text.rpartition("=")
        if key in places:
            raise UsageError(f"expected one --teacher for each key, got two for {key!r}")
        places[key] = where
    if not places or ("" in places and len(places) > 1):
        raise UsageError(
            f"expected --teacher WHERE, or --teacher KEY=WHERE for each of several, got {list(words)}"
        )
    return places


def is_served(where: str) -> bool:
    """Whether a teacher is behind a server."""
    return where.startswith(("http://", "https://"))


def open_teachers(words: Sequence[str], student: Actor, *, scores_only: bool) -> dict[str, Teacher]:
    """The teachers that a command line names, by key.

    Args:
        words: as for `places_of`; WHERE is a model as `--model` takes it, ``URL#MODEL`` for a server, or ``self``.
        student: whose vocabulary they must have.
        scores_only: False where whole distributions are wanted, which servers do not tell.

    Raises:
        UsageError: another vocabulary; a server where whole distributions are wanted; no such model.
    """
    places = places_of(words)
    opened = {where: _open(where, student, scores_only) for where in dict.fromkeys(places.values())}
    return {key: opened[where] for key, where in places.items()}


def _open(where: str, student: Actor, scores_only: bool) -> Teacher:
    if where == SELF:
        return LocalTeacher(student, SELF)
    if is_served(where):
        url, _, model = where.partition("#")
        if not model:
            raise UsageError(f"expected a server as URL#MODEL, got {where}")
        if not scores_only:
            raise UsageError(
                f"{where}: servers tell log-probs of given tokens only; use --form sampled, or a local model"
            )
        return ServedTeacher(Endpoint(model, base_url=url), student.tokenizer)
    device = student.model.device
    actor = Actor(
        where,
        device=str(device),
        autocast=student.autocast,
        max_tokens=student.max_tokens,
        chunk=student.chunk,
    )
    actor.model.requires_grad_(False)
    _check_vocabulary(where, student.tokenizer.get_vocab(), actor.tokenizer.get_vocab())
    return LocalTeacher(actor, where)


def _check_vocabulary(name: str, own: Mapping[str, int], other: Mapping[str, int]) -> None:
    """Raise unless two vocabularies are one."""
    if own == other:
        return
    ids = {id: word for word, id in other.items()}
    for word, id in sorted(own.items(), key=lambda item: item[1]):
        if ids.get(id) != word:
            theirs = repr(ids[id]) if id in ids else "nothing"
            raise UsageError(
                f"teacher {name}: expected the student's vocabulary of {len(own)} tokens, got one of {len(other)}; "
                f"id {id} is {theirs} there and {word!r} for the student"
            )
    raise UsageError(
        f"teacher {name}: expected the student's vocabulary of {len(own)} tokens, got {len(other)}"
    )
