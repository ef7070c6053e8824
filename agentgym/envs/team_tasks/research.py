"""ResearchTeam-v0: questions whose documents lie in different places, one for each member of a team."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pettingzoo  # type: ignore[import-untyped, unused-ignore]

from agentgym.errors import UsageError, whole_number
from agentgym.parallel import TextParallelEnv
from agentgym.registration import require

BASE, TEAM = "agentgym/SearchQA-v0", "agentgym/Team-v0"
_OF_THE_BASE = frozenset({"tasks", "corpus", "shard", "hops", "unanswerable"})
_OF_THE_TEAM = frozenset({"base", "view", "worker_kwargs"})


def make(
    *,
    workers: int = 2,
    hops: Sequence[int] = (2, 3, 4),
    base_kwargs: Mapping[str, Any] | None = None,
    **team: Any,
) -> TextParallelEnv:
    """Team-v0 on SearchQA-v0 where each member searches a part of the documents of its own.

    The documents are divided among the orchestrator and its workers; the parts have nothing in common. A question takes
    at least two documents, each proved to be needed, and no part holds all of them: whoever searches alone cannot know
    the answer. There are no unanswerable questions, since to find nothing would be a clue.

    Args:
        workers: how many; the documents are divided into one part more.
        hops: how many documents questions need, from 2 to 4 each.
        base_kwargs: more keywords of SearchQA-v0, such as `documents`, `split`, `max_turns`.
        **team: more keywords of Team-v0, such as `worker_turns`, `credit`, `max_cycles`.

    Raises:
        UsageError: a question would need one document only, or a keyword is the task's own.
    """
    parts = whole_number("workers", workers, least=1) + 1
    if not hops or not all(isinstance(each, int) and each >= 2 for each in hops):
        raise UsageError(
            f"expected hops of at least 2 documents each, so that one part is not enough, got {hops!r}"
        )
    given = dict(base_kwargs or {})
    if taken := (_OF_THE_BASE & given.keys()) | (_OF_THE_TEAM & team.keys()):
        raise UsageError(f"ResearchTeam-v0 sets {sorted(taken)[0]!r} itself; make {TEAM} to say it")
    require(TEAM)
    env: TextParallelEnv = pettingzoo.make(
        "parallel",
        TEAM,
        base=BASE,
        view="own",
        workers=workers,
        base_kwargs=given | {"hops": tuple(hops), "unanswerable": 0.0, "shard": (0, parts)},
        worker_kwargs=[{"shard": (part, parts)} for part in range(1, parts)],
        **team,
    )
    return env
