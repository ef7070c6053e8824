"""A site of several views behind one file: addresses, Back, titles, a view for wrong addresses."""

from agentgym.envs.web.tasks.script import NARROW, Draft, Script, at, css, generator, item, money, shows
from agentgym.envs.web.tasks.words import GOODS, SENTENCES


def make(seed: int) -> Draft:
    """Five articles with their prices and texts, and the name of the site, are drawn."""
    draw = generator("router", seed)
    names = draw.sample(GOODS, 5)
    prices, texts = draw.sample(range(120, 9000, 11), 5), draw.sample(SENTENCES, 5)
    site = draw.choice(("Harbour Store", "Hill Market", "North Depot"))
    listed = " ".join(f"{n}, {money(p)}: {t!r}" for n, p, t in zip(names, prices, texts, strict=True))
    prompt = (
        f"Build the site '{site}' with views that follow the address' fragment, without loading anything:"
        " '#/' (or none) is Home, '#/items' a list, '#/items/NAME' one article, '#/about' About. Links"
        " [data-testid=link-home], [data-testid=link-items] and [data-testid=link-about] are always"
        " there; that of the present view carries aria-current=page (Items also for an article) and looks"
        " different. [data-testid=heading] is the view's heading: Home, Items, the article's name, About,"
        f" or 'Not found'. The document's title begins with it, followed by ' - {site}'. Items lists a"
        f" link [data-testid=item] for each article, its name alone. Articles: {listed} An article's view"
        " shows price [data-testid=price], text [data-testid=text], a button [data-testid=like] and"
        " [data-testid=likes], how often it was clicked for this article; Home shows the sum of all likes"
        " in [data-testid=all-likes]. Likes survive changes of view and a reload. Any other address shows"
        " 'Not found' and, in [data-testid=address], the fragment. A reload and the browser's Back and"
        " Forward keep to the address. After a change of view the heading has the focus (tabindex -1)."
    )
    items = [
        item("F1", "functionality", 2, "Links change the view and the address"),
        item("F2", "functionality", 2, "An article's view shows its name, price and text"),
        item("F3", "functionality", 1, "Back and Forward change the view", "F1"),
        item("F4", "functionality", 1, "A reload keeps the view", "F2"),
        item("F5", "functionality", 2, "Likes are counted for each article, summed up, and kept"),
        item("F6", "functionality", 1, "A wrong address is told", "F2"),
        item("C1", "content", 1, "The list names all articles in order", "F1"),
        item("C2", "content", 1, "The title follows the view", "F1"),
        item("V1", "visual", 1, "The present link looks different", "F1"),
        item("L1", "layout", 1, "Every view fits a narrow screen", "F1"),
        item("U1", "ux", 1, "aria-current follows, and the heading gets the focus", "F1"),
        item("U2", "ux", 1, "Heading, links and text are readable", "F2"),
        item("T1", "technical", 1, "No errors and no requests", "F1"),
    ]

    main = Script("main")
    main.expect("F1", "text", "heading", equals="Home")
    main.expect("U1", "attr", "link-home", key="aria-current", equals="page")
    main.click("link-items")
    main.expect("F1", "text", "heading", equals="Items")
    main.expect("F1", "hash", equals="/items")
    main.expect("C1", "texts", "item", equals=names)
    main.expect("C2", "title", equals=f"Items - {site}")
    main.expect("U1", "attr", "link-items", key="aria-current", equals="page")
    main.expect("U1", "attr_bool", "link-home", key="aria-current", equals=False)
    main.expect("U1", "focused", "heading")
    main.expect("V1", "differs", "link-items", key="[data-testid=link-about]")
    main.click(at("item", has_text=names[3]))
    main.expect("F2", "text", "heading", equals=names[3])
    main.expect("F2", "text", "price", **shows(money(prices[3])))
    main.expect("F2", "text", "text", contains=texts[3])
    main.expect("C2", "title", equals=f"{names[3]} - {site}")
    main.expect("U1", "attr", "link-items", key="aria-current", equals="page")
    main.readable("U2", "heading", "text", "link-about", "price")
    main.act("reload")
    main.expect("F4", "text", "heading", equals=names[3])
    main.expect("F4", "text", "price", **shows(money(prices[3])))
    main.click("link-about")
    main.expect("F1", "text", "heading", equals="About")
    main.act("back")
    main.expect("F3", "text", "heading", equals=names[3])
    main.act("back")
    main.expect("F3", "text", "heading", equals="Items")
    main.act("forward")
    main.expect("F3", "text", "heading", equals=names[3])
    main.clean("T1")

    likes = Script("likes")
    likes.expect("F5", "text", "all-likes", **shows(0))
    for number, clicks in ((0, 2), (2, 3)):
        likes.click("link-items")
        likes.click(at("item", has_text=names[number]))
        likes.expect("F5", "text", "likes", **shows(0))
        for _ in range(clicks):
            likes.click("like")
        likes.expect("F5", "text", "likes", **shows(clicks))
    likes.act("reload")
    likes.expect("F5", "text", "likes", **shows(3))
    likes.click("link-home")
    likes.expect("F5", "text", "all-likes", **shows(5))

    narrow = Script("narrow", NARROW)
    narrow.fits("L1")
    narrow.click("link-items")
    narrow.expect("L1", "count", "item", equals=5)
    narrow.fits("L1")
    narrow.click(at("item", nth=0))
    narrow.expect("L1", "visible", "like")
    narrow.fits("L1")

    # An address that is not there is reached by a link of the page's own: a fragment cannot be typed here.
    wrong = Script("wrong address")
    wrong.click("link-items")
    wrong.click(at("item", has_text=names[1]))
    wrong.expect("F6", "text", "heading", equals=names[1])
    wrong.expect("F6", "count", css("a[href='#/nowhere']"), equals=1)
    wrong.click(css("a[href='#/nowhere']"))
    wrong.expect("F6", "text", "heading", equals="Not found")
    wrong.expect("F6", "text", "address", contains="/nowhere")
    data = {
        "site": site,
        "articles": [
            {"name": n, "cents": p, "text": t} for n, p, t in zip(names, prices, texts, strict=True)
        ],
    }
    prompt += " Every article's view has a link to '#/nowhere', for trying that."
    return Draft(prompt, items, [main, likes, narrow, wrong], data)
