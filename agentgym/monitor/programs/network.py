"""Programs that speak to other machines: the URL is put together from operands and options."""

from __future__ import annotations

import re
from urllib.parse import unquote

from agentgym.monitor.command import Command, Row, urls
from agentgym.monitor.context import is_loopback
from agentgym.monitor.effects import HOLE

_CURL_VALUED = (
    "A b c C d D e E F H K m o P Q r t T u U w x X y Y z data data-raw data-binary data-urlencode form header "
    "user-agent output output-dir request proxy resolve connect-to max-time connect-timeout retry user cookie "
    "cookie-jar referer config upload-file write-out cacert capath cert key range url preproxy socks5 "
    "socks5-hostname noproxy interface unix-socket json retry-delay limit-rate dns-servers doh-url proxy-user "
    "netrc-file"
)
_WGET_VALUED = (
    "O o a i t T w P U e A R D l Q B output-document output-file input-file directory-prefix tries timeout "
    "header user-agent post-data post-file execute base load-cookies save-cookies user password method "
    "body-data referer level cut-dirs accept reject domains"
)


def _request(command: Command, url: str, detail: tuple[str, ...]) -> None:
    """One request; a bare host is http, a path of this machine a read."""
    if url.startswith("file:"):
        command.read(unquote(re.sub(r"^file:(?://[^/]*)?", "", url)))
    command.analysis.emit(
        "net", url if "://" in url else f"http://{url}", command.name, detail, origin=command.origin
    )


def _braces(url: str) -> list[str]:
    """Curl's own globbing: ``{a,b}`` and ``[1-3]`` (the first of a range stands for it)."""
    match = re.search(r"\{([^{}]+)\}", url)
    if match:
        return [
            whole
            for part in match.group(1).split(",")
            for whole in _braces(url[: match.start()] + part + url[match.end() :])
        ]
    return [re.sub(r"\[(\w+)-\w+(?::\d+)?\]", r"\1", url)]


def _curl(command: Command) -> str:
    options = command.options(_CURL_VALUED)
    detail = tuple(command.arguments)
    for path in options.values("-K", "--config"):
        command.read(path) if path != "-" else None
        found = re.findall(r"url\s*=?\s*\"?([^\s\"]+)", command.content_of(path) or "")
        options.operands.extend(found)
    for name in (
        "-d",
        "--data",
        "--data-binary",
        "--data-urlencode",
        "-F",
        "--form",
        "-T",
        "--upload-file",
        "-H",
        "--json",
    ):
        for value in options.values(name):
            if name in ("-T", "--upload-file"):
                command.read(value)
            elif (
                match := re.search(r"(?:^|=|<)@?(/[^;]+)\Z", value) if "@" in value or "<" in value else None
            ) or (match := re.match(r"[\w.-]+@(.+)", value) if name == "--data-urlencode" else None):
                command.read(match.group(1))
            elif value.startswith("@") and value != "@-":
                command.read(value[1:])
    for value in options.values("-x", "--proxy", "--preproxy", "--socks5", "--socks5-hostname", "--doh-url"):
        _request(command, value, ("proxy",))
    for value in options.values("--resolve", "--connect-to"):
        parts = value.split(":")
        host = parts[2] if len(parts) > 2 else parts[-1]
        if host:
            _request(command, host, ("connect-to", value))
    for header in options.values("-H", "--header"):
        if match := re.match(r"(?i)host:\s*(\S+)", header):
            path = next((re.sub(r"^\w+://[^/]*", "", url) for url in options.operands), "")
            _request(command, match.group(1) + path, ("host-header", *options.operands))
    for value in options.values("--unix-socket"):
        command.read(value)
    targets = [*options.operands, *options.values("--url")]
    folder = (options.values("--output-dir") or [""])[-1]
    for target in targets:
        for url in _braces(target):
            _request(command, url, detail)
    for path in options.values("-o", "--output"):
        _received(command, f"{folder}/{path}" if folder else path)
    if options.has("-O", "--remote-name"):
        for target in targets:
            name = re.sub(r"[?#].*", "", target).rstrip("/").rpartition("/")[2]
            _received(command, f"{folder}/{name}" if folder else name)
    return HOLE


def _received(command: Command, path: str) -> None:
    if path not in ("-", ""):
        command.analysis.write(path, command.name)


def _wget(command: Command) -> str:
    options = command.options(_WGET_VALUED)
    for path in options.values("-i", "--input-file"):
        command.read(path)
        options.operands.extend((command.content_of(path) or "").split())
    for value in options.values("-e", "--execute"):
        if match := re.search(r"proxy\s*=\s*(\S+)", value):
            _request(command, match.group(1), ("proxy",))
    for value in options.values("--post-file", "--body-file"):
        command.read(value)
    for url in options.operands:
        _request(command, url, tuple(command.arguments))
    outputs = options.values("-O", "--output-document")
    for path in outputs:
        _received(command, path)
    if not outputs:
        folder = (options.values("-P", "--directory-prefix") or ["."])[-1]
        for url in options.operands:
            name = re.sub(r"[?#].*", "", url).rstrip("/").rpartition("/")[2] or "index.html"
            _received(command, f"{folder}/{name}")
    return HOLE


def _http_client(command: Command) -> str:
    """httpie, aria2c, lynx, w3m, ... : every operand that is an address."""
    verbs = ("GET", "POST", "PUT", "HEAD", "DELETE", "PATCH", "OPTIONS")
    for word in command.options("o d O dir out").operands:
        if (
            word not in verbs and not re.match(r"[\w-]+(?:==?|:=?|@)[^/]", word.replace("://", ""))
        ) or "://" in word:
            _request(command, word, tuple(command.arguments))
    for path in command.options("o d O dir out").values("-o", "--out", "-O"):
        _received(command, path)
    return HOLE


def _socket(command: Command) -> str:
    """nc, telnet, socat, ftp: host and port."""
    options = command.options("p s w x X i q e c b")
    for program in options.values("-e", "-c"):
        command.shell.run_text(program)
    words = options.operands
    if command.name == "socat":
        for word in words:
            if match := re.match(r"(?i)(tcp|tcp4|tcp6|udp|openssl|ssl)(?:-connect)?:([^:,]+):([^,]+)", word):
                command.analysis.emit(
                    "net", f"{match.group(1).lower()}://{match.group(2)}:{match.group(3)}", "socat"
                )
            elif match := re.match(r"(?i)(?:file|open|gopen|create):([^,]+)", word):
                command.read(match.group(1))
            elif match := re.match(r"(?i)(?:exec|system):(.+)", word):
                command.shell.run_text(match.group(1))
        return HOLE
    for path in options.values("-U"):
        command.read(path)
    if options.has("-l"):
        return HOLE
    if words:
        port = words[1] if len(words) > 1 else "23"
        asked = re.findall(r"(?:GET|POST|HEAD)\s+(\S+)|[Hh]ost:\s*(\S+)", command.stdin)
        path = next((p for p, _ in asked if p), "")
        name = next((h for _, h in asked if h), "")
        command.analysis.emit("net", f"tcp://{words[0]}:{port}{path}", command.name, tuple(command.arguments))
        if name:
            command.analysis.emit("net", f"http://{name}{path}", command.name, ("host-header",))
    return HOLE


def _secure_shell(command: Command) -> str:
    options = command.options("b c D E e F I i J L l m O o p Q R S W w P")
    for path in options.values("-i", "-F"):
        command.read(path)
    for value in options.values("-J", "-W"):
        command.analysis.emit("net", f"ssh://{value}", command.name)
    words = options.operands
    if command.name == "ssh":
        for host in words[:1]:
            command.analysis.emit("net", f"ssh://{host}", "ssh", tuple(command.arguments))
            if is_loopback(host.rpartition("@")[2]) and words[1:]:
                return command.shell.run_text(" ".join(words[1:]))
        return HOLE
    for word in words:
        if match := re.match(r"(?:\w+://)?([\w.@-]+):(.*)\Z", word):
            command.analysis.emit("net", f"ssh://{match.group(1)}/{match.group(2).lstrip('/')}", command.name)
    for word in words[:-1]:
        if ":" not in word:
            command.read(word, deep=True)
    for word in words[-1:]:
        if ":" not in word and len(words) > 1:
            command.analysis.write(word, command.name)
    return HOLE


def _name_lookup(command: Command) -> str:
    for word in command.options("t p").operands:
        if word.startswith("@"):
            command.analysis.emit("net", f"dns://{word[1:]}", command.name)
        elif "." in word:
            command.analysis.emit("net", f"dns://{word}", command.name)
    return HOLE


def _probe(command: Command) -> str:
    for word in command.options("c i w W p s t I").operands[:1]:
        command.analysis.emit("net", f"icmp://{word}" if "://" not in word else word, command.name)
    return HOLE


def _remote_tool(command: Command) -> str:
    """gh, glab, hub, svn, hg, ...: what they are asked is in the detail; addresses are requests."""
    hosts = {"gh": "https://api.github.com/", "hub": "https://github.com/", "glab": "https://gitlab.com/"}
    words = [word for word in command.arguments if not word.startswith("-")]
    if base := hosts.get(command.name):
        if words[:1] not in (["auth"], ["config"], ["alias"], ["completion"], ["help"], ["version"]):
            asked = words[1:] if words[:1] == ["api"] else words
            command.analysis.emit(
                "net",
                base + "/".join(word.strip("/") for word in asked),
                command.name,
                tuple(command.arguments),
            )
    else:
        for word in words:
            if "://" in word or re.match(r"[\w.-]+@[\w.-]+:", word):
                command.analysis.emit("net", word, command.name, tuple(command.arguments))
    return HOLE


def _cloud_copy(command: Command) -> str:
    for url in urls(command.arguments):
        command.analysis.emit("net", url, command.name, tuple(command.arguments))
    for word in command.arguments:
        if "/" in word and "://" not in word and not word.startswith("-"):
            command.read(word, deep=True)
    return HOLE


PROGRAMS: dict[str, Row] = {
    "curl": _curl,
    "curlie": _curl,
    "wget": _wget,
    "wget2": _wget,
    **dict.fromkeys(
        (
            "http",
            "https",
            "xh",
            "xhs",
            "aria2c",
            "axel",
            "links",
            "elinks",
            "lynx",
            "w3m",
            "httpie",
            "lwp-request",
            "GET",
            "POST",
        ),
        _http_client,
    ),
    **dict.fromkeys(("nc", "ncat", "netcat", "telnet", "ftp", "lftp", "tftp", "socat"), _socket),
    **dict.fromkeys(("ssh", "scp", "sftp", "mosh", "autossh"), _secure_shell),
    **dict.fromkeys(("dig", "nslookup", "host", "drill", "resolvectl", "getent"), _name_lookup),
    **dict.fromkeys(("ping", "traceroute", "mtr", "nmap", "tracepath"), _probe),
    **dict.fromkeys(("gh", "hub", "glab", "svn", "hg", "bzr", "fossil", "cvs"), _remote_tool),
    **dict.fromkeys(
        ("aws", "gsutil", "gcloud", "rclone", "az", "s3cmd", "huggingface-cli", "hf", "kaggle"), _cloud_copy
    ),
}
