"""The recorded shop, where it is, and a small one by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentgym.envs.webshop.catalogue import Catalogue, open_catalogue

SHARED = Path(__file__).resolve().parents[4] / "shared"


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory):
    """Nothing here reads or fills the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTGYM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def recorded() -> Catalogue:
    """The shop of the recorded episodes."""
    folder = SHARED / "data" / "webshop"
    if not folder.is_dir():
        pytest.skip("the recorded shop is not here")
    return open_catalogue(folder)


@pytest.fixture(scope="session")
def traces() -> list[dict]:
    path = SHARED / "cases" / "webshop_traces.jsonl"
    if not path.is_file():
        pytest.skip("the recorded episodes are not here")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def row(asin: str, name: str, **changes) -> dict:
    """A row of items_shuffle."""
    return {
        "asin": asin,
        "name": name,
        "full_description": "A thing.",
        "small_description": ["First point", "Second point"],
        "pricing": "$12.50",
        "images": ["https://img.example.invalid/1.jpg"],
        "category": "garden",
        "query": " Rugs ",
        "product_category": "Home › Rugs › Area",
        "customization_options": {
            "Color": [{"value": " Red/Blue ", "image": "r.jpg"}, {"value": "Green", "image": None}],
            "Size": None,
        },
    } | changes


ROWS = [
    row("B000000001", "Wool Rug"),
    row("nan", "No id"),
    row("B00000000000", "An id too long"),
    row("B000000002", "Rug Pad <b>", pricing="$5.00 - $7.5", small_description="One text"),
    row("B000000001", "The same id again"),
    row("B000000003", "Tray", pricing="", customization_options="", category="grocery", query="trays"),
]
ATTRIBUTES = {
    "B000000001": {
        "attributes": ["soft", "non slip"],
        "instruction": "Find me a rug",
        "instruction_attributes": ["soft"],
    },
    "B000000002": {"attributes": []},
}
HUMAN = {
    "B000000001": [
        {
            "asin": "B000000001",
            "instruction": "i want a soft rug in green.",
            "attributes": ["soft", "non slip"],
            "options": ["color: green"],
            "instruction_attributes": ["soft"],
            "instruction_options": ["green"],
        },
        {"asin": "B000000001", "instruction": "any", "instruction_attributes": [], "instruction_options": []},
        {
            "asin": "B000000001",
            "instruction": "a purple one",
            "instruction_attributes": ["soft"],
            "instruction_options": ["purple"],  # which there is not
        },
    ]
}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder as the official one, of three products."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "items_shuffle.json").write_text(json.dumps(ROWS), encoding="utf-8")
    (folder / "items_ins_v2.json").write_text(json.dumps(ATTRIBUTES), encoding="utf-8")
    (folder / "items_human_ins.json").write_text(json.dumps(HUMAN), encoding="utf-8")
    return folder


@pytest.fixture
def small(files: Path) -> Catalogue:
    return open_catalogue(files)
