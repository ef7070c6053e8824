// What is read from a page. Evaluated in an isolated world, whose prototypes the page cannot reach.
// The DOM is shared all the same, and elements named "innerText" or "querySelectorAll" shadow properties of forms and of
// the document in every world (DOM clobbering). So natives are taken from the prototypes, never from an element.
(() => {
  const getter = (proto, name) => {
    const {get} = Object.getOwnPropertyDescriptor(proto, name);
    return (node) => get.call(node);
  };
  const method = (proto, name) => {
    const native = proto[name];
    return (node, ...rest) => native.apply(node, rest);
  };
  const root = getter(Document.prototype, 'documentElement');
  const bodyOf = getter(Document.prototype, 'body');
  const activeElement = getter(Document.prototype, 'activeElement');
  const scrollerOf = getter(Document.prototype, 'scrollingElement');
  const titleOf = getter(Document.prototype, 'title');
  const queryAll = method(Document.prototype, 'querySelectorAll');
  const byId = method(Document.prototype, 'getElementById');
  const byTag = method(Document.prototype, 'getElementsByTagName');
  const elementAt = method(Document.prototype, 'elementFromPoint');
  const walkerOf = method(Document.prototype, 'createTreeWalker');
  const parent = getter(Node.prototype, 'parentElement');
  const contains = method(Node.prototype, 'contains');
  const textContent = getter(Node.prototype, 'textContent');
  const innerText = getter(HTMLElement.prototype, 'innerText');
  const childCount = getter(Element.prototype, 'childElementCount');
  const scrollWidth = getter(Element.prototype, 'scrollWidth');
  const scrollHeight = getter(Element.prototype, 'scrollHeight');
  const boxOf = method(Element.prototype, 'getBoundingClientRect');
  const shows = method(Element.prototype, 'checkVisibility');
  const intoView = method(Element.prototype, 'scrollIntoView');
  const attribute = method(Element.prototype, 'getAttribute');
  const hasAttribute = method(Element.prototype, 'hasAttribute');
  const isChecked = getter(HTMLInputElement.prototype, 'checked');
  const style = (node) => getComputedStyle(node);

  // A property as the element's own interface has it; undefined where it has none.
  const property = (node, name) => {
    for (let proto = Object.getPrototypeOf(node); proto; proto = Object.getPrototypeOf(proto)) {
      const found = Object.getOwnPropertyDescriptor(proto, name);
      if (found) return found.get ? found.get.call(node) : found.value;
    }
    return undefined;
  };

  // SVG has no innerText.
  const rendered = (node) => (node instanceof HTMLElement ? innerText(node) : textContent(node));
  const text = (node) => rendered(node).trim();
  const filled = (string) => Boolean(string && string.trim());
  // As Playwright's text filter does it, without zero-width spaces and soft hyphens.
  const fold = (string) => string.replace(/[\u200b\u00ad]/g, '').replace(/\s+/g, ' ').trim().toLowerCase();

  // A function of an element that `step` makes of the element and of its parent's value, `first` above the root. Values
  // are kept until the read is over, since elements share their ancestors.
  const memories = [];
  const inherited = (first, step) => {
    const kept = new Map();
    memories.push(kept);
    return (node) => {
      const below = [];
      let each = node;
      for (; each && !kept.has(each); each = parent(each)) below.push(each);
      let value = each ? kept.get(each) : first;
      for (const next of below.reverse()) kept.set(next, (value = step(next, value)));
      return value;
    };
  };

  // -- colours: [red, green, blue] of 255 in sRGB, then alpha of 1 --------------------------------------------------
  const colours = new Map();
  let canvas = null;
  const parseColour = (css) => {
    const plain = /^rgba?\(([\d.]+), ([\d.]+), ([\d.]+)(?:, ([\d.]+))?\)$/.exec(css);
    if (plain) return [+plain[1], +plain[2], +plain[3], plain[4] === undefined ? 1 : +plain[4]];
    canvas ??= new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = css;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const colour = (css) => {
    if (!colours.has(css)) colours.set(css, parseColour(css));
    return colours.get(css);
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((value, k) => value * a + below[k] * (1 - a));
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  // What lies behind an element; null where an image is on the way.
  const background = inherited([255, 255, 255], (node, below) => {
    const {backgroundImage, backgroundColor} = style(node);
    if (backgroundImage !== 'none') return null;
    const layer = colour(backgroundColor);
    if (layer[3] >= 1) return layer.slice(0, 3);
    return below && over(layer, below);
  });
  const contrast = (node) => {
    const below = background(node);
    if (!below) return null;
    const [dark, light] = [luminance(over(colour(style(node).color), below)), luminance(below)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };

  // -- seen ---------------------------------------------------------------------------------------------------------
  const opacity = inherited(1, (node, above) => above * parseFloat(style(node).opacity));
  let edges = null; // of the document area, in viewport coordinates, while a read lasts
  const documentEdges = () => {
    const html = root(document);
    const scroller = scrollerOf(document) ?? html; // body where there is no doctype: html does not tell how far then
    return {
      left: 1 - scrollX,
      top: 1 - scrollY,
      right: Math.max(scrollWidth(html), scrollWidth(scroller), innerWidth) - scrollX,
      bottom: Math.max(scrollHeight(html), scrollHeight(scroller), innerHeight) - scrollY,
    };
  };
  const onDocument = (box) => {
    const {left, top, right, bottom} = (edges ??= documentEdges());
    return box.right > left && box.bottom > top && box.left < right && box.top < bottom;
  };
  const seen = (node) => {
    if (!shows(node, {opacityProperty: true, visibilityProperty: true})) return false;
    const box = boxOf(node);
    if (box.width < 3 || box.height < 3 || !onDocument(box)) return false;
    if (opacity(node) < 0.15 || parseFloat(style(node).fontSize) < 6) return false;
    if (childCount(node) > 0 || !text(node)) return true;
    const ratio = contrast(node);
    return ratio === null || ratio >= 1.2;
  };

  // -- targets ------------------------------------------------------------------------------------------------------
  // `loose` is the text filter of actions: case and white space do not count, hidden text does.
  const resolve = (target, loose) => {
    let found = [...queryAll(document, target.css)];
    if (target.within) {
      const outer = new Set(resolve(target.within, loose));
      const inside = (node) => {
        for (let each = parent(node); each; each = parent(each)) if (outer.has(each)) return true;
        return false;
      };
      found = found.filter(inside);
    }
    if (target.has_text != null) {
      const wanted = loose ? fold(target.has_text) : target.has_text;
      found = found.filter((node) => (loose ? fold(textContent(node)) : rendered(node)).includes(wanted));
    }
    return target.nth == null ? found : found.slice(target.nth, target.nth + 1);
  };

  // -- the kinds of value -------------------------------------------------------------------------------------------
  const checked = (node) =>
    (node instanceof HTMLInputElement && isChecked(node)) ||
    attribute(node, 'aria-checked') === 'true' ||
    attribute(node, 'aria-pressed') === 'true';
  const labelsOf = (node) => [...(property(node, 'labels') ?? [])];
  const labelledBy = (node) =>
    (attribute(node, 'aria-labelledby') ?? '').split(/\s+/).map((id) => id && byId(document, id)).filter(Boolean);
  const named = (node) =>
    filled(attribute(node, 'aria-label')) ||
    labelsOf(node).some(text) ||
    labelledBy(node).length > 0 ||
    (!(node instanceof HTMLInputElement) && filled(text(node))) ||
    filled(attribute(node, 'title'));
  const hit = (node) => {
    intoView(node, {block: 'center', inline: 'center', behavior: 'instant'});
    const box = boxOf(node);
    const top = elementAt(document, box.left + box.width / 2, box.top + box.height / 2);
    return top !== null && (contains(node, top) || contains(top, node));
  };
  const struck = (node) => {
    const walker = walkerOf(document, node, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      if (!filled(textContent(walker.currentNode))) continue;
      for (let each = parent(walker.currentNode); each; each = each === node ? null : parent(each)) {
        if (style(each).textDecorationLine.includes('line-through')) return true;
      }
    }
    return false;
  };
  const cssName = (key) => {
    if (key.startsWith('--')) return key;
    if (key === 'cssFloat') return 'float';
    return key.replace(/^webkit(?=[A-Z])/, '-webkit').replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  };
  const looks = (node) => {
    const {backgroundColor, color, fontWeight, borderLeftColor, borderLeftWidth} = style(node);
    return [backgroundColor, color, fontWeight, borderLeftColor, borderLeftWidth];
  };
  const differs = (node, css) => {
    const other = resolve({css}, false).find(seen);
    if (!other) return null;
    const others = looks(other);
    return looks(node).some((look, k) => look !== others[k]);
  };
  const rect = (node) => {
    const {x, y, width, height} = boxOf(node);
    return {x, y, w: width, h: height};
  };
  const decoded = (fragment) => {
    try {
      return decodeURIComponent(fragment);
    } catch {
      return fragment; // "%" and no number after it
    }
  };
  const least = (numbers) => (numbers.length ? Math.min(...numbers) : null);
  // Whether each box but the first fits its predecessor; false for fewer than two.
  const inRow = (nodes, fits) => {
    const boxes = nodes.map((node) => boxOf(node));
    return boxes.length > 1 && boxes.slice(1).every((box, k) => fits(box, boxes[k], boxes[0]));
  };

  const ofPage = {
    page_text: () => innerText(bodyOf(document)),
    hash: () => decoded(location.hash.slice(1)),
    overflow_x: () => Math.max(scrollWidth(root(document)), scrollWidth(bodyOf(document))) - innerWidth,
    storage_len: () => localStorage.length,
    title: () => titleOf(document),
    lang: () => property(root(document), 'lang'),
  };
  // Of all matches, seen or not.
  const ofAll = {
    count_all: (all) => all.length,
    attr_any: (all, key) => (all.length ? attribute(all[0], key) : null),
    focused_any: (all) => all.includes(activeElement(document)),
  };
  // Of the seen matches.
  const ofSeen = {
    hidden: (nodes) => nodes.length === 0,
    count: (nodes) => nodes.length,
    texts: (nodes) => nodes.map(text),
    named: (nodes) => (nodes.length ? nodes.every(named) : null),
    contrast: (nodes) => least(nodes.map(contrast).filter((ratio) => ratio !== null)),
    min_size: (nodes) => least(nodes.map((node) => Math.min(boxOf(node).width, boxOf(node).height))),
    side_by_side: (nodes) =>
      inRow(nodes, (box, last, first) => box.left >= last.right - 1 && Math.abs(box.top - first.top) < 40),
    stacked: (nodes) => inRow(nodes, (box, last) => box.top >= last.bottom - 1),
  };
  // Of the first seen match.
  const ofFirst = {
    visible: hit,
    text,
    text_or_none: text,
    value: (node) => property(node, 'value') ?? null,
    checked,
    attr: attribute,
    attr_bool: hasAttribute,
    style: (node, key) => style(node).getPropertyValue(cssName(key)),
    focused: (node) => contains(node, activeElement(document)),
    focused_within: (node) =>
      activeElement(document) !== bodyOf(document) && contains(node, activeElement(document)),
    focused_within_or_chrome: (node) => {
      const active = activeElement(document);
      return contains(node, active) || [null, bodyOf(document), root(document)].includes(active);
    },
    named_box: (node) => filled(attribute(node, 'aria-label')) || labelledBy(node).some(text),
    label_visible: (node) => [...labelsOf(node), ...labelledBy(node)].some((label) => seen(label) && filled(text(label))),
    struck,
    font_px: (node) => parseFloat(style(node).fontSize),
    rect,
    inside_x: (node) => boxOf(node).left >= -1 && boxOf(node).right <= innerWidth + 1,
    differs,
  };
  const withoutFirst = {
    visible: false,
    text_or_none: '',
    focused: false,
    focused_within: false,
    focused_within_or_chrome: false,
  };

  const valueOf = (kind, all, key) => {
    if (kind in ofAll) return ofAll[kind](all, key);
    if (kind in ofSeen) return ofSeen[kind](all.filter(seen));
    const first = all.find(seen);
    return first ? ofFirst[kind](first, key) : (withoutFirst[kind] ?? null);
  };

  // Half of a surrogate pair becomes U+FFFD, as on the screen: nothing after us could encode it.
  const wellFormed = (value) => {
    if (Array.isArray(value)) return value.map(wellFormed);
    return typeof value === 'string' ? value.toWellFormed() : value;
  };

  globalThis.read = ({kind, target, key, loose}) => {
    for (const kept of memories) kept.clear();
    edges = null;
    const all = target ? resolve(target, loose) : [];
    return {
      value: wellFormed(kind in ofPage ? ofPage[kind]() : valueOf(kind, all, key)),
      matched: target ? all.length : null,
      nodes: byTag(document, '*').length,
    };
  };
})();
