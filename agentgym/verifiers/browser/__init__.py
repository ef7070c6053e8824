"""Pages in a real browser that trusts them with nothing: no network, no files, no say in what is read of them.

`open_pool()` gives browsers for any thread; `BrowserPool.run` runs a web task's scenarios on a page and returns the
trace, `BrowserPool.preview` shows a page. What a trace is worth says `agentgym.verifiers.web`.
"""

from __future__ import annotations

from agentgym.errors import MissingDependency

try:
    import playwright  # noqa: F401
except ModuleNotFoundError:
    raise MissingDependency(
        "judging pages needs the package playwright: pip install 'agentgym-suite[web]'"
    ) from None

from agentgym.verifiers.browser.delivery import read_page
from agentgym.verifiers.browser.pool import BrowserPool, open_pool
from agentgym.verifiers.browser.preview import Preview
from agentgym.verifiers.browser.process import Browser

__all__ = ["Browser", "BrowserPool", "Preview", "open_pool", "read_page"]
