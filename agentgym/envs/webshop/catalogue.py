"""A shop's products and instructions, parsed once into files that every process maps into memory.

Rows are decoded when they are looked at, so a shop of a million products starts at once and takes little memory.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentgym.cache import cache_folder, made_once
from agentgym.envs.webshop.products import Product, read_product
from agentgym.envs.webshop.rows import Rows, write_rows
from agentgym.errors import TaskError
from agentgym.retrieval import Index, open_index

FORMAT = 1  # of the cached files; raise it whenever they or the reading of products change

# The official files' names begin so
PRODUCTS, ATTRIBUTES, HUMAN = ("items_shuffle", "items_ins_v2", "items_human_ins")

_LONGEST_ASIN = 10
_READ = 1 << 22  # characters of a product file read at once
_DECODED = 4096  # products kept ready


class Catalogue:
    """Products by id, their order, the search engine over them. Never changes; threads may share it.

    Args:
        folder: where `_write` put the files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        self.asins: list[str] = summary["asins"]
        self.pricing: list[list[float]] = summary["pricing"]
        self.instructed: list[str] = summary["instructed"]
        self._numbers = {asin: number for number, asin in enumerate(self.asins)}
        self._rows = Rows(folder)
        self.product = functools.lru_cache(_DECODED)(self._decode)

    def __reduce__(self) -> Any:
        return open_folder, (self.folder,)

    def __deepcopy__(self, memo: dict[int, Any]) -> Catalogue:
        return self

    def __contains__(self, asin: object) -> bool:
        return asin in self._numbers

    def __len__(self) -> int:
        return len(self.asins)

    def _decode(self, asin: str) -> Product:
        """The product of an id.

        Raises:
            KeyError: there is none.
        """
        row = self._rows[self._numbers[asin]]
        row["options"] = {name: tuple(values) for name, values in row["options"].items()}
        for name in ("bullets", "pricing", "attributes", "instruction_attributes"):
            row[name] = tuple(row[name])
        return Product(**row)

    def products(self) -> Iterator[Product]:
        """Every product, in order."""
        return map(self._decode, self.asins)

    @functools.cached_property
    def instructions(self) -> dict[str, list[dict[str, Any]]]:
        """What people asked for: asin -> rows of items_human_ins."""
        found: dict[str, list[dict[str, Any]]] = json.loads((self.folder / "human.json").read_bytes())
        return found

    @functools.cached_property
    def index(self) -> Index:
        """The search engine; built at the first use, then on disk."""
        return open_index(
            f"webshop-{self.folder.name}",
            lambda: ((product.asin, product.searchable) for product in self.products()),
        )

    def search(self, query: str, k: int = 50) -> list[str]:
        """The best ids for a query."""
        return [hit.id for hit in self.index.search(query, k)]


@functools.lru_cache(8)
def open_folder(folder: Path) -> Catalogue:
    """The catalogue whose files are in a folder; one object for all environments of a process."""
    return Catalogue(folder)


def open_catalogue(data: str | Path, num_products: int | None = None) -> Catalogue:
    """The catalogue of a folder with WebShop's files.

    Args:
        data: holds items_shuffle*.json, items_ins_v2*.json and, where there are human goals, items_human_ins.json.
        num_products: only this many rows, from the top.

    Raises:
        TaskError: a file is missing or has another form.
    """
    files = find_files(Path(data), num_products)
    digest = hashlib.sha256(f"{FORMAT} {num_products}".encode())
    for name, path in files.items():
        digest.update(f" {name} {_digest_of(path) if path else None}".encode())

    def fill(folder: Path) -> None:
        attributes = _read_object(files[ATTRIBUTES])
        rows = _first(json_items(files[PRODUCTS]), num_products)  # type: ignore[arg-type]  # it was found
        _write(folder, _kept(rows, attributes), _read_object(files[HUMAN]))

    return open_folder(made_once(shop_cache() / f"files-{digest.hexdigest()[:32]}", fill))


def keep_catalogue(
    name: str, products: Callable[[], tuple[Iterable[Product], Mapping[str, list[dict[str, Any]]]]]
) -> Catalogue:
    """A catalogue of products made by code, from the cache where `name` is there.

    Args:
        name: stands for everything the products depend on.
        products: gives them with the instructions people have for them; called where they have to be made.
    """

    def fill(folder: Path) -> None:
        made, instructions = products()
        _write(folder, made, instructions)

    return open_folder(made_once(shop_cache() / f"{name}-{FORMAT}", fill))


def shop_cache() -> Path:
    """Where catalogues and tasks are kept."""
    return cache_folder() / "webshop"


def find_files(folder: Path, num_products: int | None = None) -> dict[str, Path | None]:
    """Where the three official files are; None for human instructions that are not there.

    Of two sizes in one folder the one of 1,000 products serves requests for no more than that.
    """
    found: dict[str, Path | None] = {}
    for name in (PRODUCTS, ATTRIBUTES, HUMAN):
        small, full = folder / f"{name}_1000.json", folder / f"{name}.json"
        wanted = [small, full] if num_products is not None and num_products <= 1000 else [full, small]
        found[name] = next((path for path in wanted if path.is_file()), None)
        if found[name] is None and name != HUMAN:
            raise TaskError(
                f"expected {full.name} or {small.name} in {folder}; 'agentgym data webshop' says where they come from"
            )
    return found


def json_items(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSON list, one after the other: official files are too large to be read at once."""
    decoder = json.JSONDecoder()
    try:
        with open(path, encoding="utf-8") as file:
            text, position = file.read(_READ), 0
            if not text.lstrip().startswith("["):
                raise TaskError(f"{path}: expected a JSON list")
            position = text.index("[") + 1
            while True:
                position = _past(text, position, " \t\r\n,")
                if text[position : position + 1] == "]":
                    return
                try:
                    item, position = decoder.raw_decode(text, position)
                except json.JSONDecodeError:
                    more = file.read(_READ)
                    if not more:
                        raise
                    text, position = text[position:] + more, 0
                    continue
                yield item
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise TaskError(f"cannot read {path}: {error}") from None


def _past(text: str, position: int, skipped: str) -> int:
    while position < len(text) and text[position] in skipped:
        position += 1
    return position


def _first(rows: Iterator[dict[str, Any]], count: int | None) -> Iterator[dict[str, Any]]:
    return rows if count is None else (row for _, row in zip(range(count), rows, strict=False))


def _kept(rows: Iterable[Mapping[str, Any]], attributes: Mapping[str, Any]) -> Iterator[Product]:
    """The products that the original keeps: no "nan", no long ids, the first of each id."""
    seen = set()
    for row in rows:
        asin = row.get("asin")
        if not isinstance(asin, str):
            raise TaskError(f"expected a product with an 'asin', got {row!s:.80}")
        if asin != "nan" and len(asin) <= _LONGEST_ASIN and asin not in seen:
            seen.add(asin)
            yield read_product(row, attributes.get(asin) or {})


def _read_object(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise TaskError(f"cannot read {path}: {error}") from None
    if not isinstance(value, dict):
        raise TaskError(f"{path}: expected a JSON object by asin, got {type(value).__name__}")
    return value


def _write(folder: Path, products: Iterable[Product], instructions: Mapping[str, Any]) -> None:
    asins, pricing, instructed = [], [], []

    def rows() -> Iterator[dict[str, Any]]:
        for product in products:
            asins.append(product.asin)
            pricing.append(product.pricing)
            if product.instruction is not None:
                instructed.append(product.asin)
            yield {name: getattr(product, name) for name in Product.__dataclass_fields__}

    write_rows(folder, rows())
    known = set(asins)
    human = {asin: rows for asin, rows in instructions.items() if asin in known}
    (folder / "human.json").write_text(json.dumps(human), encoding="utf-8")
    summary = {"asins": asins, "pricing": pricing, "instructed": instructed}
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")


def _digest_of(path: Path) -> str:
    """A file's SHA-256, remembered by its place, size and time so that a large one is read once."""
    stat = path.stat()
    known = f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()
    note = shop_cache() / "digests" / hashlib.sha256(known).hexdigest()
    try:
        return note.read_text(encoding="ascii")
    except OSError:
        pass
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(digest, encoding="ascii")
    return digest
