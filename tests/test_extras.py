"""Every extra that a message or a page names exists."""

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NAMED = re.compile(r"agentgym-suite\\?\[([a-z, ]+)\\?\]")


def extras():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    return set(setup["options.extras_require"])


def test_extras_that_are_named_exist():
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "agentgym").rglob("*.py")]
    named = {
        (str(file.relative_to(ROOT)), extra.strip())
        for file in files
        for found in NAMED.findall(file.read_text(encoding="utf-8"))
        for extra in found.split(",")
    }
    assert len(named) > 5  # the pattern finds them
    assert {pair for pair in named if pair[1] not in extras()} == set()


@pytest.mark.parametrize(
    ("package", "statement", "extra"),
    [
        ("rapidfuzz", "gymnasium.make('agentgym/WebShop-v0')", "shop"),
        ("textworld", "gymnasium.make('agentgym/TextWorld-v0')", "text"),
        ("playwright", "agentgym.registration.require('agentgym/Web-v0')", "web"),
    ],
)
def test_a_missing_package_is_one_line_that_names_its_extra(package, statement, extra):
    imports = "import agentgym, agentgym.registration, gymnasium"
    code = f"import sys\nsys.modules[{package!r}] = None\n{imports}\n{statement}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "MissingDependency: " in done.stderr.splitlines()[-1]
    assert f"agentgym-suite[{extra}]" in done.stderr.splitlines()[-1]
