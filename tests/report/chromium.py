"""A real Chromium, spoken to through a pipe: no port, no library, ended by its own process group."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


WIRE = """
import os, sys
reads, writes = os.dup(int(sys.argv[1])), os.dup(int(sys.argv[2]))
os.dup2(reads, 3)
os.dup2(writes, 4)
os.set_inheritable(3, True)
os.set_inheritable(4, True)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""The browser reads commands from descriptor 3 and writes answers to 4."""


def program() -> str | None:
    """Chromium's path, where there is one."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Browser:
    """One page in one browser; events that came in are in `events`."""

    def __init__(self, profile: Path) -> None:
        chromium = program()
        assert chromium is not None
        read_end, self._out = os.pipe()
        self._in, write_end = os.pipe()

        self._process = subprocess.Popen(
            [sys.executable, "-c", WIRE, str(read_end), str(write_end), chromium, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(read_end, write_end),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(read_end)
        os.close(write_end)
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        page = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        """End the browser and all its processes."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def send(self, method: str, **params: object) -> dict[str, Any]:
        """One command and its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        left = json.dumps(message).encode() + b"\0"
        while left:
            left = left[os.write(self._out, left) :]
        while True:
            answer = self._hear()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _hear(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            chunk = os.read(self._in, 1 << 20)
            assert chunk, "the browser has ended"
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def open(self, page: Path, *, width: int = 1280, dark: bool = False, script: bool = True, media: str = "") -> None:
        """Load a file and wait until it is there."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", media=media, features=scheme)
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.send("Emulation.setScriptExecutionDisabled", value=not script)
        self.events.clear()
        self.send("Page.navigate", url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._hear())

    def evaluate(self, expression: str) -> Any:  # noqa: ANN401 - JSON
        """A value computed in the page."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def requests(self) -> list[str]:
        """Addresses that the page asked for, without itself."""
        asked = [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
        return asked[1:]

    def complaints(self) -> list[str]:
        """Everything on the console."""
        return [
            json.dumps(event["params"])
            for event in self.events
            if event.get("method") in {"Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"}
        ]

    def picture(self, path: Path) -> None:
        """The whole page as PNG."""
        shot = self.send("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        path.write_bytes(base64.b64decode(shot["data"]))
