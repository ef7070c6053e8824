"""Parameter expansion: what stands between ``${`` and ``}``, read from its text; the grammar's tree is too coarse."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentgym.monitor import arithmetic, fields
from agentgym.monitor.effects import HOLE
from agentgym.monitor.globs import matches, source_of

if TYPE_CHECKING:
    from agentgym.monitor.words import Runner, Words

Value = str | tuple[str, ...]
"""A parameter's value: text, or the elements of ``$@`` and of an array."""

_SHAPE = re.compile(r"([#!]?)(\w+|[@*#?$!-])(?:\[((?:[^][]|\[[^]]*\])*)\])?(.*)\Z", re.DOTALL)
MAX_TEXT = 512
"""Characters of a value that patterns are tried on."""

_UNKNOWN = frozenset(
    "RANDOM SRANDOM SECONDS EPOCHSECONDS EPOCHREALTIME UID EUID PPID BASHPID LINENO HOSTNAME BASH_VERSION "
    "SHLVL COLUMNS LINES TMPDIR VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV PYTHONPATH PYTHONHOME "
    "LD_LIBRARY_PATH JAVA_HOME GOPATH NODE_PATH CUDA_HOME REPLY EDITOR DISPLAY XDG_CONFIG_HOME "
    "XDG_CACHE_HOME XDG_RUNTIME_DIR ? $ ! - _".split()
)
"""Names that a shell or its environment sets to something the monitor does not know; any other unset name is empty."""


def value(text: str, shell: Runner, words: Words, quoted: bool = False) -> Value:
    """The value of ``${text}``; HOLE where it is not known. ``$*`` is one text where it is quoted."""
    found = _value(text, shell, words)
    if quoted and isinstance(found, tuple) and ("*" in text.partition("[")[2][:1] or text.startswith("*")):
        return shell.state.variables.get("IFS", " ")[:1].join(found)
    return found


def _value(text: str, shell: Runner, words: Words) -> Value:
    match = _SHAPE.match(text)
    if match is None:
        return HOLE
    prefix, name, index, rest = match.groups()
    if text == "#":
        return str(max(len(shell.positional) - 1, 0))
    if prefix == "!":
        if rest in ("*", "@") and index is None:  # ${!prefix*}
            return tuple(sorted(n for n in shell.state.variables if n.startswith(name)))
        if index in ("@", "*"):
            keys = [key[len(name) + 1 : -1] for key in shell.state.variables if key.startswith(name + "[")]
            return tuple(keys or map(str, range(len(shell.state.arrays.get(name, ())))))
        target = _plain(lookup(name, index, shell, words))
        if HOLE in target:
            return HOLE
        inner = re.match(r"(\w+|[@*#])(?:\[(.*)\])?\Z", target)
        found = lookup(inner.group(1), inner.group(2), shell, words) if inner else HOLE
        return _operate(found, name, rest, shell, words)
    found = lookup(name, index, shell, words)
    if prefix == "#" and not rest:
        if isinstance(found, tuple):
            return str(len(found))
        return HOLE if HOLE in found else str(len(found))
    return _operate(found, name, rest, shell, words)


def lookup(name: str, index: str | None, shell: Runner, words: Words) -> Value:
    """The plain value of a parameter; "" where it is unset."""
    state, positional = shell.state, shell.positional
    if name in ("@", "*"):
        return positional[1:]
    if name == "#":
        return str(max(len(positional) - 1, 0))
    if name.isdigit():
        at = int(name)
        return positional[at] if at < len(positional) else ""
    if name in ("$", "BASHPID"):
        return "self"  # as /proc calls it; another process can only be named by a number that is not known
    if name == "BASH_SOURCE" and shell.positional:
        return shell.positional[0]
    if index is None:
        if name == "PWD":
            return state.cwd
        if name == "OLDPWD":
            return state.previous
        if (text := state.variables.get(name)) is not None:
            return text
        if name in state.arrays:
            return state.arrays[name][0] if state.arrays[name] else ""
        return HOLE if name in _UNKNOWN else ""
    if index in ("@", "*"):
        if name in state.arrays:
            return state.arrays[name]
        keyed = tuple(text for key, text in state.variables.items() if key.startswith(name + "["))
        return keyed or ((state.variables[name],) if name in state.variables else ())
    key = fields.plain(words.fragment(index))
    if (text := state.variables.get(f"{name}[{key}]")) is not None:
        return text
    elements = state.arrays.get(name)
    if elements is None and name in state.variables:
        elements = (state.variables[name],)
    if elements is None:
        return HOLE if name in ("BASH_REMATCH", "PIPESTATUS") else ""
    at_text = arithmetic.evaluate(key, state.variables)
    if HOLE in at_text:
        return HOLE
    at = int(at_text)
    return elements[at] if -len(elements) <= at < len(elements) else ""


def _operate(found: Value, name: str, rest: str, shell: Runner, words: Words) -> Value:
    """`found` after the operator that starts `rest`."""
    if not rest:
        return found
    if rest[0] == ":" and rest[1:2] not in ("-", "=", "?", "+"):
        return _slice(found, rest[1:], shell, words, positional=name in ("@", "*"))
    operator = re.match(r":?[-=?+]|##?|%%?|//?|\^\^?|,,?|~~?|@", rest)
    if operator is None:
        return HOLE
    op, operand = operator.group(), rest[operator.end() :]
    if op[-1] in "-=?+":
        return _default(found, name, op, operand, shell, words)
    if isinstance(found, tuple):
        return tuple(_transform(text, op, operand, words) for text in found)
    return _transform(found, op, operand, words)


def _default(found: Value, name: str, op: str, operand: str, shell: Runner, words: Words) -> Value:
    known = name in shell.state.variables or name in shell.state.arrays or bool(found)
    given = bool(found) if op[0] == ":" else known
    if op[-1] == "+":
        return fields.plain(words.fragment(operand)) if given else ""
    if given and found != HOLE:
        return found
    if op[-1] == "?":
        return found
    default = fields.plain(words.fragment(operand))
    if op[-1] == "=" and found != HOLE:
        shell.state.variables[name] = default
    return default  # of an environment variable that may be unset, the default is the better guess


def _slice(found: Value, text: str, shell: Runner, words: Words, *, positional: bool) -> Value:
    start_text, _, length_text = text.partition(":")

    def number(source: str) -> int | None:
        answer = arithmetic.evaluate(fields.plain(words.fragment(source)), shell.state.variables)
        return None if HOLE in answer else int(answer)

    start = number(start_text)
    length = number(length_text) if length_text.strip() else None
    if start is None or (length_text.strip() and length is None):
        return HOLE
    if isinstance(found, str) and HOLE in found:
        return HOLE
    if positional and isinstance(found, tuple):
        found = (shell.positional[:1] or ("bash",)) + found
    if start < 0:
        start = max(len(found) + start, 0)
    if length is None:
        return found[start:]
    return found[start : length if length < 0 else start + length]


def _transform(text: str, op: str, operand: str, words: Words) -> str:
    if op in ("^", "^^", ",", ",,", "~", "~~"):
        change = str.upper if op[0] == "^" else str.lower if op[0] == "," else str.swapcase
        return change(text) if len(op) == 2 else change(text[:1]) + text[1:]
    if op == "@":
        return {"U": text.upper(), "L": text.lower(), "u": text[:1].upper() + text[1:]}.get(operand, text)
    if HOLE in text:
        return HOLE
    if op[0] == "/":
        return _replace(text, operand, everywhere=op == "//", words=words)
    if len(text) > MAX_TEXT:
        return HOLE
    pattern = fields.as_pattern(words.fragment(operand))
    if op[0] == "#":
        ends = [i for i in range(len(text) + 1) if matches(pattern, text[:i])]
        return text[(ends[-1] if op == "##" else ends[0]) :] if ends else text
    starts = [i for i in range(len(text) + 1) if matches(pattern, text[i:])]
    return text[: (starts[0] if op == "%%" else starts[-1])] if starts else text


def _replace(text: str, operand: str, *, everywhere: bool, words: Words) -> str:
    anchor = operand[:1] if operand[:1] in ("#", "%") and not everywhere else ""
    pattern_text, replacement_text = _split_operand(operand[len(anchor) :])
    pattern = fields.as_pattern(words.fragment(pattern_text))
    replacement = fields.plain(words.fragment(replacement_text))
    if not pattern and not anchor:
        return text
    source = source_of(pattern)
    source = {"#": r"\A" + source, "%": source + r"\Z"}.get(anchor, source)
    if HOLE in pattern or len(text) > MAX_TEXT or len(pattern) > MAX_TEXT:
        return HOLE
    return re.sub(source, lambda _: replacement, text, count=0 if everywhere else 1, flags=re.DOTALL)


def _split_operand(operand: str) -> tuple[str, str]:
    """``pattern/replacement`` at the first slash that is not quoted."""
    quote = ""
    i = 0
    while i < len(operand):
        char = operand[i]
        if char == "\\" and quote != "'":
            i += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "/" and i > 0:
            return operand[:i], operand[i + 1 :]
        i += 1
    return operand, ""


def _plain(found: Value) -> str:
    return found if isinstance(found, str) else " ".join(found)
