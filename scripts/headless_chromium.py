"""A headless Chromium controlled over a pipe, with the part of the DevTools protocol for opening pages and screenshots.

Needs only the standard library and Chromium. ``--remote-debugging-pipe`` reads requests from file 3 and writes
responses and events to file 4, each as JSON followed by a NUL.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-extensions"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb", "--remote-debugging-pipe"),
)
# Puts the pipe where Chromium looks for it, by way of copies: its ends may have these numbers already, crosswise.
LAUNCH = """
import os, sys
ends = [os.dup(int(number)) for number in sys.argv[1:3]]
while min(ends) < 5:
    ends = [os.dup(end) for end in ends]
for end, place in zip(ends, (3, 4)):
    os.dup2(end, place, inheritable=True)
os.execv(sys.argv[3], sys.argv[3:])
"""
# Of these events a page's troubles are made.
TROUBLES = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")


def find_chromium() -> str | None:
    """Where a Chromium is installed, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Chromium:
    """One browser with one page.

    Parameters
    ----------
    program
        Path of the browser.
    timeout
        Seconds an answer may take.
    """

    def __init__(self, program: str, timeout: float = 60.0) -> None:
        self.timeout = timeout
        self.events: list[dict[str, Any]] = []
        self._number, self._buffer = 0, b""
        self._folder = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        theirs_in, self._write = os.pipe()
        self._read, theirs_out = os.pipe()
        command = [program, *OPTIONS, f"--user-data-dir={self._folder.name}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(theirs_in), str(theirs_out), *command],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": self._folder.name},
        )
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            self._attach()
        except Exception:
            self.close()
            raise

    def _attach(self) -> None:
        targets = self._ask("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in targets if one["type"] == "page")
        self._session = self._ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.ask("Emulation.setFocusEmulationEnabled", enabled=True)  # the clipboard serves focused pages alone

    def __enter__(self) -> "Chromium":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the browser and remove its folder."""
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._folder.cleanup()

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a request to the page and wait for its answer."""
        return self._ask(method, self._session, **parameters)

    def open(self, page: Path | str, width: int = 1280, height: int = 900, *, dark: bool = False) -> None:
        """Show a file or an address in a window of this size, light or dark, and wait until it has loaded."""
        self.resize(width, height)
        scheme = "dark" if dark else "light"
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        is_address = isinstance(page, str) and page.startswith("http://")
        self.ask("Page.navigate", url=page if is_address else Path(page).resolve().as_uri())
        self._wait_for("Page.loadEventFired")

    def resize(self, width: int, height: int) -> None:
        """Give the window another size."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def run(self, expression: str) -> Any:
        """Evaluate an expression in the page, promises awaited, and give back its value."""
        answer = self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"the page threw: {json.dumps(answer['exceptionDetails'])[:2000]}")
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key."""
        codes = {"ArrowRight": 39, "ArrowLeft": 37, "PageUp": 33, "Tab": 9, "Enter": 13}
        pressed = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        typed = {"type": "keyDown", "text": "\r"} if key == "Enter" else {"type": "rawKeyDown"}
        self.ask("Input.dispatchKeyEvent", **typed, **pressed)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **pressed)

    def type_over(self, selector: str, text: str) -> None:
        """Replace what stands in a field as a person would."""
        self.run(f"{{ const field = document.querySelector({json.dumps(selector)}); field.focus(); field.select(); }}")
        self.ask("Input.insertText", text=text)

    def choose_file(self, selector: str, path: Path) -> None:
        """Choose a file in a file field."""
        root = self.ask("DOM.getDocument")["root"]["nodeId"]
        field = self.ask("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.ask("DOM.setFileInputFiles", files=[str(path)], nodeId=field)

    def wait_until(self, expression: str, seconds: float = 60.0) -> None:
        """Wait until an expression is true in the page."""
        deadline = time.monotonic() + seconds
        while not self.run(f"Boolean({expression})"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{expression} did not become true in {seconds:g} s")
            time.sleep(0.1)

    def photograph(self, path: Path, clip: str | None = None) -> None:
        """Write a PNG of the whole page, or of the element that a selector finds."""
        selector = json.dumps(clip or "html")
        box = self.run(
            f"(() => {{ const r = document.querySelector({selector}).getBoundingClientRect(); "
            "return {x: r.x + scrollX, y: r.y + scrollY, width: r.width, height: r.height}; })()"
        )
        answer = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip={**box, "scale": 1})
        path.write_bytes(base64.b64decode(answer["data"]))

    def troubles(self) -> list[dict[str, Any]]:
        """Errors, warnings and console output since the page was opened."""
        self.run("0")
        return [event for event in self.events if event["method"] in TROUBLES]

    def requests(self) -> list[str]:
        """Every address the page asked for since it was opened."""
        self.run("0")
        sent = [event for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def _ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        if session:
            request["sessionId"] = session
        os.write(self._write, json.dumps(request).encode() + b"\0")
        deadline = time.monotonic() + self.timeout
        while True:
            message = self._next(deadline)
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def _wait_for(self, event: str) -> None:
        deadline = time.monotonic() + self.timeout
        while not any(one["method"] == event for one in self.events):
            self._next(deadline)

    def _next(self, deadline: float) -> dict[str, Any]:
        """The next message; an event is kept as well."""
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(deadline - time.monotonic(), 0.0))
            piece = os.read(self._read, 1 << 20) if ready else b""
            if not piece:
                raise TimeoutError("Chromium did not answer" if not ready else "Chromium ended")
            self._buffer += piece
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message
