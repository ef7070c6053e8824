"""What calls of Python's standard library and of well-known packages reach outside the interpreter."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from agentgym.monitor.code import git, given
from agentgym.monitor.code.files import (
    Arguments,
    Keywords,
    copied,
    emit_delete,
    emit_write,
    joined,
    listed,
    opened,
    worth_saying,
)
from agentgym.monitor.code.rows import TABLE, set_environment
from agentgym.monitor.code.values import (
    DECODE_ERRORS,
    DECODERS,
    UNKNOWN,
    Handle,
    Name,
    Value,
    bounded,
    text_of,
)
from agentgym.monitor.effects import HOLE

if TYPE_CHECKING:
    from agentgym.monitor.code.python import Reader

_READS = frozenset(
    "numpy.load numpy.loadtxt numpy.genfromtxt numpy.fromfile numpy.memmap torch.load pandas.read_csv "
    "pandas.read_json pandas.read_parquet pandas.read_pickle pandas.read_excel pandas.read_table "
    "joblib.load linecache.getline linecache.getlines fileinput.input tarfile.open zipfile.ZipFile "
    "gzip.open bz2.open lzma.open sqlite3.connect shelve.open dbm.open mmap.mmap imageio.imread "
    "cv2.imread PIL.Image.open h5py.File safetensors.torch.load_file ctypes.CDLL ctypes.cdll.LoadLibrary "
    "hashlib.file_digest tokenize.open py_compile.compile os.readlink configparser.read yaml.safe_load "
    "toml.load netCDF4.Dataset wave.open codecs.open io.FileIO".split()
)
_LISTS = frozenset(
    "os.listdir os.scandir os.stat os.lstat os.access os.path.exists os.path.isfile os.path.isdir "
    "os.path.getsize os.path.islink os.path.lexists os.path.getmtime os.statvfs filecmp.cmp os.chdir "
    "os.fwalk".split()
)
_DELETES = frozenset("os.remove os.unlink os.rmdir os.removedirs shutil.rmtree".split())
_WRITES = frozenset(
    "os.chmod os.chown os.utime os.mkdir os.makedirs os.truncate os.mkfifo os.mknod os.chflags".split()
)
_SAVES = {
    "numpy.save": 0,
    "numpy.savez": 0,
    "numpy.savetxt": 0,
    "torch.save": 1,
    "joblib.dump": 1,
    "shutil.make_archive": 0,
}
_ARCHIVES = ("tarfile.open", "zipfile.ZipFile", "tarfile.TarFile", "tarfile.TarFile.open")
_COPIES = frozenset(
    "shutil.copy shutil.copy2 shutil.copyfile shutil.copytree shutil.move os.rename os.replace os.renames".split()
)
_LINKS = frozenset(("os.symlink", "os.link"))
_SHELLS = frozenset(
    "os.system os.popen subprocess.getoutput subprocess.getstatusoutput commands.getoutput "
    "asyncio.create_subprocess_shell pty.spawn invoke.run sh.bash get_ipython().system "
    "get_ipython().getoutput".split()
)
_PROGRAMS = frozenset(
    "subprocess.run subprocess.call subprocess.check_call subprocess.check_output subprocess.Popen sarge.run".split()
)
_PIP = re.compile(r"\bpip(?:\._internal)?(?:\.\w+)*\.main\Z")
_REQUESTS = re.compile(
    r"(?:requests|httpx|urllib3|niquests|curl_cffi\.requests|requests\.sessions\.Session|aiohttp)(?:\.\w+)?\."
    r"(get|post|put|head|delete|patch|options|request|stream|urlopen)\Z"
    r"|urllib\.request\.(?:urlopen|urlretrieve|Request)\Z|urllib2?\.urlopen\Z|wget\.download\Z|websocket\.create_connection\Z"
    r"|(?:pandas\.read_html|torch\.hub\.download_url_to_file|torch\.hub\.load_state_dict_from_url)\Z"
)
_SOCKETS = re.compile(
    r"socket\.(?:create_connection|gethostbyname|getaddrinfo|socket\(\)\.connect(?:_ex)?)\Z|http\.client\.HTTPS?Connection\Z|(?:ftplib\.FTP|telnetlib\.Telnet|smtplib\.SMTP)\Z"
)
_PURE = (
    "os.path.",
    "posixpath.",
    "ntpath.",
    "re.",
    "string.",
    "fnmatch.",
    "urllib.parse.",
    "shlex.",
    "textwrap.",
    "json.dumps",
    "logging.",
    "warnings.",
    "argparse.",
    "builtins.",
    "pathlib.Pure",
    "posix.fspath",
    "difflib.",
    "itertools.",
    "functools.",
    "collections.",
    "operator.",
)
"""What only computes: a path in its arguments is a text."""
_JOINS = frozenset(("os.path.join", "posixpath.join", "ntpath.join"))


def call(reader: Reader, name: str, arguments: Arguments, keywords: Keywords) -> Value:
    """A call of something that is not part of the program, by its dotted name."""
    plain = name.removeprefix("__builtins__.").removeprefix("builtins.")
    if plain in TABLE:
        name = plain
    if name in DECODERS:
        reader.analysis.decoders += 1
        try:
            return bounded(DECODERS[name](arguments))
        except DECODE_ERRORS:
            return UNKNOWN
    if (row := TABLE.get(name)) is not None:
        return row(reader, arguments, keywords)
    if (verb := git.verb_of(name)) is not None:
        git.asked(reader, verb, arguments, keywords)
        return Name(name + "()")
    source = _first(arguments, keywords)
    first = text_of(source)
    analysis = reader.analysis
    if name in _JOINS:
        return joined(arguments)
    if name in _READS:
        mode = arguments[1] if len(arguments) > 1 else keywords.get("mode", "r")
        if name in _ARCHIVES and text_of(mode)[:1] in ("w", "a", "x"):
            emit_write(reader, first, None)
            return Handle(first, "archive")
        if keywords.get("inplace"):
            for path in source if isinstance(source, list) else [source]:
                emit_write(reader, text_of(path), None, ("edit",))
        for path in source if isinstance(source, list) else ():
            opened(reader, text_of(path), "r")
        return opened(reader, first, text_of(mode)) if not isinstance(source, list) else UNKNOWN
    if name in _LISTS:
        return listed(reader, name, first)
    if name in _DELETES:
        emit_delete(reader, first, deep="tree" in name)
    elif name in _WRITES:
        emit_write(reader, first, None, ("mode",))
    elif name in _SAVES:
        at = _SAVES[name]
        emit_write(reader, text_of(arguments[at]) if len(arguments) > at else HOLE, None)
        given.follow(reader, name, arguments, keywords)
    elif name in _COPIES and len(arguments) > 1:
        copied(reader, name, first, text_of(arguments[1]))
    elif name in _LINKS and len(arguments) > 1:
        analysis.link(first, text_of(arguments[1]), "python")
    elif name in _SHELLS:
        return Handle(run_shell(reader, source), "output")
    elif name.startswith("psutil.") and name.endswith((".environ", ".memory_maps", ".open_files")):
        analysis.read(f"/proc/{HOLE}/{name.rpartition('.')[2]}", "python")
    elif _PIP.search(name):
        words = arguments[0] if arguments and isinstance(arguments[0], list | tuple) else []
        _words(reader, ["pip", *map(text_of, words)])
    elif name in _PROGRAMS:
        return _program(reader, arguments, keywords)
    elif name.startswith(("os.exec", "os.spawn", "os.posix_spawn")):
        words = [a for a in arguments if not isinstance(a, int)]
        _words(
            reader,
            [text_of(w) for item in words for w in (item if isinstance(item, list | tuple) else [item])][1:]
            or [first],
        )
    elif _REQUESTS.match(name.replace("()", "")):
        return _request(reader, name, arguments, keywords)
    elif _SOCKETS.match(name):
        return _socket(reader, arguments)
    elif name.startswith(_PURE):
        return UNKNOWN
    else:
        given.follow(reader, name, arguments, keywords)
        return Name(name + "()")
    return UNKNOWN


_PATH_KEYWORDS = (
    "file",
    "files",
    "path",
    "filename",
    "filepath_or_buffer",
    "fname",
    "src",
    "name",
    "top",
    "cmd",
    "command",
)


def _first(arguments: Arguments, keywords: Keywords) -> Value:
    """The argument that says what is meant, wherever it stands."""
    if arguments:
        return arguments[0]
    return next((keywords[name] for name in _PATH_KEYWORDS if name in keywords), HOLE)


def run_shell(reader: Reader, command: Value) -> str:
    if isinstance(command, list | tuple):
        return _words(reader, [text_of(word) for word in command])
    text = text_of(command)
    if text.strip(HOLE) == "":
        if not reader.analysis.is_supposed:
            reader.analysis.give_up("unresolved")
        return HOLE
    with reader.analysis.deeper() as possible:
        return reader.analysis.make_shell(("sh",), "").run_text(text) if possible else HOLE


def _words(reader: Reader, words: list[str]) -> str:
    with reader.analysis.deeper() as possible:
        return reader.analysis.make_shell(("sh",), "").call(words) if possible and words else HOLE


def _program(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    command = arguments[0] if arguments else keywords.get("args", HOLE)
    state = reader.analysis.state
    outer = state.cwd
    if (folder := keywords.get("cwd")) is not None and HOLE not in text_of(folder):
        reader.analysis.look(text_of(folder), "python")
        state.cwd = reader.analysis.locate(text_of(folder))[0]
    before = state.variables
    if isinstance(env := keywords.get("env"), dict):
        state.variables = before.copy()
        for name, text in env.items():
            set_environment(reader, text_of(name), text_of(text))
    output = run_shell(reader, command)
    state.cwd, state.variables = outer, before
    return Handle(output, "output")


def _request(reader: Reader, name: str, arguments: Arguments, keywords: Keywords) -> Value:
    url = keywords.get("url", arguments[0] if arguments else HOLE)
    if name.endswith((".request", ".stream")) and len(arguments) > 1:
        url = arguments[1]
    if isinstance(url, Handle):
        return url  # a Request object that was said when it was made
    text = text_of(url)
    if name.endswith("urllib.request.Request"):
        return Handle(text, "request")
    if worth_saying(reader, text):
        reader.analysis.emit("net", text, "python", (name,))
        if local := re.match(r"(?i)file:(?://[^/]*)?(/.*)", text):
            reader.analysis.read(unquote(local.group(1)), "python")
        for proxy in (
            (keywords.get("proxies") or {}).values() if isinstance(keywords.get("proxies"), dict) else ()
        ):
            reader.analysis.emit("net", text_of(proxy), "python", ("proxy",))
    return Handle(text, "response")


def _socket(reader: Reader, arguments: Arguments) -> Value:
    target = arguments[0] if arguments else HOLE
    host, port = (
        (target[0], target[1])
        if isinstance(target, tuple) and len(target) > 1
        else (target, arguments[1] if len(arguments) > 1 else "")
    )
    text = text_of(host)
    if worth_saying(reader, text):
        reader.analysis.emit(
            "net", f"tcp://{text}" + (f":{text_of(port)}" if port not in ("", UNKNOWN) else ""), "python"
        )
    return Handle(text, "connection")
