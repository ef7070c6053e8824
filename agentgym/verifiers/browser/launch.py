"""Starting a browser that can neither reach a network nor outlive us.

Where bubblewrap works the browser runs in namespaces of its own: no network but a loopback of its own, nothing of the
host's files but programs and fonts, all of its processes gone with the first. Elsewhere its own switches close the
network, and Playwright ends it. Chromium's own sandbox around each page stays on, but for root without bubblewrap,
for whom Chromium does not start with it.
"""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from playwright.async_api import Browser, Playwright
from playwright.async_api import Error as PlaywrightError

from agentgym.errors import InfrastructureError, MissingDependency
from agentgym.sandbox import system_folders, usr_links

_START_MS = 60_000
_DATA_KB = 2 << 20  # of private memory per process. Not of addresses: V8 reserves terabytes it never touches
_TMP_BYTES = 512 << 20  # of files and shared memory
_HEAP_MB = 512  # of JavaScript objects
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")

# Playwright's own switches on Linux, without those that tell the page that it is automated. A reload asks for the page
# again (no back-forward cache, no HTTPS upgrades), timers run as on a screen, a page may open windows as it likes.
_SWITCHES = """
--headless --hide-scrollbars --mute-audio --no-first-run --no-startup-window --remote-debugging-pipe
--disable-field-trial-config --disable-background-networking --disable-background-timer-throttling
--disable-backgrounding-occluded-windows --disable-back-forward-cache --disable-breakpad --disable-component-update
--disable-default-apps --disable-dev-shm-usage --disable-extensions --disable-hang-monitor
--disable-ipc-flooding-protection --disable-popup-blocking --disable-prompt-on-repost --disable-renderer-backgrounding
--disable-sync --disable-stack-profiler --disable-search-engine-choice-screen --no-default-browser-check
--no-service-autorun --password-store=basic --use-mock-keychain --metrics-recording-only --allow-pre-commit-input
--force-color-profile=srgb --enable-unsafe-swiftshader --unsafely-disable-devtools-self-xss-warnings
--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4
--disable-features=AvoidUnnecessaryBeforeUnloadCheckSync,DestroyProfileOnBrowserClose,HttpsUpgrades,MediaRouter,\
HttpsFirstBalancedModeAutoEnable,PaintHolding,ThirdPartyStoragePartitioning,OptimizationHints,\
AvoidCorsURLLoaderRestartOnRedirect,NetworkTimeServiceQuerying,PreconnectToSearch
--enable-features=CDPScreenshotNewSurface,SkipListAccountsWithoutGaiaCookies
--disable-blink-features=AutomationControlled
""".split()

# No name resolves, every connection goes by a proxy that has none, and WebRTC may not go around it by UDP: the one
# spelling is headless-shell's, the other Chrome's, and each ignores the other's.
_NO_NETWORK = (
    "--proxy-server=http://nobody.invalid:9",
    "--proxy-bypass-list=<-loopback>",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
)

# The shell says which process group is the browser's, and bounds the memory of what it becomes.
_START = f'echo $$ > "$1"; shift; ulimit -d {_DATA_KB}; exec "$@"'


class Running:
    """A browser with its processes.

    Attributes:
        browser: Playwright's handle.
        network: what keeps it from the network: "namespace" or "switches".
    """

    def __init__(self, browser: Browser, group: int, network: str) -> None:
        self.browser = browser
        self.network = network
        self._group = group
        self._alive = os.pidfd_open(group)  # so that its number is never another's

    def kill(self) -> None:
        """End all its processes at once."""
        if self._alive >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._alive, 0)
                os.killpg(self._group, signal.SIGKILL)
            os.close(self._alive)
            self._alive = -1


async def launch(playwright: Playwright, folder: Path) -> Running:
    """Start a browser.

    Args:
        playwright: the driver that is to speak with it.
        folder: an empty one, for the browser's files where it has no namespace for them.

    Raises:
        MissingDependency: there is no browser.
        InfrastructureError: it does not start.
    """
    program = find_browser(playwright)
    walls = await asyncio.to_thread(_walls, str(Path(program).resolve().parent))
    profile = "/tmp/profile" if walls else str(folder / "profile")
    switches = [*_SWITCHES, *_NO_NETWORK, f"--js-flags=--max-old-space-size={_HEAP_MB}"]
    if os.getuid() == 0 and not walls:
        switches.append("--no-sandbox")
    group_file = folder / "group"
    command = [str(group_file), *walls, program, *switches, f"--user-data-dir={profile}"]
    try:
        browser = await playwright.chromium.launch(
            executable_path="/bin/sh",
            args=["-c", _START, "sh", *command],
            ignore_default_args=True,
            env={"PATH": os.defpath, "LANG": "C.UTF-8", "HOME": "/tmp" if walls else str(folder)},
            timeout=_START_MS,
        )
        return Running(browser, int(group_file.read_text()), "namespace" if walls else "switches")
    except (PlaywrightError, OSError, ValueError) as error:
        raise InfrastructureError(f"the browser {program} does not start: {first_line(error)}") from error


def find_browser(playwright: Playwright) -> str:
    """The system's Chromium, the small one first, else the one Playwright brought.

    Raises:
        MissingDependency: there is none; names the commands that bring one.
    """
    for found in (*map(shutil.which, NAMES), playwright.chromium.executable_path):
        if found and os.path.exists(found):
            return found
    raise MissingDependency(
        "judging pages needs a browser: apt-get install chromium-headless-shell, or playwright install chromium"
    )


def first_line(error: BaseException) -> str:
    """What an error says, without the log that Playwright adds."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@functools.cache
def _walls(browser_folder: str) -> tuple[str, ...]:
    """The bubblewrap command before the browser's own; empty where bubblewrap is missing or may not."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return ()
    # In a user namespace of its own it is no root, so that Chromium's own sandbox works.
    for user in (("--unshare-user", "--uid", "1000", "--gid", "1000"), ()):
        command = (bwrap, *user, *_mounts(browser_folder))
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            return command
    return ()


def _mounts(browser_folder: str) -> list[str]:
    plan = "--unshare-pid --unshare-net --unshare-ipc --unshare-uts --die-with-parent --new-session".split()
    for path in system_folders():
        plan += ["--ro-bind", path, path]
    for path, target in usr_links().items():
        plan += ["--symlink", target, path]
    for path in (
        *("/etc/fonts", "/etc/ld.so.cache", "/etc/alternatives", "/etc/chromium", "/etc/chromium.d"),
        "/var/cache/fontconfig",
    ):
        plan += ["--ro-bind-try", path, path]
    if not browser_folder.startswith("/usr/"):
        plan += ["--ro-bind", browser_folder, browser_folder]
    plan += ["--proc", "/proc", "--dev", "/dev", "--size", str(_TMP_BYTES), "--tmpfs", "/dev/shm"]
    return [*plan, "--size", str(_TMP_BYTES), "--tmpfs", "/tmp", "--"]
