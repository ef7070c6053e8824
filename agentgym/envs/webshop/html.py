"""Pages as HTML, with the elements, texts, classes and ids of the original's pages in their order.

Addresses are left out: nothing is served, a click is an action. The page of an item carries the chosen options in its
script, as the original's does.
"""

from __future__ import annotations

import json
import re
from html import escape
from html.parser import HTMLParser

from agentgym.envs.webshop.pages import (
    ATTRIBUTES,
    DESCRIPTION,
    FEATURES,
    Page,
    options_json,
    section_texts,
)
from agentgym.envs.webshop.products import Product

_LINK = '<link rel="stylesheet" href="">'
_PLAIN_HEAD = f'{_LINK}{_LINK}{_LINK}<link rel="icon" href="data:,">'
_SCRIPT_HEAD = (
    f'{_LINK}{_LINK}{_LINK}<script src=""></script><script src=""></script><link rel="icon" href="data:,">'
)


def render(page: Page) -> str:
    """The page's HTML."""
    if page.name in ("index", "done"):
        inner = _index(page) if page.name == "index" else _done(page)
        inner = f'<div class="col-md-6 col-md-offset-3">{inner}</div>'
        return _document(_PLAIN_HEAD, f'<div class="container" style="margin-top: 8%;">{inner}</div>')
    if page.name == "search_results":
        return _document(_SCRIPT_HEAD, f'<div class="container py-5">{_top(page, 1)}{_results(page)}</div>')
    inner = _item(page) if page.name == "item_page" else _section(page)
    script = _script(page) if page.name == "item_page" else ""
    return _document(_SCRIPT_HEAD, f'<div class="container py-5">{_top(page, 2)}{inner}</div>', script)


def outline(html: str) -> list[str]:
    """What of a page counts in comparisons: elements with classes and ids, visible texts, JSON in scripts; in order."""
    reader = _Outline()
    reader.feed(html)
    reader.close()
    return reader.found


def _document(head: str, body: str, script: str = "") -> str:
    return f"<!DOCTYPE html>\n<html><head>{head}</head><body>\n{body}\n</body>{script}</html>"


def _form(button: str, kind: str) -> str:
    return f'<form method="post" action=""><button type="submit" class="btn {kind}">{escape(button)}</button></form>'


def _row(inner: str) -> str:
    return f'<div class="row top-buffer">{inner}</div>\n'


def _top(page: Page, buttons: int) -> str:
    """The instruction and the first buttons."""
    text = f'<div id="instruction-text" class="text-center"><h4>Instruction:<br>{escape(page.instruction)}</h4></div>'
    kinds = ("btn-success", "btn-primary")
    forms = (_row(_form(*pair)) for pair in zip(page.buttons[:buttons], kinds, strict=False))
    return _row(f'<div class="col-sm-6">{text}</div>') + "".join(forms)


def _index(page: Page) -> str:
    return (
        '<div class="row"><div id="logo" class="text-center"><h2>WebShop</h2></div>\n'
        f'<div id="instruction-text" class="text-center"><h4>Instruction: <br>{escape(page.instruction)}</h4></div>\n'
        '<form role="form" id="form-buscar" method="post" action=""><div class="form-group"><div class="input-group">'
        '<input id="search_input" class="form-control" type="text" name="search_query" '
        'placeholder="Search..." required/>'
        '<span class="input-group-btn"><button class="btn btn-success" type="submit">'
        '<i class="glyphicon glyphicon-search" aria-hidden="true"></i>Search</button></span></div></div></form></div>'
    )


def _results(page: Page) -> str:
    turns = [f'<div class="col-sm-2">{_form(button, "btn-primary")}</div>' for button in page.buttons[1:]]
    if page.number <= 1:
        turns.insert(0, '<div class="col-sm-2"></div>')
    count = f'<div class="display-4"><h3>Page {page.number} (Total results: {page.total})</h3></div>'
    head = _row(f'<div class="col-sm-8">{count}{"".join(turns)}</div>')
    return head + _row("".join(map(_result, page.products)))


def _result(product: Product) -> str:
    bold = "font-weight-bold"
    return (
        '<div class="col-lg-12 mx-auto list-group-item"><div class="col-lg-4">'
        f'<img src="{escape(product.image)}" class="result-img"></div><div class="col-lg-8">'
        '<ul class="list-group shadow"><div class="media align-items-lg-center flex-column flex-lg-row p-3">'
        '<div class="media-body order-2 order-lg-1 searched-product">\n'
        f'<h4 class="mt-0 {bold} mb-2 product-asin"><a class="product-link" href="">{escape(product.asin)}</a></h4>\n'
        f'<h4 class="mt-0 {bold} mb-2 product-title">{escape(product.title)}</h4>\n'
        '<div class="d-flex align-items-center justify-content-between mt-1">'
        f'<h5 class="{bold} my-2 product-price">{escape(product.price_text)}</h5></div></div></div></ul></div></div>\n'
    )


def _item(page: Page) -> str:
    product = page.item
    picture = f'<img id="product-image" src="{escape(product.image)}" class="item-page-img">'
    left = _row(picture) + "".join(_option(name, values) for name, values in product.options.items())
    sections = "".join(
        f'<div class="col-sm-3" name="{name}"><form method="post" action="">'
        f'<button class="btn btn-primary" type="submit">{button}</button></form></div>'
        for button, name in zip(
            page.buttons[2:-1], ("description", "bulletpoints", "reviews", "attributes"), strict=False
        )
    )
    middle = (
        f"<h2>{escape(product.title)}</h2>\n<h4>Price: {escape(product.price_text)}</h4>\n<h4>Rating: N.A.</h4>\n"
        + _row(sections)
    )
    buy = _row(_form(page.buttons[-1], "btn-lg purchase"))
    columns = [("col-md-4 mb-4 mb-md-0", left), ("col-md-6", middle), ("col-sm-2", buy)]
    return _row("".join(f'<div class="{kind}">{inner}</div>' for kind, inner in columns))


def _option(name: str, values: tuple[str, ...]) -> str:
    shown = escape(name)
    radios = "".join(
        f'<input type="radio" id="radio_{shown}{number}" name="{shown}" value="{escape(value)}" data-url="">'
        f'<label for="radio_{shown}{number}">{escape(value)}</label>\n'
        for number, value in enumerate(values)
    )
    return _row(f'<h4>{shown}</h4><div class="radio-toolbar">{radios}</div>')


def _script(page: Page) -> str:
    images = json.dumps(dict(page.item.option_images), sort_keys=True).replace("<", "\\u003c")
    for sign in ">&'":
        images = images.replace(sign, f"\\u{ord(sign):04x}")
    return f"<script>\nJSON.parse(`{options_json(page.chosen)}`);\nJSON.parse(`{images}`);\n</script>"


def _section(page: Page) -> str:
    texts = [escape(text) for text in section_texts(page)]
    if page.section == DESCRIPTION:
        parts = {"description": f'<p class="product-info">{texts[0]}</p>'}
    elif page.section == FEATURES:
        parts = {"bulletpoints": _list("product-info", texts)}
    elif page.section == ATTRIBUTES:
        parts = {"description": _list("attribute", texts[:-3])}
    else:
        parts = {"reviews": ""}
    columns = [
        f'<div class="col-sm-6" name="{name}"><div class="card card-body">{inner}</div></div>'
        for name, inner in parts.items()
    ]
    if page.section == ATTRIBUTES:
        facts = zip(("category", "query", "product_category"), texts[-3:], strict=True)
        columns.append(
            f'<div class="col-sm-6" name="description">{"".join(_fact(*fact) for fact in facts)}</div>'
        )
    return _row(f'<div class="col-md-12">{_row("".join(columns))}</div>')


def _list(kind: str, texts: list[str]) -> str:
    return "<ul>" + "".join(f'<li><p class="{kind}">{text}</p></li>' for text in texts) + "</ul>"


def _fact(name: str, text: str) -> str:
    return (
        '<div class="d-flex align-items-center justify-content-between mt-1">'
        f'<h5 class="font-weight-bold my-2 product-{name}">{text}</h5></div>'
    )


def _done(page: Page) -> str:
    def fact(name: str, label: str, text: str = "") -> str:
        return f'<h4 id="{name}">{label}<pre>{escape(text)}</pre></h4>\n'

    bought = fact("asin", "asin", page.item.asin) + fact("options", "options", options_json(page.chosen))
    if page.score is None:
        return (
            '<div class="row"><div id="thankyou" class="text-center"><h1>Thank you for shopping with us!</h1></div>'
            f'<div id="stats" class="text-center"><h2 align="left">Purchased</h2>{bought}</div></div>'
        )
    unknown = {"purchased_attrs": "attrs", "purchased-category": "category", "purchased-query": "query"}
    unknown["purchased-pc"] = "product category"
    target = {"asin": "asin", "options": "options", "attrs": "attrs", "price": "price upper"}
    target |= {"instruction-text": "instuction text", "category": "category", "pc": "product category"}
    target["query"] = "query"
    return (
        '<div class="row"><div id="thankyou" class="text-center"><h1>Thank you for shopping with us!</h1></div>'
        '<div id="stats" class="text-center"><h3 align="mturk_code">Your code: </h3>\n'
        "<p><pre>None</pre> (Paste it in your MTurk interface.)</p>\n"
        '<div style="display:none"><h2 align="left">Purchased</h2><hr class="solid">'
        + bought
        + "".join(fact(name, label, "None") for name, label in unknown.items())
        + '<h2 align="left">Target</h2><hr class="solid">'
        + "".join(fact(f"goal-{name}", label) for name, label in target.items())
        + '<h4>Goal <div id="goal"><pre>None</pre></div></h4><h2 align="left">Reward</h2></div><hr class="solid">'
        f'<h3 id="reward">Your score (min 0.0, max 1.0)<pre>{page.score}</pre></h3>'
        '<h4 hidden>Reward Details <div id="reward_info"><pre>None</pre></div></h4></div></div>'
    )


class _Outline(HTMLParser):
    _COUNTED = ("class", "id", "name", "value", "type")

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self._in_script = False
        self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._flush()
        own = sorted((name, value or "") for name, value in attrs if name in self._COUNTED)
        self.found.append(f"<{tag} {' '.join(f'{name}={value!r}' for name, value in own)}>")
        self._in_script = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self._flush()
        self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.found += (f"json {text}" for text in re.findall(r"JSON\.parse\(`(.*?)`\)", data, re.DOTALL))
        else:
            self._text += data

    def close(self) -> None:
        super().close()
        self._flush()

    def _flush(self) -> None:
        if self._text.strip():
            self.found.append(self._text.strip())
        self._text = ""
