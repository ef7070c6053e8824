"""A shop with a cart: quantities, a coupon, totals that survive a reload."""

import re

from agentgym.envs.web.tasks.script import (
    NARROW,
    Draft,
    Script,
    at,
    generator,
    item,
    mentions,
    money,
    rounded,
    shows,
)
from agentgym.envs.web.tasks.words import GOODS


def make(seed: int) -> Draft:
    """Five products, their prices and the coupon are drawn."""
    draw = generator("cart", seed)
    names = draw.sample(GOODS, 5)
    prices = draw.sample(range(205, 2000, 7), 5)
    coupon, percent = f"SAVE{draw.randrange(100, 999)}", draw.choice((10, 20, 25, 50))
    listed = ", ".join(f"{name} {money(price)}" for name, price in zip(names, prices, strict=True))
    prompt = (
        f"Build a small shop. Products and prices: {listed}. Each is an element [data-testid=product] with"
        " its name, its price and a button [data-testid=add]. Adding puts a line [data-testid=line] into"
        " the cart with the name, a number field [data-testid=quantity], the line's price"
        " [data-testid=line-total] and a button [data-testid=remove]; adding the same product again"
        " raises its quantity. [data-testid=total] shows the sum with two decimals, [data-testid=empty] a"
        " note while the cart is empty. In [data-testid=coupon], with the button [data-testid=apply], the"
        f" code {coupon} takes {percent}% off the total (round to cents), anything else shows a message in"
        " [data-testid=coupon-error]. The cart survives a reload (localStorage). On a wide screen the"
        " products stand side by side."
    )
    items = [
        item("F1", "functionality", 2, "Adding a product puts a line with its price into the cart"),
        item("F2", "functionality", 2, "Adding it again raises the quantity, and the total follows"),
        item("F3", "functionality", 2, "A changed quantity changes the line and the total"),
        item("F4", "functionality", 1, "Remove takes out exactly that line"),
        item("F5", "functionality", 2, "The coupon lowers the total by its percentage", "F1"),
        item("F6", "functionality", 1, "A wrong coupon is refused with a message", "F1"),
        item("F7", "functionality", 2, "The cart survives a reload"),
        item("C1", "content", 1, "All products are shown with their prices", "F1"),
        item("C2", "content", 1, "The empty cart says so", "F1"),
        item("V1", "visual", 1, "Lines, products and total are readable", "F1"),
        item("L1", "layout", 1, "Products stand side by side on a wide screen", "F1"),
        item("L2", "layout", 1, "A full cart fits a narrow screen", "F1"),
        item("U1", "ux", 1, "The quantity field has a name, and a product can be added by keyboard"),
        item("T1", "technical", 1, "No errors and no requests while shopping", "F1"),
    ]

    def add(number: int) -> dict[str, object]:
        return at("add", within=at("product", has_text=names[number]))

    def line(number: int) -> dict[str, object]:
        return at("line", has_text=names[number])

    main = Script("main")
    for name, price in zip(names, prices, strict=True):
        main.expect("C1", "count", at("product", has_text=name), equals=1)
        main.expect("C1", "text", at("product", has_text=name), **mentions(money(price)))
    main.expect("L1", "side_by_side", "product")
    main.expect("C2", "visible", "empty")
    main.expect("F1", "count", "line", equals=0)
    main.click(add(0))
    main.expect("F1", "count", line(0), equals=1)
    main.expect("F1", "text", at("line-total", within=line(0)), **shows(money(prices[0])))
    main.expect("F1", "text", "total", **shows(money(prices[0])))
    main.expect("C2", "hidden", "empty")
    main.click(add(0))
    main.expect("F2", "count", "line", equals=1)
    main.expect("F2", "value", at("quantity", within=line(0)), equals="2")
    main.expect("F2", "text", "total", **shows(money(2 * prices[0])))
    main.click(add(1))
    main.fill(at("quantity", within=line(1)), 3)
    main.expect("F3", "text", at("line-total", within=line(1)), **shows(money(3 * prices[1])))
    main.expect("F3", "text", "total", **shows(money(2 * prices[0] + 3 * prices[1])))
    main.expect("U1", "named", "quantity")
    main.readable("V1", "product", "line", "total")
    main.act("reload")
    main.expect("F7", "value", at("quantity", within=line(1)), equals="3")
    main.expect("F7", "text", "total", **shows(money(2 * prices[0] + 3 * prices[1])))
    main.clean("T1")

    remove = Script("remove")
    remove.click(add(0))
    remove.click(add(1))
    remove.expect("F4", "count", "line", equals=2)
    remove.click(at("remove", within=line(0)))
    remove.expect("F4", "count", "line", equals=1)
    remove.expect("F4", "texts", "line", contains=names[1])
    remove.expect("F4", "text", "total", **shows(money(prices[1])))

    coupons = Script("coupons")
    coupons.click(add(2))
    coupons.act("fill", "coupon", value="{{t1}}")
    coupons.expect("F6", "hidden", at("coupon-error"))
    coupons.click("apply")
    coupons.expect("F6", "visible", "coupon-error")
    coupons.expect("F6", "text", "total", **shows(money(prices[2])))
    coupons.act("fill", "coupon", value=coupon)
    coupons.click("apply")
    # Half a cent may be rounded either way.
    either = "|".join(re.escape(money(cents)) for cents in rounded(prices[2] * (100 - percent), 100))
    coupons.expect("F5", "text", "total", regex=rf"^\D*({either})\D*$")

    narrow = Script("narrow", NARROW)
    for number in range(3):
        narrow.click(add(number))
    narrow.expect("L2", "count", "line", equals=3)
    narrow.fits("L2")

    keyboard = Script("keyboard")
    keyboard.act("tab_to", add(0))
    keyboard.expect("U1", "count", "line", equals=0)
    keyboard.press("Enter")
    keyboard.expect("U1", "count", line(0), equals=1)

    data = {
        "products": [{"name": name, "cents": cents} for name, cents in zip(names, prices, strict=True)],
        "coupon": coupon,
        "percent": percent,
    }
    return Draft(prompt, items, [main, remove, coupons, narrow, keyboard], data)
