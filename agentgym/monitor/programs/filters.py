"""Programs that turn text into text; where their input is known, so is their output. Decoders are among them."""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Callable

from agentgym.monitor import execution, writing
from agentgym.monitor.command import Command, Options, Row
from agentgym.monitor.decoders import as_text, decode_base64
from agentgym.monitor.effects import HOLE
from agentgym.monitor.programs.sed import printed as printed_texts
from agentgym.monitor.programs.sed import sed
from agentgym.monitor.words import ansi_c

MAX_REPEATS = 200
"""Times that printf uses its format again."""


def _echo(command: Command) -> str:
    words = command.arguments
    newline, escapes = True, False
    while words and re.fullmatch(r"-[neE]+", words[0]):
        newline = newline and "n" not in words[0]
        escapes = "e" in words[0] or (escapes and "E" not in words[0])
        words = words[1:]
    text = " ".join(words)
    if escapes and "\\" in text:
        command.analysis.decoders += "\\x" in text or "\\0" in text
        head, stop, _ = text.partition("\\c")
        text = ansi_c(re.sub(r"\\0([0-7]{1,3})", r"\\\1", head))
        newline = newline and not stop
    return text + ("\n" if newline else "")


_PERCENT = re.compile(r"%(%|[-+ 0#]*(?:\*|[0-9]+)?(?:\.[0-9]+)?[sdiouxXcbqeEfgG]|\([^)]*\)T)")


def printf(words: list[str]) -> str:
    """What ``printf words`` prints; conversions are repeated while arguments are left."""
    if not words:
        return ""
    form = ansi_c(re.sub(r"\\0([0-7]{1,3})", r"\\\1", words[0]))
    values = iter(words[1 : 1 + MAX_REPEATS])
    left = len(words[1 : 1 + MAX_REPEATS])
    takes = sum(match.group(1) != "%" for match in _PERCENT.finditer(form))
    turns = max(1, -(-left // takes)) if takes else 1

    def one(match: re.Match[str]) -> str:
        return "%" if match.group(1) == "%" else _converted(match.group(1), next(values, ""))

    return "".join(_PERCENT.sub(one, form) for _ in range(turns))


def _converted(code: str, value: str) -> str:
    kind = code[-1]
    if kind == "b":
        return ansi_c(re.sub(r"\\0([0-7]{1,3})", r"\\\1", value))
    if kind == "c":
        return value[:1]
    if kind in "sq":
        precision = re.search(r"\.(\d+)", code)
        return value[: int(precision.group(1))] if precision and HOLE not in value else value
    if kind == "T" or HOLE in value:
        return HOLE
    try:
        number = ord(value[1]) if value[:1] in "'\"" and len(value) > 1 else int(value or "0", 0)
        width = int(re.sub(r"\D", "", code.partition(".")[0]) or 0)
        if width > 200 or "*" in code:
            return HOLE
        return ("%" + code.replace("i", "d").replace("u", "d")) % number
    except (ValueError, TypeError):
        return HOLE


def _printf(command: Command) -> str:
    words = command.arguments
    variable = ""
    if words[:1] == ["-v"] and len(words) > 2:
        variable, words = words[1], words[2:]
    if words[:1] == ["--"]:
        words = words[1:]
    if words and "\\" in words[0] and re.search(r"\\(?:x|[0-7]{2})", words[0]):
        command.analysis.decoders += 1
    text = printf(words)
    if variable:
        command.shell.assign(variable, text)
        return ""
    return text


def _filter(valued: str, compute: Callable[[str, Options], str]) -> Row:
    """A row for a program that reads files or standard input and prints `compute` of the text."""

    def handler(command: Command) -> str:
        options = command.options(valued)
        text = command.input(options.operands)
        output = HOLE if text == HOLE else compute(text, options)
        targets = options.values("-o", "--output") if "o" in valued.split() else []
        for path in targets:
            writing.write_file(command.analysis, path, command.name, None if output == HOLE else output)
        return "" if targets else output

    return handler


def _decoder(valued: str, compute: Callable[[str, Options], str]) -> Row:
    def handler(command: Command) -> str:
        options = command.options(valued)
        text = command.input(options.operands)
        if HOLE in text:
            return HOLE
        command.analysis.decoders += 1
        try:
            return compute(text, options)
        except (ValueError, binascii.Error, UnicodeError):
            return HOLE

    return handler


def _base64(text: str, options: Options) -> str:
    if options.has("-d", "-D", "--decode", "--dec", "--de"):
        return decode_base64(text)
    return base64.b64encode(text.encode("utf-8", "replace")).decode() + "\n"


def _base32(text: str, options: Options) -> str:
    if options.has("-d", "-D", "--decode"):
        compact = re.sub(r"[^A-Z2-7]", "", text.upper())
        return as_text(base64.b32decode(compact + "=" * (-len(compact) % 8)))
    return base64.b32encode(text.encode("utf-8", "replace")).decode() + "\n"


def _xxd(text: str, options: Options) -> str:
    if not options.has("-r"):
        return text.encode("utf-8", "replace").hex() + "\n" if options.has("-p") else HOLE
    if not options.has("-p"):  # offset: hex hex  text
        text = "".join(line.partition(":")[2].partition("  ")[0] for line in text.splitlines())
    digits = re.sub(r"[^0-9A-Fa-f]", "", text)
    return as_text(bytes.fromhex(digits[: len(digits) // 2 * 2]))


def _openssl(command: Command) -> str:
    words = command.arguments
    options = command.options("in out k pass inform")
    for path in options.values("-in"):
        command.read(path)
    for path in options.values("-out"):
        command.analysis.write(path, command.name)
    if words[:1] == ["s_client"]:
        for host in command.options("connect servername").values("-connect"):
            command.analysis.emit("net", f"tls://{host}", "openssl")
        return HOLE
    encoded = words[:1] in (["base64"], ["enc"]) and (
        "-a" in words or "-base64" in words or words[0] == "base64"
    )
    if encoded and HOLE not in command.stdin:
        command.analysis.decoders += 1
        return decode_base64(command.stdin) if "-d" in words else _base64(command.stdin, Options([], []))
    for path in (w for w in words[1:] if "/" in w):
        command.read(path)
    return HOLE


def _set(text: str) -> str:
    """The characters of a tr set: escapes, ranges and classes spelt out."""
    classes = {
        "lower": "abcdefghijklmnopqrstuvwxyz",
        "upper": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        "digit": "0123456789",
    }
    classes["alpha"] = classes["upper"] + classes["lower"]
    classes["alnum"] = classes["digit"] + classes["alpha"]
    classes["space"] = " \t\n\r\v\f"
    text = re.sub(r"\[:(\w+):\]", lambda m: classes.get(m.group(1), ""), ansi_c(text))

    def spread(match: re.Match[str]) -> str:
        low, high = ord(match.group(1)), ord(match.group(2))
        return "".join(map(chr, range(low, min(high, low + 300) + 1))) if low <= high else match.group()

    return re.sub(r"(.)-(.)", spread, text, flags=re.DOTALL)


def _tr(command: Command) -> str:
    options = command.options("")
    if HOLE in command.stdin and command.stdin == HOLE:
        return HOLE
    sets = [_set(word) for word in options.operands]
    if not sets or any(HOLE in s for s in sets):
        return HOLE
    text = command.stdin
    chosen = set(sets[0])
    complement = options.has("-c", "-C", "--complement")
    if options.has("-d", "--delete"):
        return "".join(c for c in text if (c in chosen) == complement or c == HOLE)
    if len(sets) < 2:
        return re.sub(
            r"(.)\1+", lambda m: m.group(1) if m.group(1) in chosen else m.group(), text, flags=re.DOTALL
        )
    command.analysis.decoders += 1
    target = sets[1] or " "
    if complement:
        return "".join(c if c in chosen or c == HOLE else target[-1] for c in text)
    target += target[-1] * max(0, len(sets[0]) - len(target))
    return text.translate({ord(a): b for a, b in zip(sets[0], target, strict=False)})


def _ranges(spec: str) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for part in spec.split(","):
        match = re.fullmatch(r"(\d*)(-?)(\d*)", part)
        if match and (match.group(1) or match.group(3)):
            first = int(match.group(1) or 1)
            last = int(match.group(3)) if match.group(3) else 10**6 if match.group(2) else first
            out.append((first, last))
    return out


def _cut(text: str, options: Options) -> str:
    for name in ("-c", "-b", "-f", "--characters", "--bytes", "--fields"):
        for spec in options.values(name):
            ranges = _ranges(spec)
            by_field = name in ("-f", "--fields")
            separator = (options.values("-d", "--delimiter") or ["\t"])[-1] or "\t"
            lines = [_cut_line(line, ranges, separator if by_field else "") for line in text.splitlines()]
            return "".join(line + "\n" for line in lines)
    return HOLE


def _cut_line(line: str, ranges: list[tuple[int, int]], separator: str) -> str:
    parts = line.split(separator) if separator else list(line)
    kept = [part for i, part in enumerate(parts, 1) if any(a <= i <= b for a, b in ranges)]
    return separator.join(kept)


def _head_or_tail(command: Command) -> str:
    words = [re.sub(r"^-(\d+)$", r"-n\1", word) for word in command.arguments]
    command.arguments = words
    options = command.options("n c s lines bytes sleep-interval pid")
    text = command.input(options.operands)
    if HOLE in text:
        return text
    count = (options.values("-n", "--lines", "-c", "--bytes") or ["10"])[-1]
    if not re.fullmatch(r"[-+]?\d+", count):
        return HOLE
    units: list[str] = list(text) if options.has("-c", "--bytes") else text.splitlines(keepends=True)
    number = int(count)
    if command.name == "head":
        return "".join(units[:number])
    return "".join(units[number - 1 :] if count.startswith("+") else units[-abs(number) :] if number else [])


def _seq(command: Command) -> str:
    numbers = command.options("s f separator format").operands
    if not all(re.fullmatch(r"-?\d+", n) for n in numbers) or not 1 <= len(numbers) <= 3:
        return HOLE
    first = int(numbers[0]) if len(numbers) > 1 else 1
    step = int(numbers[1]) if len(numbers) == 3 else 1
    last = int(numbers[-1])
    values = range(first, last + (1 if step > 0 else -1), step or 1)
    return "".join(f"{n}\n" for n in values[:200])


def _sort(text: str, options: Options) -> str:
    lines = sorted(text.splitlines(), reverse=options.has("-r"))
    return "".join(f"{line}\n" for line in (dict.fromkeys(lines) if options.has("-u") else lines))


def _paste(text: str, options: Options) -> str:
    separator = ansi_c((options.values("-d", "--delimiters") or ["\t"])[-1])
    return separator.join(text.splitlines()) + "\n" if options.has("-s") else text


def _fold(text: str, options: Options) -> str:
    width = (options.values("-w", "--width") or ["80"])[-1]
    if not width.isdigit() or int(width) == 0:
        return HOLE
    size = int(width)
    lines = [line[i : i + size] for line in text.splitlines() for i in range(0, max(len(line), 1), size)]
    return "".join(f"{line}\n" for line in lines)


def _uniq(command: Command) -> str:
    """uniq: the second operand is written."""
    operands = command.options("f s w").operands
    text = command.input(operands[:1])
    output = HOLE if text == HOLE else "".join(dict.fromkeys(text.splitlines(keepends=True)))
    for path in operands[1:2]:
        writing.write_file(command.analysis, path, "uniq", None if output == HOLE else output)
    return "" if operands[1:] else output


def _rot13(text: str, options: Options) -> str:
    return codecs.encode(text, "rot13")


def _each_line(change: Callable[[str], str]) -> Callable[[str, Options], str]:
    return lambda text, options: "".join(change(line) + "\n" for line in text.splitlines())


def _cat(command: Command) -> str:
    options = command.options("")
    return command.input(options.operands)


def _awk(command: Command) -> str:
    """awk: files are read; ``print`` of a field or of constants is followed on one-line input."""
    options = command.options("F v f i field-separator assign file include", stop_at_operand=True)
    operands = options.operands
    if options.values("-i", "--include") == ["inplace"]:
        for path in operands[1:]:
            target = command.analysis.write(path, command.name, None, ("edit", operands[0]))
            writing.edited(command.analysis, target, "", printed_texts(operands[0]))
    programs = options.values("-f", "--file")
    program = ""
    for path in programs:
        command.read(path)
    if not programs and operands:
        program, operands = operands[0], operands[1:]
    printed = HOLE
    if program:
        printed = execution.inline(command, "awk", program, options.values("-v", "--assign"))
    text = (
        command.input([path for path in operands if not re.match(r"\w+=", path)])
        if operands
        else command.stdin
    )
    match = re.fullmatch(r"\s*\{\s*print\s+\$(\d+|NF)\s*;?\s*\}\s*", program)
    if match is None or text == HOLE:
        return printed if re.match(r"\s*BEGIN\b", program) else HOLE
    separator = (options.values("-F") or [""])[-1] or None
    return "".join(_field(line.split(separator), match.group(1)) + "\n" for line in text.splitlines())


def _field(parts: list[str], which: str) -> str:
    at = len(parts) if which == "NF" else int(which)
    if at == 0:
        return " ".join(parts)
    return parts[at - 1] if at <= len(parts) else ""


PROGRAMS: dict[str, Row] = {
    "echo": _echo,
    "printf": _printf,
    "cat": _cat,
    "gcat": _cat,
    "tac": _filter("s", lambda text, _: "".join(reversed(text.splitlines(keepends=True)))),
    "rev": _filter("", _each_line(lambda line: line[::-1])),
    "nl": _filter("b n w s v", lambda text, _: text),
    "base64": _decoder("w i wrap", _base64),
    "base32": _decoder("w wrap", _base32),
    "xxd": _decoder("l s c g o", _xxd),
    "openssl": _openssl,
    "rot13": _decoder("", _rot13),
    "tr": _tr,
    "cut": _filter("c b f d characters bytes fields delimiter", _cut),
    "head": _head_or_tail,
    "tail": _head_or_tail,
    "seq": _seq,
    "sort": _filter("k t o output S T", _sort),
    "uniq": _uniq,
    "paste": _filter("d delimiters", _paste),
    "fold": _filter("w width", _fold),
    "iconv": _filter("f t o", lambda text, _: text),
    "dos2unix": _filter("", lambda text, _: text.replace("\r", "")),
    "sed": sed,
    "gsed": sed,
    "awk": _awk,
    "gawk": _awk,
    "mawk": _awk,
    "nawk": _awk,
}
