"""Every extra that a message or a page names exists."""

import configparser
import re
from pathlib import Path

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
