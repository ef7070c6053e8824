"""What a test run says is missing in its environment, and which distribution brings it.

A module is taken to bear the name of its distribution unless a table says otherwise. That is a guess: somebody else
may own the name on the index. So everything that was added is told, and none of it ever runs outside a sandbox.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator

from agentgym.envs.swe.runtime.names import canonical
from agentgym.verifiers.tests import SuiteRun

# import name -> distribution, where they differ
_DISTRIBUTIONS = {
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "Crypto": "pycryptodome",
    "Cryptodome": "pycryptodomex",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "git": "gitpython",
    "github": "pygithub",
    "gi": "pygobject",
    "jose": "python-jose",
    "jwt": "pyjwt",
    "magic": "python-magic",
    "memcache": "python-memcached",
    "MySQLdb": "mysqlclient",
    "nacl": "pynacl",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "pkg_resources": "setuptools<81",
    "psycopg2": "psycopg2-binary",
    "pyximport": "cython",
    "ruamel": "ruamel.yaml",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "slugify": "python-slugify",
    "socks": "pysocks",
    "usb": "pyusb",
    "xdist": "pytest-xdist",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
    "zope": "zope.interface",
}
# fixture -> pytest plugin
_FIXTURES = {
    "aiohttp_client": "pytest-aiohttp",
    "aiohttp_server": "pytest-aiohttp",
    "anyio_backend": "anyio",
    "benchmark": "pytest-benchmark",
    "cov": "pytest-cov",
    "data_regression": "pytest-regressions",
    "datadir": "pytest-datadir",
    "db": "pytest-django",
    "django_db_setup": "pytest-django",
    "event_loop": "pytest-asyncio",
    "faker": "faker",
    "file_regression": "pytest-regressions",
    "freezer": "pytest-freezer",
    "fs": "pyfakefs",
    "httpbin": "pytest-httpbin",
    "httpbin_secure": "pytest-httpbin",
    "httpserver": "pytest-httpserver",
    "httpx_mock": "pytest-httpx",
    "loop": "pytest-aiohttp",
    "mocker": "pytest-mock",
    "module_mocker": "pytest-mock",
    "session_mocker": "pytest-mock",
    "num_regression": "pytest-regressions",
    "qtbot": "pytest-qt",
    "requests_mock": "requests-mock",
    "respx_mock": "respx",
    "rf": "pytest-django",
    "settings": "pytest-django",
    "shared_datadir": "pytest-datadir",
    "snapshot": "syrupy",
    "socket_enabled": "pytest-socket",
    "subtests": "pytest-subtests",
    "time_machine": "time-machine",
    "unused_tcp_port": "pytest-asyncio",
    "worker_id": "pytest-xdist",
}
_MODULE = re.compile(r"No module named ['\"]?([\w.]+)")
_FIXTURE = re.compile(r"(?:FixtureLookupError: \(|\bfixture )'(\w+)'")
_UNINSTALLED = re.compile(
    r"No package metadata was found for ['\"]?([\w.-]+)|PackageNotFoundError: (?!No package)([\w.-]+)"
    r"|The '([\w.-]+)[^']*' distribution was not found|Missing required plugins: ([\w.-]+)"
)
_COROUTINES = "async def functions are not natively supported"


def missing_distributions(run: SuiteRun, own: Collection[str]) -> tuple[str, ...]:
    """Requirements that errors of a run ask for, by their names or by a module or fixture, sorted.

    Args:
        run: of the tests.
        own: names of everything that the tree holds: modules of these names are never looked for elsewhere.
    """
    texts = [*(error for _, error in run.failures.values()), run.output]
    return tuple(sorted({line for text in texts for line in _named(text, own) if line}))


def _named(text: str, own: Collection[str]) -> Iterator[str]:
    for module in _MODULE.findall(text):
        top = module.partition(".")[0]
        if top not in own and top not in sys.stdlib_module_names and not top.startswith("_"):
            yield _DISTRIBUTIONS.get(top, canonical(top))
    for fixture in _FIXTURE.findall(text):
        yield _FIXTURES.get(fixture, "")
    for names in _UNINSTALLED.findall(text):
        yield canonical(next(filter(None, names)))
    if _COROUTINES in text:
        yield "pytest-asyncio"
