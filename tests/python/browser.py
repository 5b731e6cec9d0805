"""A headless Chromium for the tests, driven over a pipe by the Chrome DevTools protocol.

The browser reads commands from file descriptor 3 and writes answers and events to 4, each a JSON text
that a zero byte ends. It needs the standard library, and pytest to skip.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find() -> str | None:
    return next((path for path in map(shutil.which, NAMES) if path), None)


def of_this_machine(folder: Path) -> Browser:
    """The Chromium that is installed here, or the tests that ask for it are skipped. `folder` is its own."""
    program = find()
    if program is None:
        pytest.skip("no Chromium here: install the package chromium to test pages in it")
    return Browser(program, folder)


class Browser:
    """One page. `problems` are the errors and warnings of its console, and exceptions."""

    def __init__(self, program: str, folder: Path):
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()

        def pipes_as_3_and_4() -> None:  # by way of others: one may have the other's number
            ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (commands, answers)]
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self._process = subprocess.Popen(
            [program, "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
             "--disable-background-networking", "--disable-component-update",
             f"--user-data-dir={folder / 'profile'}", "about:blank"],
            preexec_fn=pipes_as_3_and_4, close_fds=False, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(commands)
        os.close(answers)
        self._buffer, self._next, self._session = b"", 0, None
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._events: list[str] = []
        (page,) = [target for target in self.call("Target.getTargets")["targetInfos"]
                   if target["type"] == "page"]
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"],
                                  flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_) -> None:
        os.close(self._write)
        os.killpg(self._process.pid, signal.SIGKILL)  # and the processes of its pages
        self._process.wait()
        os.close(self._read)

    def _message(self, seconds: float) -> dict:
        end = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                raise TimeoutError("the browser has not answered")
            part = os.read(self._read, 1 << 20)
            if not part:
                raise ConnectionError("the browser has ended")
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def _heard(self, message: dict) -> None:
        method, told = message.get("method", ""), message.get("params", {})
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self.problems.append(str(told["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.problems.append(str(told["args"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.problems.append(told["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])

    def call(self, method: str, **parameters) -> dict:
        self._next += 1
        message = {"id": self._next, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data):]
        while True:
            answer = self._message(30)
            if answer.get("id") == self._next:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._heard(answer)

    def open(self, page: Path | str) -> None:
        """Loads a file, or an address, and waits until all of it is there."""
        self._events.clear()
        self.call("Page.navigate", url=page if isinstance(page, str) else page.absolute().as_uri())
        while "Page.loadEventFired" not in self._events:
            self._heard(self._message(30))

    def open_again(self) -> None:
        self._events.clear()
        self.call("Page.reload")
        while "Page.loadEventFired" not in self._events:
            self._heard(self._message(30))

    def screen(self, width: int, height: int = 800, dark: bool = False, medium: str = "") -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=medium, features=[scheme])

    def run(self, expression: str):
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        code = {"Tab": 9, "Enter": 13, " ": 32}[key]
        text = {"Enter": "\r", " ": " "}.get(key, "")
        how = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **how)
        self.call("Input.dispatchKeyEvent", type="keyUp", **how)

    def screenshot(self, file: Path, whole: bool = False) -> None:
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        file.write_bytes(base64.b64decode(data))
