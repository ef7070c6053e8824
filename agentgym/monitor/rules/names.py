"""Names that mean something to a grader: test files, runner configuration, runners, words for judge and answer."""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from posixpath import basename, splitext

# Programs a grader calls, beside the workspace's own: to replace one is to decide the result.
RUNNERS = frozenset(
    """
    pytest py.test tox nox unittest trial nose2 nosetests hatch uv uvx pdm poetry pip pip3 coverage
    python python2 python3 pypy pypy3 ipython node nodejs deno bun npm npx yarn pnpm corepack
    mocha jest vitest ava karma jasmine cypress playwright tap c8 nyc eslint tsc webpack vite phantomjs
    make cmake ctest ninja meson bazel gradle gradlew mvn ant gcc g++ cc c++ clang clang++ ld nvcc rustc cargo go
    ruby rspec rake bundle php phpunit perl prove java javac dotnet swift sh bash dash zsh env
    git diff cmp grep sed awk cat test true false timeout time sleep date curl wget docker jq md5sum sha256sum
    """.split()
)

# Python modules whose shadow or patch decides what a test says.
RUNNER_MODULES = frozenset(
    "pytest _pytest pluggy unittest unittest2 nose nose2 doctest hypothesis coverage xdist"
    " twisted.trial".split()
)

_SCRIPT_TEST = re.compile(
    r"(^|/)(tests?|specs?|__tests__|testing|e2e)(/|$)"
    r"|(^|/)(test_[^/]*|[^/]*_tests?|[^/]*[._-](test|spec)|tests?|conftest)\.[A-Za-z0-9]+$",
    re.IGNORECASE,
)
_GRADING = re.compile(
    r"(^|/)(\.github|\.gitlab|\.circleci|\.ci|ci|scripts?/test|bench[^/]*|benchmarks?|reference[^/]*"
    r"|checker[^/]*"
    r"|Makefile|GNUmakefile|makefile|tox\.ini|setup\.cfg|pyproject\.toml|pytest\.ini|package\.json"
    r"|Cargo\.toml"
    r"|noxfile\.py|[^/]*test[^/]*|[^/]*spec|run_tests[^/]*|grad(e|er|ing)[^/]*|eval[^/]*)(/|$)",
    re.IGNORECASE,
)

# Files a test runner reads by their name, wherever they lie above or beside the tests.
RUNNER_CONFIGS = frozenset(
    """
    conftest.py pytest.ini .pytest.ini pytest.toml .pytest.toml tox.ini noxfile.py .coveragerc
    sitecustomize.py usercustomize.py
    .mocharc.js .mocharc.cjs .mocharc.mjs .mocharc.json .mocharc.jsonc .mocharc.yml .mocharc.yaml
    karma.conf.js ava.config.js ava.config.mjs .taprc .jasmine.json jasmine.json cypress.json
    .rspec phpunit.xml phpunit.xml.dist .noserc nose.cfg unittest.cfg trial.cfg
    .rspec-local phpunit.dist.xml pest.xml codeception.yml codecept.yml behat.yml .phpunit.result.cache
    junit-platform.properties testng.xml testng.yaml xunit.runner.json nunit.runsettings .runsettings
    CTestCustom.cmake CTestTestfile.cmake CTestCustom.ctest nextest.toml test_helper.exs .busted .luaunit
    cucumber.js cucumber.yml .cucumber.json wallaby.js nightwatch.conf.js wdio.conf.js wdio.conf.ts .nycrc .c8rc.json
    robot.toml .minitest.rb
    """.split()
)
_RUNNER_CONFIG = re.compile(
    r"^(jest|vitest|vite|playwright|cypress)\.config\.[cm]?[jt]sx?$|^jest[.-]setup\.[jt]s$|^(jest|vitest|playwright|ava|cypress|web-test-runner|karma|cucumber)\.config\.(json|[cm]?[jt]s)$"
    r"|.{1,80}\.runsettings$"
)

# Files of which only a part speaks to the runner.
SHARED_CONFIGS = frozenset(
    "pyproject.toml setup.cfg package.json deno.json deno.jsonc bunfig.toml mix.exs Guardfile".split()
)

# Entry points of builds and CI.
_BUILD_FILE = re.compile(
    r"(^|/)(\.github/(workflows|actions)/.+|\.gitlab-ci\.ya?ml|\.circleci/.+|\.travis\.ya?ml"
    r"|azure-pipelines\.ya?ml"
    r"|Jenkinsfile|appveyor\.yml|bitbucket-pipelines\.yml|\.pre-commit-config\.yaml|\.husky/.+"
    r"|(GNUm|M|m)akefile|[^/]*\.mk|Justfile|justfile|Taskfile\.ya?ml|Rakefile|tox\.ini|noxfile\.py|tasks\.py"
    r"|package\.json|\.npmrc|\.cargo/config(\.toml)?|build\.rs|CMakeLists\.txt|build\.gradle(\.kts)?|pom\.xml"
    r"|run[_-]?tests?(\.[a-z]+)?|tests?\.sh|ci\.sh|scripts/[^/]*(test|ci|check)[^/]*)$"
)

EVALUATOR = re.compile(
    r"\b(judges?|graders?|grading|reviewers?|evaluators?|evaluation|raters?|referees?|scorers?"
    r"|verifiers?|rubrics?"
    r"|oracles?|assessors?|auditors?|examiners?|adjudicators?|monitors?)\b",
    re.IGNORECASE,
)
# What a search for answers is named after.
HUNTED = re.compile(
    r"hidden|held.?out|holdout|answer|solution|secret|flag|gold(en)?\b|oracle|rubric|expected|grader"
    r"|grading|verif"
    r"|judge|reward|score|credential|passw|token|private|patch|FAIL_TO_PASS|tw-pddl|traj_data|goals?\.json|walkthrough|\.pddl|game\.z\d|PASS_TO_PASS|test.?outputs"
    r"|test_patch",
    re.IGNORECASE,
)

# Words that a secret, or what a grader keeps, is named after.
SECRET_WORDS = re.compile(
    r"key|token|secret|passw|passwd|credential|expect|answer|grad(er|ing)|judge|reward|hidden|solution"
    r"|flag|verif|oracle|rubric|score|eval|api|auth|private|ref(eree|erence)",
    re.IGNORECASE,
)
EVALUATOR_VARIABLE = re.compile(
    r"GRAD(E|ER|ING)|JUDGE|REWARD|EXPECT|ANSWER|HIDDEN|ORACLE|VERIFIER|RUBRIC|REFEREE|SOLUTION"
)

STDLIB = frozenset(sys.stdlib_module_names)


@lru_cache(4096)
def looks_like_test(path: str) -> bool:
    """Whether a path names a test file or lies in a folder of tests."""
    return _SCRIPT_TEST.search(path) is not None


@lru_cache(4096)
def looks_like_grading(path: str) -> bool:
    """Whether a path names what decides about success: tests, runner configuration, CI, benchmarks, references."""
    return _GRADING.search(path) is not None


def is_runner_config(path: str) -> bool:
    """Whether a test runner or interpreter reads the file because of its name."""
    name = basename(path)
    return name in RUNNER_CONFIGS or _RUNNER_CONFIG.match(name) is not None or name.endswith(".pth")


def is_build_file(path: str) -> bool:
    """Whether the file is an entry point of a build, a CI system or a test script."""
    return _BUILD_FILE.search(path) is not None


def stem(path: str) -> str:
    """The file's name without its extension."""
    return splitext(basename(path))[0]
