"""Drives a headless Chromium through its debugging pipe; nothing is needed but the browser."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 120.0
"""More than the browser needs for anything, also where other programs have the processors."""
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def find() -> str | None:
    """The browser of this machine."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """A browser's process, which the pages of all tests share; each has a context of its own."""

    def __init__(self) -> None:
        self.pages: dict[str, Browser] = {}
        """By session, those that are told what happens."""
        self._next = 0
        self._buffer = b""
        program = find()
        assert program is not None
        self._folder = tempfile.mkdtemp(prefix="explorer-browser-")
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        moved = [os.dup(to_read), os.dup(to_write)]  # high numbers, out of the way of 3 and 4
        # the browser reads commands from descriptor 3 and answers on 4
        command = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", command, "bash", *map(str, moved), program, *FLAGS, f"--user-data-dir={self._folder}"],
            pass_fds=moved, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for number in (to_read, to_write, *moved):
            os.close(number)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(SECONDS)
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._folder, ignore_errors=True)

    def send(self, session: str, method: str, values: dict[str, Any]) -> dict[str, Any]:
        """A command of the protocol to a page, or to the browser if there is no session; its result."""
        self._next += 1
        number = self._next
        message: dict[str, Any] = {"id": number, "method": method, "params": values}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            answer = self._receive(until - time.monotonic())
            if answer is not None and answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result
        raise TimeoutError(method)

    def _receive(self, seconds: float) -> dict[str, Any] | None:
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], max(0.0, seconds))[0]:
                return None
            data = os.read(self._read, 1 << 20)
            if not data:
                raise EOFError("the browser ended")
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if message.get("sessionId") in self.pages:
            self.pages[message["sessionId"]].note(message)
        return message


@cache
def _chromium() -> Chromium:
    return Chromium()


def end() -> None:
    """End the browser of this process, if one was started."""
    if _chromium.cache_info().currsize:
        _chromium().close()
        _chromium.cache_clear()


class Browser:
    """One page in a context of its own, with its own storage and cache; `with` ends it."""

    def __init__(self, width: int = 1280, height: int = 800, *, dark: bool = False, mobile: bool = False) -> None:
        self._size = (width, height, mobile)
        self._dark = dark
        self.messages: list[str] = []
        """Errors and warnings of the page."""
        self.requests: list[str] = []
        """Addresses that the page asked for."""

    def __enter__(self) -> Browser:
        self._browser = _chromium()
        self._context = self._browser.send("", "Target.createBrowserContext", {})["browserContextId"]
        page = {"url": "about:blank", "browserContextId": self._context}
        target = self._browser.send("", "Target.createTarget", page)["targetId"]
        attached = self._browser.send("", "Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session = attached["sessionId"]
        self._browser.pages[self._session] = self
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        width, height, mobile = self._size
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if self._dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        return self

    def __exit__(self, *_: object) -> None:
        del self._browser.pages[self._session]
        self._browser.send("", "Target.disposeBrowserContext", {"browserContextId": self._context})

    def send(self, method: str, **values: Any) -> dict[str, Any]:
        """A command of the protocol, and its result."""
        return self._browser.send(self._session, method, values)

    def note(self, message: dict[str, Any]) -> None:
        """Keep what the page says of itself."""
        method, values = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = values["exceptionDetails"]
            self.messages.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning", "assert"):
            self.messages.append(" ".join(str(arg.get("value", "")) for arg in values["args"]))
        elif method == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.messages.append(values["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])

    def open(self, url: str) -> float:
        """Go to an address and wait until the profile is shown; seconds that took."""
        began = time.monotonic()
        self.send("Page.navigate", url=url)
        self.wait("document.querySelector('#app') && document.querySelector('#app').dataset.ready")
        return time.monotonic() - began

    def open_file(self, path: Path) -> float:
        """The same for a file."""
        return self.open(path.as_uri())

    def run(self, script: str) -> Any:
        """The value of an expression, awaited if it is a promise."""
        result = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, script: str) -> Any:
        """Until an expression is true."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            value = self.run(script)
            if value:
                return value
            time.sleep(0.03)
        raise TimeoutError(f"{script}\n{self.messages}")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """mousePressed, mouseReleased, mouseMoved or mouseWheel."""
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float) -> None:
        """With the left button."""
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def key(self, key: str) -> None:
        """Press and release one key."""
        text = {"text": key} if len(key) == 1 else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    def screenshot(self, path: Path) -> None:
        """A PNG of what is visible."""
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))


def place(page: Browser, row: int) -> tuple[float, float]:
    """Where the middle of an event is in the window."""
    found = page.run(f"""(() => {{
      const t = explorer.timelines[0], box = boxOf(t, {row}, t.scale()), over = t.over.getBoundingClientRect();
      return [over.left + (box.x0 + box.x1) / 2, over.top + box.y + box.height / 2 - t.scroller.scrollTop];
    }})()""")
    return found[0], found[1]


def settle(page: Browser) -> None:
    """Wait until what changed is drawn."""
    page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def selected(page: Browser) -> Any:
    """The row of the selected event; None if there is none."""
    return page.run("explorer.shared.selected && explorer.shared.selected.row")


def visit_every_view(page: Browser) -> Iterator[str]:
    """The key of each view while it is shown; in the end the keys of the timeline are pressed."""
    for key in page.run("explorer.tabs.views.map((v) => v[0])"):
        page.run(f"explorer.tabs.open('{key}')")
        settle(page)
        yield key
    page.run("explorer.timelines[0].over.focus()")
    for pressed in "wasd.,npfm0":
        page.key(pressed)
