"""Reading the text grammar of a game; `grammar.py` says what it means."""

from __future__ import annotations

import ast
import functools
import json
import re
import textwrap
from collections.abc import Iterator

from agentgym.envs.alfworld.grammar import (
    Call,
    Choice,
    Each,
    Grammar,
    Part,
    Phrases,
    Place,
    Query,
    Template,
    Text,
    Value,
)
from agentgym.errors import TaskError

_SPACE = re.compile(r"(?:\s|#[^\n]*)*")
_RULES = re.compile(r'grammar\s*::\s*"""(.*?)"""\s*;', re.DOTALL)
_ACTION = re.compile(r"action\s+([\w/-]+)\s*\{")
_FIELD = re.compile(r'(template|feedback)\s*::\s*"([^"]*)"\s*;')
_CODE = re.compile(r'(grammar|pddl)\s*::\s*"""(.*?)"""\s*;', re.DOTALL)


def read_grammar(text: str) -> Grammar:
    """The grammar in a document.

    Raises:
        TaskError: it is not written as such documents are; says where.
    """
    rules: dict[str, list[dict[str, str]]] = {}
    actions = {}
    at = _skip(text, 0)
    while at < len(text):
        if match := _RULES.match(text, at):
            rules |= _read_rules(match[1])
            at = match.end()
        elif match := _ACTION.match(text, at):
            fields, at = _read_fields(text, match.end())
            actions[match[1].lower()] = Phrases(
                read_template(fields.get("template", "")), read_template(fields.get("feedback", ""))
            )
            # Lines that start with # are comments here, and only here.
            lines = fields.get("grammar", "{}").split("\n")
            rules |= _read_rules("\n".join(line for line in lines if not line.lstrip().startswith("#")))
        else:
            raise TaskError(f"the game's grammar: expected a rule or an action, got {text[at : at + 60]!r}")
        at = _skip(text, at)
    return Grammar({name: tuple(map(_read_choice, ways)) for name, ways in rules.items()}, actions)


def read_template(text: str) -> Template:
    """The parts of a template.

    Two habits of the original are kept, since transcripts show them: blanks at the start are dropped, and what
    follows the first character that fits nowhere (a lone ``}``, say) is ignored.
    """
    parts: list[Part] = []
    at = len(text) - len(text.lstrip())
    while at < len(text):
        match = _PART.match(text, at)
        if match is None or match.end() == at:
            break
        parts.append(_read_part(match))
        at = match.end()
    return tuple(parts)


_TAG = r"[\w()/!<>\-\s,.]+"
_PART = re.compile(
    rf"""\t*(?:
    (?P<open>\[)?\{{\t*(?:\#(?P<inner>{_TAG})\#|(?P<value>[^|\[\]{{}}\n<>]+))
        (?:\s*\|\s*(?P<query>[^;|{{}}\n\[\]\#]+))?\}}(?(open)\])
    |\#(?P<rule>{_TAG})\#
    |"(?P<quoted>[^;|"<>\[\]\#{{}}]*)"
    |(?P<text>[^;|"<>\[\]\#{{}}]+)
    )""",
    re.VERBOSE,
)


def _read_part(match: re.Match[str]) -> Part:
    if match["rule"] is not None:
        return Call(match["rule"])
    if match["inner"] is None and match["value"] is None:
        return Text(match["text"] or match["quoted"] or "")
    part = Value(_read_expression(match["value"])) if match["inner"] is None else Call(match["inner"])
    return Each(part, _read_query(match["query"]), as_list=match["open"] is not None)


@functools.lru_cache(512)
def _read_expression(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise TaskError(f"the game's grammar: {text!r} is no expression") from None


@functools.lru_cache(512)
def _read_query(text: str | None) -> Query | None:
    if not text or not text.strip():
        return None
    facts = []
    for fact in text.split("&"):
        match = re.fullmatch(r"\s*([\w@.-]+)\s*\(([^()]*)\)\s*", fact)
        if match is None:
            raise TaskError(f"the game's grammar: expected fact(name:type, ..), got {fact.strip()!r}")
        facts.append((match[1], tuple(_read_places(match[2]))))
    return Query(tuple(facts))


def _read_places(text: str) -> Iterator[Place]:
    for word in filter(None, map(str.strip, text.split(","))):
        name, colon, kind = word.partition(":")
        # A placeholder without a type has its name's.
        yield name.strip(), kind.strip() if colon else name.rstrip("'")


def _read_choice(way: dict[str, str]) -> Choice:
    return Choice(read_template(way["rhs"]), _read_query(way.get("condition")))


def _read_rules(block: str) -> dict[str, list[dict[str, str]]]:
    try:
        rules = json.loads(textwrap.dedent(block))
    except json.JSONDecodeError as error:
        raise TaskError(f"the game's grammar holds rules that are no JSON: {error}") from None
    if not isinstance(rules, dict) or not all("rhs" in way for ways in rules.values() for way in ways):
        raise TaskError("the game's grammar: expected rules as lists of objects with 'rhs'")
    return rules


def _read_fields(text: str, at: int) -> tuple[dict[str, str], int]:
    """The fields of an action, and where it ends."""
    fields: dict[str, str] = {}
    at = _skip(text, at)
    while match := _CODE.match(text, at) or _FIELD.match(text, at):
        fields[match[1]] = match[2]
        at = _skip(text, match.end())
    if text[at : at + 1] != "}":
        raise TaskError(f"the game's grammar: expected a field of an action, got {text[at : at + 60]!r}")
    return fields, at + 1


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()
