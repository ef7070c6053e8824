"""Where WebShop's official files come from, and what is in a folder of them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from agentgym.envs.webshop.catalogue import HUMAN, find_files, open_catalogue

SOURCE = """\
WebShop's files come with the repository princeton-nlp/WebShop on GitHub. Its setup.sh fetches them: `setup.sh -d small`
gives 1,000 products, `setup.sh -d all` all 1.18 million; section "Setup" of its README says more. The texts were taken
from a shop, so look at what you may do with them. The folder then holds

  items_shuffle.json   or items_shuffle_1000.json   the products
  items_ins_v2.json    or items_ins_v2_1000.json    their attributes, and instructions made by rule
  items_human_ins.json                              12,087 instructions that people wrote

Give it to the environment: gymnasium.make("agentgym/WebShop-v0", data="FOLDER"). Without files the environment
invents its products. The official files have no published checksums: the digests are for comparing copies."""


def survey(folder: Path, num_products: int | None = None) -> dict[str, Any]:
    """What a folder holds: files with sizes and digests, and counts of what the environment makes of them.

    Raises:
        TaskError: a file is missing or has another form.
    """
    files: dict[str, dict[str, Any] | None] = {}
    for name, path in find_files(folder, num_products).items():
        if path is None:
            files[name] = None
            continue
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        files[name] = {"file": path.name, "bytes": path.stat().st_size, "sha256": digest}
    catalogue = open_catalogue(folder, num_products)
    rows = [row for rows in catalogue.instructions.values() for row in rows]
    counts = {
        "products": len(catalogue),
        "products_with_price_range": sum(len(amounts) > 1 for amounts in catalogue.pricing),
        "products_with_synthetic_instruction": len(catalogue.instructed),
        "human_instructions": len(rows),
        "human_goals": sum(bool(row.get("instruction_attributes")) for row in rows),
    }
    return {"files": files, "counts": counts, "human": files[HUMAN] is not None}
