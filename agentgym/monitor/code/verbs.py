"""What the functions of scripting languages do to the strings they are given, whatever the language calls them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentgym.monitor import paths
from agentgym.monitor.decoders import as_text, decode_base64
from agentgym.monitor.effects import HOLE

if TYPE_CHECKING:
    from agentgym.monitor.analysis import Analysis

Value = str | list["Value"] | None
"""Text, a list, or None where nothing is known."""
Arguments = list[Value]

_WRITE = frozenset(
    "writefile writefilesync appendfile appendfilesync createwritestream file_put_contents file.write "
    "io.write outputfile outputfilesync writejson writejsonsync writetextfile file.binwrite truncatesync "
    "truncate writelines cat dumpfile fs.writefile os.writefile ioutil.writefile files.write bun.write".split()
)
_DELETE = frozenset(
    "unlink unlinksync rm rmsync rmdir rmdirsync rmtree remove file.delete fileutils.rm fileutils.rm_rf "
    "fileutils.rm_f os.remove os.removeall file.unlink rimraf".split()
)
_COPY = frozenset(
    "copyfile copyfilesync cp cpsync copy move rename renamesync file.rename fileutils.cp fileutils.cp_r "
    "fileutils.mv os.rename cpsync file.copy".split()
)
_LINK = frozenset(
    "symlink symlinksync link linksync file.symlink fileutils.ln_s fileutils.ln_sf os.symlink".split()
)
_RUN = frozenset(
    "exec execsync spawn spawnsync execfile execfilesync system shell_exec passthru popen proc_open "
    "os.execute io.popen open3.capture2 open3.capture3 open3.capture2e open3.popen3 process.spawn "
    "pcntl_exec execa execa.command exec.command runtime.exec run_command command".split()
)
_NET = frozenset(
    "fetch get request axios got needle net.connect createconnection getstore getprint urlopen uri.open open_uri "
    "curl_init websocket goto importscripts sendbeacon eventsource httpget download download.file net::http.get "
    "http.post https.request http.request net.http.get socket.http.request url_copy_file net.createconnection "
    "get_response mirror curl_setopt http.get https.get connect io::socket::inet tcpsocket.new "
    "tcpsocket.open socket.connect".split()
)
_LIST = frozenset(
    "readdir readdirsync opendir opendirsync glob globsync dir.glob dir.entries dir.children "
    "dir.each_child dir.open existssync exists stat statsync lstatsync access accesssync scandir is_file "
    "is_dir file_exists file.exist? file.exists? file.file? list.files lfs.dir chdir dir.chdir find "
    "find.find walk filepath.walk os.readdir dir [] filepath.glob file.stat watch".split()
)
_READ = frozenset(
    "readfile readfilesync createreadstream file_get_contents file.read io.read file.readlines "
    "io.readlines file.foreach io.foreach readlines readfile slurp read_file require import include "
    "require_once include_once load dofile loadfile do source getline fopen file.open opensync io.lines "
    "io.open readtextfile readtextfilesync readjson readjsonsync loadjson parse_ini_file readlink "
    "readlinksync file os.readfile ioutil.readfile os.open files.readstring scan yaml.load_file csv.read "
    "json.load_file read.csv readrds readline lines open readfile pathname.new file.new".split()
)
_IMPORTS = ("require", "import")
_JOIN_PATH = frozenset(
    "file.join path.join path.resolve path.posix.join catfile catdir file.expand_path filepath.join "
    "joinpath join.path file.path path.normalize pathname.join".split()
)
_DECODE = frozenset(
    "atob decode_base64 base64_decode base64.decode64 base64.strict_decode64 base64.urlsafe_decode64".split()
)
_SAY = frozenset(
    "log warn error info debug print println printf puts say echo write assert expect equal strictequal tobe "
    "includes startswith endswith indexof match test push add append include? start_with? end_with? basename "
    "dirname get post put patch delete head options route use all fetch request redirect navigate visit intercept "
    "handle handlefunc".split()
)
"""Functions that speak of the paths they are given, and those that compare and collect them."""
_WRITE_MODE = re.compile(r"\s*(?:\+?>{1,2}|[wax]b?t?\+?|r\+)(?::.*)?\Z")


def text_of(value: Value) -> str:
    """`value` as text, HOLE where it is not known."""
    return value if isinstance(value, str) else HOLE


def called(analysis: Analysis, language: str, name: str, arguments: Arguments) -> Value:
    """A call of `name`; a name that starts with a dot is a method of the first argument. Returns its value."""
    full = name.lower().replace("->", ".").replace("?.", ".").replace("::", ".").lstrip("$@%&")
    last = full.rpartition(".")[2]
    names = {full, last, ".".join(full.split(".")[-2:])}
    if name[0] == "." and arguments:
        computed = _method(last, arguments)
        if computed is not None:
            return computed
        if last in ("join", "resolve") and arguments[0] is None:  # require('path').join(..)
            return _joined(analysis, last, arguments[1:])
        arguments = arguments[1:]
    if names & _JOIN_PATH or (language == "perl" and last in ("catfile", "catdir")):
        return _joined(analysis, last, arguments)
    if full == "require.resolve" and arguments:
        package = text_of(arguments[0])
        return package if package.startswith((".", "/")) else f"node_modules/{package}"
    if names & _DECODE:
        return _decoded(analysis, "base64", text_of(arguments[0] if arguments else None))
    if last in (
        "paste0",
        "from",
        "pack",
        "fromcharcode",
        "reverse",
        "join",
        "sprintf",
        "concat",
        "strrev",
        "implode",
        "hex2bin",
    ):
        return _computed(analysis, last, arguments)
    if names & _RUN:
        _run(analysis, language, last, arguments)
        return None
    first = text_of(arguments[0]) if arguments else ""
    if first.startswith("file://"):
        first = arguments[0] = re.sub(r"^file://[^/]*", "", first)
    if last in ("url", "fileurltopath", "pathtofileurl", "pathname") and first.startswith("/"):
        return first
    if (last in ("url", "uri") and "://" in first) or names & {"paths.get", "path.of"}:
        return first
    if "://" in first:
        if names & _NET or last in (
            "open",
            "import",
            "require",
            "post",
            "put",
            "file_get_contents",
            "copy",
            "new",
            "fopen",
        ):
            analysis.emit("net", first, language, (name,))
        return None
    _files(analysis, language, names, last, arguments)
    return None


def _files(analysis: Analysis, language: str, names: set[str], last: str, arguments: Arguments) -> None:
    texts = [text_of(argument) for argument in arguments]
    if last in ("opendir", "sysopen") and language == "perl":
        texts = texts[1:]
    if last == "open" and language == "perl":
        texts = texts[1:] if len(texts) > 1 else texts
        if len(texts) > 1:
            texts = [texts[1], texts[0], *texts[2:]]
    path = texts[0] if texts else ""
    if not path or "\n" in path or len(path) > 1024 or path.strip(HOLE + " ") == "":
        return
    second = texts[1] if len(texts) > 1 else ""
    if names & _WRITE:
        append = ("append",) if "append" in last else ()
        analysis.write(path, language, second if second and HOLE not in second else None, append)
    elif names & _DELETE:
        analysis.delete(path, language, deep=True)
    elif names & _COPY and second:
        analysis.read(path, language, deep=True)
        analysis.copied(path, analysis.write(second, language))
    elif names & _LINK and second:
        analysis.link(path, second, language)
    elif last == "chdir":
        analysis.look(path, language)
        if HOLE not in path:
            analysis.state.cwd = analysis.locate(path)[0]
    elif names & _LIST:
        for found in analysis.glob(path):
            analysis.look(found, language, deep=last in ("find", "walk") or "**" in found)
    elif names & _READ:
        if not _is_path(path) or (analysis.file and language == "javascript" and last in _IMPORTS):
            return  # `imports` knows from which folder a module is loaded
        if (_WRITE_MODE.match(second) and last in ("open", "fopen", "opensync", "new")) or re.match(
            r"\s*\+?>", path
        ):
            analysis.write(path.lstrip(" <>+"), language)
        else:
            analysis.read(path.lstrip(" <"), language)
    else:
        _mentioned(analysis, language, texts if last not in _SAY else [])


def _mentioned(analysis: Analysis, language: str, texts: list[str]) -> None:
    """A function nothing is known of: a protected path that it is given is read."""
    for text in texts:
        if text.startswith("/") and _is_path(text) and _is_protected(analysis, text):
            analysis.read(text, language)


def _is_protected(analysis: Analysis, text: str) -> bool:
    return analysis.context.protection_of(analysis.locate(text)[0]) == "protected"


def _is_path(text: str) -> bool:
    if not text or len(text) > 1024 or "\n" in text or text.isspace() or text.strip(HOLE) == "":
        return False
    return "/" in text or bool(re.fullmatch(r"[<>+ ]*[\w.-]+\.\w{1,6}", text)) or text in (".", "..")


def _joined(analysis: Analysis, last: str, arguments: Arguments) -> str:
    out = analysis.state.cwd if last == "resolve" else ""
    for argument in arguments:
        text = text_of(argument)
        out = (
            text
            if not out or (last == "resolve" and text.startswith("/"))
            else out.rstrip("/") + "/" + text.lstrip("/")
        )
    return paths.normalise(out) if out.startswith("/") else out


def _run(analysis: Analysis, language: str, last: str, arguments: Arguments) -> None:
    """A program is started: a shell command, or a program with a list of arguments."""
    words: list[str] = []
    for argument in arguments:
        if isinstance(argument, list):
            words.extend(map(text_of, argument))
        elif isinstance(argument, str):
            words.append(argument)
    if not words or words[0].strip(HOLE) == "":
        return
    separate = last.startswith(("spawn", "execfile", "execa")) or (
        language in ("perl", "ruby", "go") and len(words) > 1
    )
    if inet := re.match(r"/inet\d?/(tcp|udp)/\w+/([^/]+)/(\w+)", words[0]):  # awk's own sockets
        analysis.emit("net", f"{inet.group(1)}://{inet.group(2)}:{inet.group(3)}", language)
        return
    shell = analysis.make_shell(("sh",), "")
    with analysis.deeper() as possible:
        if possible:
            shell.call(words) if separate and " " not in words[0] else shell.run_text(words[0])


def _method(last: str, arguments: Arguments) -> Value:
    """A method of a string or list, computed; None where it is none."""
    owner, rest = arguments[0], arguments[1:]
    first = text_of(rest[0]) if rest else ""
    if isinstance(owner, list):
        if last == "join":
            return (first if rest else ",").join(map(text_of, owner))
        if last == "slice":
            return owner[int(first) if first.isdigit() else 0 :]
        return (
            owner[::-1]
            if last in ("reverse", "reverse!")
            else owner
            if last in ("map", "filter", "flat")
            else None
        )
    if not isinstance(owner, str) or HOLE in owner:
        return (
            owner
            if isinstance(owner, str) and last in ("tostring", "trim", "strip", "chomp", "to_s")
            else None
        )
    if last in (
        "tostring",
        "trim",
        "strip",
        "chomp",
        "to_s",
        "tolowercase",
        "downcase",
        "touppercase",
        "upcase",
    ):
        lowered = owner.lower() if last in ("tolowercase", "downcase") else owner
        return lowered.upper() if last in ("touppercase", "upcase") else lowered.strip()
    if last in ("split", "chars"):
        return [*(owner.split(first) if first else owner)]
    if last in ("concat", "+"):
        return owner + "".join(map(text_of, rest))
    if last in ("replace", "replaceall", "sub", "gsub") and len(rest) > 1 and isinstance(rest[0], str):
        return owner.replace(first, text_of(rest[1]), 1 if last in ("replace", "sub") else -1)
    return owner[::-1] if last == "reverse" else None


def _computed(analysis: Analysis, last: str, arguments: Arguments) -> Value:
    """Functions that make one string of others."""
    texts = [text_of(argument) for argument in arguments]
    if last == "from":  # Buffer.from(text, encoding)
        return (
            _decoded(analysis, texts[1], texts[0]) if len(texts) > 1 else arguments[0] if arguments else None
        )
    if last == "pack" and len(texts) > 1:
        return _decoded(analysis, "hex", texts[1]) if texts[0].startswith("H") else None
    if last == "hex2bin" and texts:
        return _decoded(analysis, "hex", texts[0])
    if last == "fromcharcode":
        return "".join(chr(int(text)) for text in texts if text.isdigit() and int(text) < 0x110000)
    if last in ("reverse", "strrev"):
        return texts[0][::-1] if len(texts) == 1 else None
    if last in ("join", "implode") and texts:
        rest = [
            text
            for argument in arguments[1:]
            for text in (argument if isinstance(argument, list) else [argument])
        ]
        return texts[0].join(map(text_of, rest))
    if last == "sprintf" and texts:
        values = iter(texts[1:])
        return re.sub(r"%[sd]", lambda _: next(values, HOLE), texts[0])
    return "".join(texts) if last in ("concat", "paste0") else None


def _decoded(analysis: Analysis, encoding: str, text: str) -> str:
    if HOLE in text:
        return HOLE
    analysis.decoders += 1
    try:
        if encoding.startswith("base64"):
            return decode_base64(text)
        return as_text(bytes.fromhex(text)) if encoding == "hex" else text
    except ValueError:
        return HOLE
