"""Programs that look into, signal and start other processes, and those that start something later."""

from __future__ import annotations

import re

from agentgym.monitor.command import Command, Row, path_words
from agentgym.monitor.effects import HOLE


def named(command: Command, word: str) -> str:
    """What a process is called: a number that pgrep or pidof answered stands for the name they were asked for."""
    if word == HOLE or not word:
        for effect in reversed(command.analysis.effects):
            if effect.kind == "process" and effect.program in ("pgrep", "pidof", "ps"):
                return effect.target
    return word


def _signal(command: Command) -> str:
    for word in command.options("s n u g P t U signal").operands:
        command.analysis.emit(
            "process", named(command, word), command.name, tuple(command.arguments), origin=command.origin
        )
    return ""


def _names(command: Command) -> str:
    for word in command.options("u g P t s U d x").operands:
        command.analysis.emit("process", word, command.name, ("look", *command.arguments))
    return HOLE


def _listing(command: Command) -> str:
    for path in path_words(command.arguments):
        command.look(path)
    command.analysis.emit("process", "*", command.name, ("look", *command.arguments))
    return HOLE


def _attach(command: Command) -> str:
    options = command.options("p o n s c e pid output")
    targets = options.values("-p", "--pid") or options.operands
    for word in targets:
        command.analysis.emit("process", named(command, word), command.name, tuple(command.arguments))
    for path in path_words(options.operands):
        command.read(path)
    return HOLE


_REACHING = frozenset("curl wget pip pip3 npm npx git apt apt-get apk conda uv".split())
"""Programs whose business is the network."""


def _container(command: Command) -> str:
    """Docker and kin: what is mounted is read, images are fetched, the socket is the target."""
    options = command.options("v e p w u f t volume mount name env network H host entrypoint filter format")
    command.analysis.emit("process", "container", command.name, tuple(command.arguments))
    for volume in options.values("-v", "--volume"):
        command.read(volume.split(":")[0], deep=True)
    for mount in options.values("--mount"):
        if match := re.search(r"(?:source|src)=([^,]+)", mount):
            command.read(match.group(1), deep=True)
    if options.operands[:1] == ["pull"]:
        for image in options.operands[1:]:
            known = "." in image.partition("/")[0]
            command.analysis.emit("net", f"https://{image if known else 'docker.io/' + image}", command.name)
    for i, word in enumerate(options.operands):
        # What runs inside sees other files, but the same network
        if i and word.rpartition("/")[2] in _REACHING:
            command.shell.call(options.operands[i:])
            break
    if options.operands[:1] == ["cp"]:
        for word in options.operands[1:]:
            if ":" not in word:
                command.read(word, deep=True)
    return HOLE


def _later(command: Command) -> str:
    """crontab, at, batch: the text given on standard input or in a file is run later."""
    with command.analysis.later():
        for path in command.options("f u t q").operands:
            if command.name == "crontab" and path != "-":
                command.read(path)
        text = command.stdin
        command.analysis.emit(
            "process", "later", command.name, tuple(command.arguments), None if text == HOLE else text
        )
        for line in text.splitlines() if text != HOLE else []:
            line = re.sub(r"^\s*(?:@\w+|(?:[\d*/,-]+\s+){5})", "", line)
            command.shell.run_text(line)
    return ""


def _service(command: Command) -> str:
    words = command.options("").operands
    changes = {"start", "stop", "restart", "enable", "disable", "mask", "kill", "reload"} & set(words)
    if changes and command.name in ("systemctl", "service", "supervisorctl"):
        command.analysis.emit("process", words[-1], command.name, tuple(command.arguments))
    return HOLE


PROGRAMS: dict[str, Row] = {
    **dict.fromkeys(("kill", "pkill", "killall", "skill", "xkill", "tgkill"), _signal),
    **dict.fromkeys(("pgrep", "pidof"), _names),
    **dict.fromkeys(
        ("ps", "top", "htop", "pstree", "lsof", "fuser", "ss", "netstat", "pmap", "pwdx"), _listing
    ),
    **dict.fromkeys(
        ("gcore", "py-spy", "rbspy", "pstack", "jstack", "jmap", "lldb", "bpftrace", "reptyr", "memdump"),
        _attach,
    ),
    **dict.fromkeys(
        ("docker", "podman", "nerdctl", "ctr", "crictl", "kubectl", "docker-compose"), _container
    ),
    **dict.fromkeys(("crontab", "at", "batch"), _later),
    **dict.fromkeys(("systemctl", "service", "supervisorctl", "journalctl", "loginctl"), _service),
}
