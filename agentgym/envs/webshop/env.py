"""WebShop-v0: buy the product that fits an instruction."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentgym.core import AgentEnv, Episode, Task, ToolResult, Verdict
from agentgym.envs.webshop import nouns
from agentgym.envs.webshop.catalogue import open_catalogue
from agentgym.envs.webshop.generate import invented_catalogue
from agentgym.envs.webshop.original import SEED, Server, drawn_prices
from agentgym.envs.webshop.pages import BACK, BUY, NEXT, PREVIOUS
from agentgym.envs.webshop.screen import Screen
from agentgym.envs.webshop.session import Quirks
from agentgym.envs.webshop.shop import Shop
from agentgym.envs.webshop.tasks import goal_of, options_for, original_tasks, stable_tasks
from agentgym.errors import TaskError, ToolError, UsageError, flag, whole_number

_INVENTED = 1000  # products without data=


class WebShopEnv(AgentEnv):
    """Buy the product that fits an instruction.

    ## Description
    A shop with search, pages of results, products and options, after Yao et al., "WebShop: Towards Scalable Real-World
    Web Interaction with Grounded Language Agents" (2022). The instruction is in every observation but the last.

    ## Actions
    Plain text: ``search[words]`` where there is a search bar, ``click[text]`` with a button's text, a product's id,
    or a value of an option; `info["admissible_actions"]` lists them. Anything else costs a turn, is answered with what
    was expected and sets `info["invalid_action"]`.

    ## Observations
    The visible text of the page, its pieces joined by " [SEP] " (`observation_mode="text"`), with marks around what can
    be clicked (``"text_rich"``), the page's ``"html"``, or its ``"url"``.

    ## Reward
    0 before the purchase, then its worth in [0, 1]: (attributes had + options chosen + 1 if not too dear) / (attributes
    + options + 1), times 1, 0.5, 0.1 or 0 by how far it is the right kind of thing. 1 is success.

    ## Episode end
    Terminated by "Buy Now"; truncated after `max_turns` (default: 15).

    ## Compatible with the original
    With `compat=True` pages, actions, goals and rewards are the original's, its faults included; `Quirks` lists them,
    and `quirks` turns single ones on or off in either mode. Tasks are then its goals in its order
    (`options={"task": str(n)}` is its ``reset(n)``). The episode still ends with the purchase.

    Args:
        data: a folder with the official files; None: an invented catalogue.
        num_products: only so many; of invented ones 1,000 by default.
        catalogue_seed: of invented ones.
        goals: "human": instructions that people wrote; "synthetic": made by rule.
        compat: be like the original.
        quirks: names of `Quirks` with True or False.
        observation_mode: "text", "text_rich", "html" or "url".
        num_prev_obs: how many earlier observations stand before the present one.
        num_prev_actions: how many earlier actions.
        show_attrs: products have a page that lists their attributes.
        limit_goals: with `compat`, how many goals are drawn; -1: all.
        pos: how a title's nouns are found: "rule", or "spacy" exactly as the original does; "auto": spaCy with
            `compat` where it is installed. The verdict's evidence says which.
        **kwargs: see `AgentEnv`.

    ## Version history
    v0: first.
    """

    default_max_turns = 15
    snapshot_exclude = frozenset({"shop"})
    instructions = (
        "You are shopping online for the product that an instruction asks for. Answer each page with one action and "
        "nothing else: search[words] where the page has a search bar, click[text] to press a button, to open a product "
        "by its id or to choose the value of an option. Choose every option that is asked for, then click[buy now]."
    )

    def __init__(
        self,
        *,
        data: str | Path | None = None,
        num_products: int | None = None,
        catalogue_seed: int = 0,
        goals: str = "human",
        compat: bool = False,
        quirks: Mapping[str, bool] | None = None,
        observation_mode: str = "text",
        num_prev_obs: int = 0,
        num_prev_actions: int = 0,
        show_attrs: bool = False,
        limit_goals: int = -1,
        pos: nouns.Tagger = "auto",
        **kwargs: Any,
    ) -> None:
        if data is None:
            size = _INVENTED if num_products is None else num_products
            catalogue = invented_catalogue(size, catalogue_seed)
        else:
            catalogue = open_catalogue(data, num_products)
        self.tagger, find = nouns.choose("rule" if pos == "auto" and not compat else pos)
        self.compat = flag("compat", compat)
        flag("show_attrs", show_attrs)
        whole_number("limit_goals", limit_goals, least=-1)
        if quirks is not None and not isinstance(quirks, Mapping):
            raise UsageError(f"expected quirks to be {{'NAME': True or False, ..}}, got {quirks!r:.60}")
        if compat:
            human = _is_human(goals)
            server = Server(
                catalogue, find, human_goals=human, limit_goals=limit_goals, show_attrs=show_attrs
            )
            self.shop = server.shop.changed(quirks or {})
            tasks = original_tasks(server.goals)
        else:
            if limit_goals != -1:
                raise UsageError(
                    "limit_goals belongs to compat=True; choose tasks with split=... or tasks=..."
                )
            prices = (
                drawn_prices(catalogue, random.Random(SEED)) if (quirks or {}).get("drawn_prices") else None
            )
            plain = Shop(catalogue, find, quirks=Quirks(), prices=prices, show_attrs=show_attrs)
            self.shop = plain.changed(quirks or {})
            tasks = stable_tasks(catalogue, goals)
        self.screen = Screen(observation_mode, num_prev_obs=num_prev_obs, num_prev_actions=num_prev_actions)
        if kwargs.get("tasks") is None:
            kwargs["tasks"] = tasks
        super().__init__(**kwargs)

    def begin(self, task: Task) -> str:
        """Open the search page."""
        rng = random.Random(int(self.np_random.integers(2**63))) if self.shop.quirks.special_words else None
        goal = goal_of(task)
        if goal.asin not in self.shop.catalogue:
            raise TaskError(
                f"task {task.id!r} is about the product {goal.asin!r}, which is not among the "
                f"{len(self.shop.catalogue)} of this shop"
            )
        return self.screen.start(self.shop.visit(goal, task.id, rng))

    def respond(self, action: str) -> str | ToolResult:  # type: ignore[override]
        """One action."""
        reply = self.screen.step(action if self.compat else action.strip())
        if reply.done:
            self.finish()
        if reply.valid:
            return reply.observation
        if self.compat:  # the original says nothing and shows the same page
            return ToolResult(reply.observation, error=True)
        raise ToolError(f"That is not possible here. Expected {self._expected()}.")

    def verify(self, episode: Episode) -> Verdict:
        """What the purchase was worth; 0 without one."""
        score = self.screen.session.score
        evidence = {"nouns": self.tagger}
        if score is None:
            return Verdict(0.0, components={"bought": 0.0}, evidence=evidence)
        parts = {
            "bought": 1.0,
            "type": score.r_type,
            "attributes": score.r_att,
            "price": float(score.r_price),
        }
        if score.r_option is not None:
            parts["options"] = score.r_option
        return Verdict(score.total, components=parts, evidence=evidence)

    def anchor(self) -> str:
        """The address of the page: searched words, page number, product, chosen options."""
        return self.screen.session.url

    def admissible_actions(self) -> tuple[str, ...]:
        """A click for everything that can be clicked, and where there is a search bar the instruction as a search."""
        session = self.screen.session
        if session.has_search_bar:
            return (f"search[{_searchable(session.goal.instruction_text)}]",)
        return session.clicks

    def gold(self) -> str:
        """Look for the product by its title, choose what is asked for, buy."""
        self.episode  # noqa: B018  # before the first reset there is none: say so
        session = self.screen.session
        page, goal = session.page, session.goal
        if page.name == "index":
            return f"search[{_searchable(goal.name)}]"
        if page.name == "search_results":
            if any(product.asin == goal.asin for product in page.products):
                return _click(goal.asin)
            return _click(NEXT if page.products and NEXT in page.buttons else BACK)
        if page.name != "item_page" or page.item.asin != goal.asin:
            return _click(PREVIOUS)
        wanted = options_for(page.item, goal) or {}
        missing = [value for value in wanted.values() if value not in page.chosen.values()]
        return _click(missing[0] if missing else BUY)

    def cheats(self) -> Mapping[str, Sequence[str]]:
        """Buying nothing, going to the last page by its address, asking for the product's id or for the goals' file."""
        goal = self.screen.session.goal
        tried = {
            "buy on the search page": [_click(BUY)],
            "buy a page of results": [f"search[{_searchable(goal.name)}]", _click(BUY)],
            "the last page's address": [
                f"search[http://127.0.0.1:3000/done/{self.episode.task.id}/{goal.asin}/{{}}]",
                _click("done"),
                f"click[{self.screen.session.url}/done]",
            ],
            "the id as a search": [f"search[{goal.asin}]", _click(goal.asin), _click(BUY)],
            "the id as a click": [_click(goal.asin), _click(BUY)],
            "the goals' file": ["search[items_human_ins.json]", "click[human.json]", _click(BUY)],
        }
        if not self.shop.quirks.special_words:  # where they are there, they are no cheat
            commands = ["search[<a> x]", f"search[<q> {goal.query}]", _click(goal.asin), _click(BUY)]
            tried["commands of the original"] = commands
        return tried

    def _expected(self) -> str:
        session = self.screen.session
        if session.has_search_bar:
            return "search[words]"
        return f"click[text] with one of {', '.join(session.clickables)}"


def _is_human(goals: str) -> bool:
    if goals not in ("human", "synthetic"):
        raise UsageError(f"expected goals to be 'human' or 'synthetic', got {goals!r}")
    return goals == "human"


def _click(text: str) -> str:
    return f"click[{text.lower()}]"


def _searchable(text: str) -> str:
    """A text as a search's words: brackets would end it."""
    return text.translate({ord("["): " ", ord("]"): " ", ord("\n"): " "})
