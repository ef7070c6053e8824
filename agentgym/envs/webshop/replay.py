"""Replays recorded episodes of the original WebShop and says where ours differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentgym.envs.webshop import html
from agentgym.envs.webshop.catalogue import Catalogue
from agentgym.envs.webshop.original import Player, Server
from agentgym.envs.webshop.reward import Nouns
from agentgym.envs.webshop.session import RESULTS
from agentgym.errors import TaskError, ToolError, UsageError
from agentgym.retrieval import Hit

_CLOSE = 1e-9  # rewards
_HIT_CLOSE = 1e-3  # scores of the search engine
_SERVER_KEYS = ("limit_goals", "show_attrs")
_PLAYER_KEYS = ("num_prev_obs", "num_prev_actions")

Difference = dict[str, Any]  # step (-1: before the first), field, expected, got


@dataclass
class SearchAgreement:
    """How our rankings compare with the recorded ones."""

    searches: int = 0
    top1: int = 0
    overlap: float = 0.0

    def add(self, ours: Sequence[str], recorded: Sequence[str]) -> None:
        """Count one search."""
        self.searches += 1
        self.top1 += ours[:1] == recorded[:1]
        best = set(recorded[:10])
        self.overlap += len(best & set(ours[:10])) / len(best) if best else float(not ours)

    def to_json(self) -> dict[str, float | None]:
        """Shares of searches; None where nothing was searched."""
        if not self.searches:
            return {"top1": None, "top10_overlap": None}
        return {"top1": self.top1 / self.searches, "top10_overlap": self.overlap / self.searches}


@dataclass
class Replay:
    """Replays traces on one catalogue.

    Args:
        catalogue: that the traces were recorded on.
        nouns: finds the nouns of a title.
    """

    catalogue: Catalogue
    nouns: Nouns
    search: SearchAgreement = field(default_factory=SearchAgreement)
    _servers: dict[tuple[Any, ...], Server] = field(default_factory=dict)

    def run(
        self, traces: Iterable[Mapping[str, Any]], each: Callable[[object], None] = lambda trace_id: None
    ) -> dict[str, Any]:
        """What `agentgym shop replay --json` prints; `each` is told the id of every trace that is done."""
        rows = []
        for trace in traces:
            try:
                given = self._first_difference(trace, recorded_hits=True)
                own = self._first_difference(trace, recorded_hits=False)
            except (KeyError, TypeError, AttributeError) as error:
                raise TaskError(
                    f"trace {trace.get('id')!r}: expected a recorded episode, got {error!r}"
                ) from None
            rows.append(
                {
                    "id": trace["id"],
                    "equal": own is None,
                    "equal_given_hits": given is None,
                    "first_difference": own,
                }
            )
            each(trace["id"])
        return {
            "n": len(rows),
            "equal": sum(row["equal"] for row in rows),
            "equal_given_hits": sum(row["equal_given_hits"] for row in rows),
            "traces": rows,
            "search": self.search.to_json(),
        }

    def _server(self, trace: Mapping[str, Any]) -> Server:
        """The shop of a trace, without sessions: the same numbers come in several traces."""
        kwargs = trace["env_kwargs"]
        unknown = kwargs.keys() - {*_SERVER_KEYS, *_PLAYER_KEYS}
        if unknown:
            known = ", ".join(_SERVER_KEYS + _PLAYER_KEYS)
            raise UsageError(f"trace {trace['id']!r}: expected env_kwargs of {known}, got {sorted(unknown)}")
        settings = {name: kwargs[name] for name in _SERVER_KEYS if name in kwargs}
        human = bool(trace["human_goals"])
        key = (human, *sorted(settings.items()))
        if key not in self._servers:
            self._servers[key] = Server(self.catalogue, self.nouns, human_goals=human, **settings)
        self._servers[key].forget_sessions()
        return self._servers[key]

    def _first_difference(self, trace: Mapping[str, Any], *, recorded_hits: bool) -> Difference | None:
        server = self._server(trace)
        mode = trace["observation_mode"]
        history = {name: trace["env_kwargs"][name] for name in _PLAYER_KEYS if name in trace["env_kwargs"]}
        player = Player(server, mode, **history)
        searched = _Recorded(self.catalogue) if recorded_hits else _Own(self.catalogue, self.search)
        server.rng.seed(trace["global_random_seed_before_reset"])
        observation = player.reset(trace["session_arg"], search=searched)
        start = {
            "session": player.session.name,
            "goal": player.session.goal.to_json(),
            "instruction_text": f"Instruction: {player.session.goal.instruction_text}",
            **_state(player, observation, mode),
        }
        expected = {name: trace[name] for name in ("session", "goal", "instruction_text")}
        difference = _differs(-1, expected | _recorded(trace["reset"], mode), start)
        for number, step in enumerate(trace["steps"]):
            if difference is not None:
                return difference
            searched.expect(step.get("hits", []))
            difference = _step(player, number, step, mode) or searched.difference(number)
        return difference or _differs(len(trace["steps"]), trace["final"], _final(player))


class _Recorded:
    """A search that finds what the original found at this step."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def expect(self, hits: Sequence[tuple[str, float]]) -> None:
        self._hits = hits

    def __call__(self, query: str) -> list[str]:
        return [asin for asin, _ in self._hits if asin in self._catalogue]

    def difference(self, step: int) -> Difference | None:
        return None


class _Own(_Recorded):
    """Our own search, which keeps what it found."""

    def __init__(self, catalogue: Catalogue, agreement: SearchAgreement) -> None:
        super().__init__(catalogue)
        self._agreement = agreement
        self._found: list[Hit] | None = None

    def __call__(self, query: str) -> list[str]:
        self._found = self._catalogue.index.search(query, RESULTS)
        return [hit.id for hit in self._found]

    def difference(self, step: int) -> Difference | None:
        """How the hits of the step differ, where it searched."""
        found, self._found = self._found, None
        if found is None:
            return None
        self._agreement.add([hit.id for hit in found], [asin for asin, _ in self._hits])
        same = len(found) == len(self._hits) and all(
            hit.id == asin and abs(hit.score - score) <= _HIT_CLOSE
            for hit, (asin, score) in zip(found, self._hits, strict=True)
        )
        return None if same else _difference(step, "hits", self._hits, [list(hit) for hit in found])


def _step(player: Player, number: int, step: Mapping[str, Any], mode: str) -> Difference | None:
    try:
        reply = player.step(step["action"])
    except ToolError as refusal:
        return None if "error" in step else _difference(number, "error", None, str(refusal))
    if "error" in step:
        return None  # any refusal will do; ours is that nothing happens
    got = {"reward": reply.reward, "done": reply.done, **_state(player, reply.observation, mode)}
    return _differs(number, {"reward": step["reward"], "done": step["done"], **_recorded(step, mode)}, got)


def _state(player: Player, observation: str, mode: str) -> dict[str, Any]:
    session = player.session
    return {
        "obs": _comparable(observation, mode),
        "available": {"has_search_bar": session.has_search_bar, "clickables": list(session.clickables)},
        "url": session.url,
    }


def _recorded(step: Mapping[str, Any], mode: str) -> dict[str, Any]:
    return {"obs": _comparable(step["obs"], mode), "available": step["available"], "url": step["url"]}


def _comparable(observation: str, mode: str) -> str | list[str]:
    """HTML by its outline; with history before it, each page by its own."""
    return html.outline(observation) if mode == "html" else observation


def _final(player: Player) -> dict[str, Any]:
    session = player.session
    score = session.score
    return {
        "asin": session.asin,
        "options": session.options,
        "reward": score.total if score else None,
        "reward_info": score.to_json() if score else None,
    }


def _differs(step: int, expected: Mapping[str, Any], got: Mapping[str, Any]) -> Difference | None:
    for name, value in expected.items():
        if not _equal(value, got[name]):
            return _difference(step, name, value, got[name])
    return None


def _difference(step: int, name: str, expected: Any, got: Any) -> Difference:
    return {"step": step, "field": name, "expected": expected, "got": got}


def _equal(expected: Any, got: Any) -> bool:
    """Whether two JSON values are the same, numbers to 1e-9."""
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        return expected.keys() == got.keys() and all(
            _equal(value, got[name]) for name, value in expected.items()
        )
    if isinstance(expected, list) and isinstance(got, list):
        return len(expected) == len(got) and all(map(_equal, expected, got))
    if isinstance(expected, float | int) and isinstance(got, float | int):
        return math.isclose(expected, got, rel_tol=0, abs_tol=_CLOSE)
    return bool(expected == got)
