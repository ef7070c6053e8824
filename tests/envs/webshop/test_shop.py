"""Files, pages, actions and rewards on a shop of three products, by hand."""

from __future__ import annotations

import json
import pickle
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.envs.webshop import catalogue as catalogues
from agentgym.envs.webshop import html, nouns
from agentgym.envs.webshop.catalogue import json_items, open_catalogue
from agentgym.envs.webshop.generate import invented_catalogue
from agentgym.envs.webshop.goals import Goal, price_ceiling
from agentgym.envs.webshop.pages import options_json, plain_text, rich_text
from agentgym.envs.webshop.reward import alike, matches, original_matches, score
from agentgym.envs.webshop.session import ORIGINAL, Quirks, read_action
from agentgym.envs.webshop.shop import Shop
from agentgym.errors import TaskError, ToolError, UsageError
from tests.envs.webshop.conftest import row

RUG, PAD, TRAY = "B000000001", "B000000002", "B000000003"
GOAL = Goal(
    RUG, "garden", "rugs", "Wool Rug", "Home › Rugs › Area", "a soft rug", ("soft",), 20.0, ("green",)
)


def visit(catalogue, quirks=ORIGINAL, **kwargs):
    prices = {RUG: 12.5, PAD: 6.0, TRAY: 100.0}
    shop = Shop(catalogue, nouns.nouns_by_rule, quirks=quirks, prices=prices, **kwargs)
    return shop.visit(GOAL, "s", random.Random(0))


# -- files ---------------------------------------------------------------------------------------------------------


def test_products(small):
    assert small.asins == [RUG, PAD, TRAY]
    rug, pad, tray = map(small.product, small.asins)
    assert rug.title == "Wool Rug"  # the first of an id stays
    assert dict(rug.options) == {"color": ("red | blue", "green")}
    assert rug.query == "rugs"
    assert (rug.price_text, pad.price_text, tray.price_text) == ("$12.5", "$5.0 to $7.5", "$100.0")
    assert pad.bullets == ("One text",)
    assert (rug.attributes, pad.attributes, tray.attributes) == (("soft", "non slip"), (), ("DUMMY_ATTR",))
    assert rug.searchable == "wool rug a thing. first point color: red | blue, green"
    assert pickle.loads(pickle.dumps(small)).asins == small.asins


def test_files_are_parsed_once(files, monkeypatch):
    first = open_catalogue(files)
    monkeypatch.setattr(catalogues, "json_items", None)
    assert open_catalogue(files) is first
    (files / "items_ins_v2.json").write_text("{}", encoding="utf-8")
    with pytest.raises(TypeError):  # other content is parsed anew
        open_catalogue(files)


def test_num_products_counts_rows(files):
    assert open_catalogue(files, 4).asins == [RUG, PAD]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("items_shuffle.json", None, "expected items_shuffle.json or items_shuffle_1000.json"),
        ("items_shuffle.json", "{}", "expected a JSON list"),
        ("items_shuffle.json", '[{"asin": "B1"', "cannot read"),
        ("items_shuffle.json", '[{"asin": "B1"}]', "product 'B1': expected the form"),
        ("items_shuffle.json", "[{}]", "expected a product with an 'asin'"),
        ("items_shuffle.json", json.dumps([row("B1", "x", pricing="free")]), "expected a price"),
        ("items_ins_v2.json", "[]", "expected a JSON object by asin, got list"),
    ],
)
def test_bad_files(files, name, text, message):
    if text is None:
        (files / name).unlink()
    else:
        (files / name).write_text(text, encoding="utf-8")
    with pytest.raises(TaskError, match=message):
        open_catalogue(files)


def test_long_lists_are_read_piece_by_piece(tmp_path, monkeypatch):
    rows = [{"n": number, "text": "]},{[ ü"} for number in range(50)]
    path = tmp_path / "list.json"
    path.write_text(json.dumps(rows, ensure_ascii=False, indent=1), encoding="utf-8")
    monkeypatch.setattr(catalogues, "_READ", 7)
    assert list(json_items(path)) == rows


# -- actions and pages ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "read"),
    [
        ("search[Red Shoes]", ("search", "red shoes")),
        ("search[a]b]", ("search", "a]b")),
        ("search[[x]]", ("search[", "x]")),
        ("search[x] and more", ("search", "x")),
        ("search[]", ("", "")),
        ("search[]]", ("search", "]")),
        ("[x]", ("", "")),
        ("search[x\n]", ("", "")),
        ("search", ("", "")),
        ("]" + "[" * 100_000, ("", "")),
    ],
)
def test_grammar(action, read):
    assert read_action(action) == read


@given(st.text(alphabet="ab[]\n ", max_size=12))
def test_grammar_is_that_of_the_originals_expression(text):
    match = re.match(r"(.+)\[(.+)\]", text)
    assert read_action(text) == ((match[1], match[2]) if match else ("", ""))


def test_a_whole_visit(small):
    session = visit(small)
    assert plain_text(session.page) == "WebShop [SEP] Instruction: [SEP] a soft rug [SEP] Search"
    assert list(session.clickables) == ["search"]
    assert not session.act("click[search]").valid
    session.act("search[rug <b>]")
    assert session.url.endswith("/search_results/s/rug+<b>/1")
    assert plain_text(session.page) == (
        "Instruction: [SEP] a soft rug [SEP] Back to Search [SEP] Page 1 (Total results: 2) [SEP] Next > [SEP] "
        "B000000002 [SEP] Rug Pad <b> [SEP] $5.0 to $7.5 [SEP] B000000001 [SEP] Wool Rug [SEP] $12.5"
    )
    session.act("click[next >]")
    assert list(session.clickables) == ["back to search", "< prev", "next >"]
    session.act("click[< prev]")
    session.act(f"click[{RUG.lower()}]")
    session.act("click[green]")
    assert rich_text(session.page, session.url, session.visited) == (
        "You have clicked green.\nInstruction:\na soft rug\n"
        "[button] Back to Search [button_]\n[button] < Prev [button_]\n"
        "color\n  [button] red | blue [button_]\n  [clicked button] green [clicked button_]\nWool Rug\nPrice: $12.5\n"
        "Rating: N.A.\n[button] Description [button_]\n[button] Features [button_]\n[button] Reviews [button_]\n"
        "[button] Buy Now [button_]\n"
    )
    session.act("click[features]")
    assert "First point [SEP] Second point" in plain_text(session.page)
    session.act("click[< prev]")
    assert session.options == {"color": "green"}
    outcome = session.act("click[buy now]")
    assert outcome == (1.0, True, True)
    assert session.clickables == {}


def test_the_address_can_mislead(small):
    session = visit(small)
    session.act("search[rug search_results]")
    session.act(f"click[{RUG.lower()}]")
    session.act("click[< prev]")
    # The searched word makes the item's page pass for one of results, so "< Prev" goes to the page before the first.
    assert (session.page.number, session.page.products) == (0, ())


def test_default_rules_mend_the_quirks(small):
    session = visit(small, Quirks())
    session.act("search[rug]")
    assert list(session.clickables) == [
        "back to search",
        "b000000001",
        "b000000002",
    ]  # nothing after the last page
    assert not session.act("search[tray]").valid
    session.act("click[back to search]")
    session.act("search[<c> grocery]")
    assert session.page.total == 0
    session.act("click[back to search]")
    session.act("search[rug]")
    session.act(f"click[{RUG.lower()}]")
    session.act("click[green]")
    assert "green (chosen)" in plain_text(session.page)
    session.act("click[buy now]")
    assert "score" not in plain_text(session.page).lower()


def test_special_words(small):
    session = visit(small)
    session.act("search[<c> grocery]")
    assert [product.asin for product in session.page.products] == [TRAY]
    session.act("search[<q> rugs]")
    assert [product.asin for product in session.page.products] == [RUG, PAD]
    for words in ("<a> soft", "<r>", "<c>"):
        with pytest.raises(ToolError):
            session.act(f"search[{words}]")


def test_an_option_called_like_a_button(files):
    rows = [row(RUG, "Rug", customization_options={"Kind": [{"value": "Features"}, {"value": "Soft"}]})]
    (files / "items_shuffle.json").write_text(json.dumps(rows), encoding="utf-8")
    session = visit(open_catalogue(files))
    session.act("search[rug]")
    session.act(f"click[{RUG.lower()}]")
    assert list(session.clickables)[3:] == ["features", "reviews", "buy now", "soft"]
    session.act("click[features]")
    assert session.page.name == "item_sub_page"


def test_html_says_what_text_says(small):
    session = visit(small, show_attrs=True)
    for action in (
        "search[rug]",
        f"click[{PAD.lower()}]",
        "click[green]",
        "click[attributes]",
        "click[< prev]",
        "click[buy now]",
    ):
        session.act(action)
        texts = [
            part
            for part in html.outline(html.render(session.page))
            if part == "< Prev" or not part.startswith(("<", "json "))
        ]
        assert texts == [text for text in plain_text(session.page).split(" [SEP] ") if text], action
    assert options_json({"a": "5' <x>"}) == '{"a": "5\\u0027 \\u003cx\\u003e"}'


# -- rewards -------------------------------------------------------------------------------------------------------


def test_ceilings():
    rng = random.Random(0)
    drawn = {price_ceiling(12.0, rng)[0] for _ in range(100)}
    assert drawn == {30.0, 40.0, 50.0}  # the larger of two out of 20, 30, 40, 50
    assert price_ceiling(980.0, rng) == (1000000, "")
    assert price_ceiling(975.0, rng) == (990.0, ", and price lower than 990.00 dollars")


def bought(catalogue, asin, options, price=10.0, goal=GOAL, colours=True):
    product = catalogue.product(asin)
    return score(product, goal, price=price, options=options, nouns=nouns.nouns_by_rule, colours=colours)


def test_parts_of_the_reward(small):
    assert bought(small, RUG, {"color": "green"}).total == 1.0
    # One of attribute, option and price is missing each time.
    assert bought(small, RUG, {}).total == pytest.approx(2 / 3)
    assert bought(small, RUG, {"color": "green"}, price=20.01).total == pytest.approx(2 / 3)
    # The pad shares one of two nouns, the query and two shelves; it is not known to be soft.
    pad = bought(small, PAD, {"color": "green"})
    assert (pad.r_type, pad.title_score, pad.r_att) == (1.0, 0.5, 0.0)
    # The tray shares no noun, which overrules everything.
    assert bought(small, TRAY, {"color": "green"}).total == 0.0


def test_colours_by_substring_are_a_quirk():
    assert original_matches(["sky blue"], ["navy blue"]) == 1
    assert original_matches(["layered"], ["red"]) == 1
    assert original_matches(["green"], ["dark green", "green tea"]) == 1  # "dark" comes first in the list
    assert matches(["sky blue"], ["navy blue"]) == 0
    assert matches(["green"], ["green", "green tea"]) == 1
    assert matches(["green tea", "green"], ["green", "green tea"]) == 2
    # Synthetic goals carry the option's name, of which the original compares the words.
    assert original_matches(["large"], [("size", "large")]) == 1
    assert matches(["large"], [("size", "large")]) == 1


def test_alike():
    assert alike("non slip", "Non-Slip")
    assert alike("machine wash", "machine wash cold")
    assert not alike("cotton", "soft")
    assert not alike("", "x")


def test_nouns_by_rule():
    assert nouns.nouns_by_rule("Wool Rug for Kids, Easy Clean (Red, 260ml) 2 Pack") == (
        "wool", "rug", "kids", "easy", "clean", "red", "260ml", "pack",
    )  # fmt: skip
    assert nouns.nouns_by_rule("Face Cream, Dermatologist Tested") == ("face", "cream", "dermatologist")
    assert nouns.choose("rule")[0] == "rule"
    with pytest.raises(UsageError, match="expected pos"):
        nouns.choose("nltk")


# -- invented catalogues -------------------------------------------------------------------------------------------


def test_invented_products():
    ten, thirty = invented_catalogue(10, 1), invented_catalogue(30, 1)
    assert list(thirty.products())[:10] == list(ten.products())  # a larger one begins with the smaller
    assert invented_catalogue(10, 2).product(ten.asins[0]) != ten.product(ten.asins[0])
    assert len(set(invented_catalogue(2000, 1).asins)) == 2000
    assert {product.category for product in invented_catalogue(2000, 1).products()} == {
        "beauty", "electronics", "fashion", "garden", "grocery",
    }  # fmt: skip
