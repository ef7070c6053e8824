"""How published agent prompts are phrased and their replies read: one `Form` for each family.

The facts are those of verl-agent and what grew out of it (GiGPO, arXiv 2505.10978; OPID): what stands in a prompt, how
lists and histories are joined, which part of a reply reaches the environment, which replies count as invalid. The
sentences are ours; `read_templates` takes the published ones out of a file of theirs.
"""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from agentgym.errors import TaskError, UsageError

# What a template may name. `available_actions` is the name that WebShop's published template uses for
# `admissible_actions`, `memory_context` the one of the search template for `action_history`.
PLACEHOLDERS = (
    "task_description",
    "step_count",
    "history_length",
    "action_history",
    "memory_context",
    "current_step",
    "current_observation",
    "admissible_actions",
    "available_actions",
)


class Read(NamedTuple):
    """What a reply came to: what is sent to the environment, and whether the reply was well formed."""

    action: str
    well_formed: bool


class Templates(NamedTuple):
    """The prompt without a history (the first turn), and the one with."""

    first: str
    later: str


@dataclass(frozen=True, slots=True)
class Form:
    """How one family's prompts are phrased and its replies read.

    Attributes:
        name: as the wrapper's argument has it.
        history: how many earlier turns a prompt shows in the published settings.
        templates: our own sentences.
        task: the first observation -> the task.
        screen: an observation and the task -> the observation as it is shown.
        listing: the admissible actions -> the list as it is shown; None where the form lists none.
        turn: number, what was seen, what was sent, what was answered -> one line of the history.
        read: a reply -> what reaches the environment.
        write: an action -> a well formed reply that comes to it.
        protocol: which an environment with tools has to speak; None where moves are plain text.
        longest: a prompt with more characters is phrased without its history; None: whatever its length.
    """

    name: str
    history: int
    templates: Templates
    task: Callable[[str], str]
    screen: Callable[[str, str], str]
    listing: Callable[[Sequence[str]], str] | None
    turn: Callable[[int, str, str, str], str]
    read: Callable[[str], Read]
    write: Callable[[str], str]
    protocol: str | None = None
    longest: int | None = None


# -- reading replies -------------------------------------------------------------------------------------------------

_CHINESE = re.compile("[\u4e00-\u9fff]")
_TAGS = {
    tag: (re.compile(f"<{tag}>", re.IGNORECASE), re.compile(f"</{tag}>", re.IGNORECASE))
    for tag in ("search", "answer")
}


def read_action(reply: str, tail: int) -> Read:
    """What stands between the first ``<action>`` and the first ``</action>``, in lower case.

    Where one of the tags is missing, the last `tail` characters of the reply are sent, and it is not well formed. Nor
    is a reply without ``<think>`` and ``</think>`` (in lower case, anywhere), or with a Chinese character. Whether the
    action is admissible plays no part.
    """
    lowered = reply.lower()
    start, end = lowered.find("<action>"), lowered.find("</action>")
    if start < 0 or end < 0:
        return Read(lowered[-tail:], False)
    thought = "<think>" in reply and "</think>" in reply
    return Read(lowered[start + len("<action>") : end].strip(), thought and not _CHINESE.search(reply))


def read_search(reply: str) -> Read:
    """The first ``<search>`` block up to the first closing tag, else the first ``<answer>`` block, else nothing.

    Well formed is a reply that holds exactly one of the two opening tags, once; its thoughts are not looked at.
    """
    kept = reply
    for cut in ("</search>", "</answer>"):
        if cut in reply:
            kept = reply.partition(cut)[0] + cut
            break
    opened = sum(len(opening.findall(reply)) for opening, _ in _TAGS.values())
    for tag, (opening, closing) in _TAGS.items():
        start = opening.search(kept)
        end = start and closing.search(kept, start.end())
        if start and end:  # where the first opening has no end after it, no later one has
            return Read(f"<{tag}>{kept[start.end() : end.start()].strip()}</{tag}>", opened == 1)
    return Read("", False)


# -- phrasing --------------------------------------------------------------------------------------------------------

_GOAL = "Your task is to: "
_SEP = " [SEP] "


def _alfworld_task(observation: str) -> str:
    _, found, goal = observation.partition(_GOAL)
    if not found:
        raise TaskError(
            f"form 'alfworld': expected {_GOAL!r} in the first observation, got {observation!r:.80}"
        )
    return goal.strip()


def _webshop_task(observation: str) -> str:
    parts = observation.split(_SEP)
    if len(parts) < 3 or parts[1] != "Instruction:":
        raise TaskError(
            "form 'webshop': expected a first observation in observation_mode='text', its parts joined by"
            f" {_SEP!r} and the second one 'Instruction:', got {observation!r:.80}"
        )
    return parts[2]


def _webshop_screen(observation: str, task: str) -> str:
    """The pieces after the instruction, in quotes; other texts as they are."""
    parts = observation.split(_SEP)
    if task not in parts:
        return observation
    return _SEP.join(f"'{part}'" for part in parts[parts.index(task) + 1 :])


def _search_screen(observation: str, task: str) -> str:
    """What was found; nothing where the reply held no search."""
    found = observation.strip()
    return found if found.startswith("<information>") else ""


def _alfworld_listing(actions: Sequence[str]) -> str:
    return "\n ".join(f"'{action}'" for action in actions if action != "help")


def _webshop_listing(actions: Sequence[str]) -> str:
    """A search is listed with the placeholder of the original, and the button beside the search bar as a click."""
    listed: list[str] = []
    for action in actions:
        listed += ["search[<your query>]", "click[search]"] if action.startswith("search[") else [action]
    return "\n".join(f"'{action}'," for action in listed)


def _turn(number: int, seen: str, sent: str, answered: str) -> str:
    return f"[Observation {number}: '{seen}', Action {number}: '{sent}']"


def _search_turn(number: int, seen: str, sent: str, answered: str) -> str:
    return f"Step {number}:{sent} {answered}\n"


def _thought(action: str) -> str:
    return f"<think></think><action>{action}</action>"


_HOW = (
    "Choose what to do now. First think it through, between <think> and </think>. Then write one action of the list, "
    "as it stands there, between <action> and </action>."
)
_SEARCH_HOW = (
    "Say what to do now. First think, between <think> and </think>. Then do one of two things. If something is missing,"
    " search: <search>words</search>. If you know the answer, give it and nothing else: <answer>words</answer>."
)
_ACTING = Templates(
    "{current_observation}\n\nPossible actions: [{admissible_actions}]\n\n" + _HOW,
    "Task: {task_description}\nSteps taken: {step_count}. The last {history_length} of them:\n{action_history}\n"
    "Step {current_step}. You see: {current_observation}\n\nPossible actions: [{admissible_actions}]\n\n"
    + _HOW,
)
_SHOPPING = Templates("Task: {task_description}\nYou see: " + _ACTING.first, _ACTING.later)
_SEARCHING = Templates(
    "Question: {task_description}\n\n" + _SEARCH_HOW,
    "Question: {task_description}\nSteps taken: {step_count}. What you searched for, and what was found:\n"
    "{memory_context}\n\n" + _SEARCH_HOW,
)

_ALFWORLD = Form(
    name="alfworld",
    history=5,
    templates=_ACTING,
    task=_alfworld_task,
    screen=lambda observation, task: observation,
    listing=_alfworld_listing,
    turn=_turn,
    read=lambda reply: read_action(reply, tail=30),
    write=_thought,
)
FORMS: dict[str, Form] = {
    form.name: form
    for form in (
        _ALFWORLD,
        replace(_ALFWORLD, name="text", task=str),  # for other text worlds; nothing published has it
        Form(
            name="webshop",
            history=2,
            templates=_SHOPPING,
            task=_webshop_task,
            screen=_webshop_screen,
            listing=_webshop_listing,
            turn=_turn,
            read=lambda reply: read_action(reply, tail=20),
            write=_thought,
            longest=20_000,
        ),
        Form(
            name="search",
            history=4,
            templates=_SEARCHING,
            task=str,
            screen=_search_screen,
            listing=None,
            turn=_search_turn,
            read=read_search,
            write=lambda action: f"<think></think>{action}",
            protocol="search-r1",
        ),
    )
}


# -- templates of others ---------------------------------------------------------------------------------------------


def read_templates(path: str | Path) -> Templates:
    """The two templates that a Python file of prompts assigns; the file is read, never run.

    They are the constants whose names end in ``_TEMPLATE_NO_HIS`` (the first turn) and ``_TEMPLATE``, filled by
    `str.format`. The prompt files of verl-agent are of this form, and so can one's own be.

    Raises:
        UsageError: no such file, not these two constants, or a placeholder that is not among `PLACEHOLDERS`.
    """
    try:
        tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    # The last two: deep nesting
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise UsageError(f"template={str(path)!r}: expected a Python file of prompts: {error}") from None
    texts = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value.value, str)
    }
    return Templates(*(_checked(path, texts, ending) for ending in ("_TEMPLATE_NO_HIS", "_TEMPLATE")))


def _checked(path: str | Path, texts: dict[str, str], ending: str) -> str:
    names = [name for name in texts if name.endswith(ending)]
    if len(names) != 1:
        found = ", ".join(names or texts) or "no texts"
        raise UsageError(
            f"template={str(path)!r}: expected one constant with a name in *{ending} that is a text, got {found}"
        )
    template = texts[names[0]]
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise UsageError(f"template={str(path)!r}: {names[0]} is no format string: {error}") from None
    for _, name, spec, conversion in parts:
        if name is not None and (name not in PLACEHOLDERS or spec or conversion):
            raise UsageError(
                f"template={str(path)!r}: {names[0]} names {{{name}}}; expected one of {', '.join(PLACEHOLDERS)}"
            )
    return template
