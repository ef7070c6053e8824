"""How SWE-bench runs the tests of the projects it knows, and whose log parser reads what they print.

Source: ``swebench/harness/constants/python.py`` (commands) and ``swebench/harness/log_parsers/`` (parsers) of SWE-bench
4; the repositories are those of its test and dev splits, and of Multilingual.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TestRun:
    """How a project's tests are run.

    Attributes:
        log_parser: name in `agentgym.verifiers.log_parsers.PARSERS`.
        command: a shell line; the tests to run come after it.
    """

    __test__ = False

    log_parser: str = "pytest"
    command: str = "pytest -rA"


_PYTEST = TestRun()
_OPTIONS = TestRun("pytest_options")
_DJANGO_ENV = "LANG=C.UTF-8 LC_ALL=C.UTF-8 PYTHONIOENCODING=utf8"

PROJECTS: dict[str, TestRun] = {
    "astropy/astropy": TestRun("pytest_v2", "pytest -rA -vv -o console_output_style=classic --tb=no"),
    "django/django": TestRun(
        "django", f"{_DJANGO_ENV} ./tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1"
    ),
    "marshmallow-code/marshmallow": _PYTEST,
    "matplotlib/matplotlib": TestRun("matplotlib"),
    "mwaskom/seaborn": TestRun("seaborn", "pytest --no-header -rA"),
    "pallets/flask": _PYTEST,
    "psf/requests": _OPTIONS,
    "pvlib/pvlib-python": _PYTEST,
    "pydata/xarray": _PYTEST,
    "pydicom/pydicom": _OPTIONS,
    "pylint-dev/astroid": _PYTEST,
    "pylint-dev/pylint": _OPTIONS,
    "pytest-dev/pytest": _PYTEST,
    "pyvista/pyvista": _PYTEST,
    "scikit-learn/scikit-learn": TestRun("pytest_v2"),
    "sphinx-doc/sphinx": TestRun("pytest_v2", "tox --current-env -epy39 -v --"),
    "sqlfluff/sqlfluff": _PYTEST,
    "sympy/sympy": TestRun(
        "sympy", "PYTHONWARNINGS=ignore::UserWarning,ignore::SyntaxWarning bin/test -C --verbose"
    ),
}

# Other versions of a project that are run differently.
VERSIONS: dict[tuple[str, str], TestRun] = {
    ("django/django", "1.9"): TestRun("django", f"{_DJANGO_ENV} ./tests/runtests.py --verbosity 2"),
}

# SWE-bench Multilingual's: the name of the parser is known, so that a record says what it lacks. There is no command.
_OTHER_LANGUAGES = {
    "ant": "projectlombok/lombok",
    "cargo": "astral-sh/ruff burntsushi/ripgrep nushell/nushell sharkdp/bat tokio-rs/axum tokio-rs/tokio"
    " uutils/coreutils",
    "doctest": "nlohmann/json",
    "googletest": "fmtlib/fmt",
    "gotest": "caddyserver/caddy gin-gonic/gin gohugoio/hugo hashicorp/terraform prometheus/prometheus",
    "gradle_custom": "apache/lucene reactivex/rxjava",
    "immutable_js": "immutable-js/immutable-js",
    "jekyll": "jekyll/jekyll",
    "jest": "babel/babel facebook/docusaurus",
    "jq": "jqlang/jq",
    "karma": "preactjs/preact",
    "maven": "apache/druid google/gson javaparser/javaparser",
    "micropython_test": "micropython/micropython",
    "phpunit": "briannesbitt/carbon laravel/framework php-cs-fixer/php-cs-fixer phpoffice/phpspreadsheet",
    "redis": "redis/redis valkey-io/valkey",
    "rspec_transformed_json": "fastlane/fastlane jordansissel/fpm rubocop/rubocop",
    "ruby_unit": "faker-ruby/faker fluent/fluentd",
    "tap": "axios/axios mrdoob/three.js",
    "vitest": "vuejs/core",
}
_MULTILINGUAL = {
    repo: TestRun(parser, "") for parser, repos in _OTHER_LANGUAGES.items() for repo in repos.split()
}

# Names under which SWE-bench knows one of its parsers a second time.
_SAME = {
    **dict.fromkeys("astroid flask marshmallow pvlib pyvista sqlfluff xarray".split(), "pytest"),
    **dict.fromkeys("pydicom requests pylint".split(), "pytest_options"),
    **dict.fromkeys("astropy scikit sphinx".split(), "pytest_v2"),
}


def run_of(repo: str, version: str) -> TestRun | None:
    """How SWE-bench runs this project's tests; None for one it does not know."""
    return VERSIONS.get((repo, version)) or PROJECTS.get(repo) or _MULTILINGUAL.get(repo.lower())


def parser_name(name: str) -> str:
    """Our name of a parser that SWE-bench or a descendant calls `name`, such as ``parse_log_pytest``."""
    short = name.strip().removeprefix("parse_log_")
    return _SAME.get(short, short)
