"""Chromium without a window, driven over its debugging protocol. Source: DevTools Protocol 1.3."""

from __future__ import annotations

import asyncio
import base64
import itertools
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

_DEADLINE_S = 60.0


class Tab:
    """A tab of the browser. Scripts of pages do not run in it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, session: str) -> None:
        self._socket = socket
        self._session = session
        self._numbers = itertools.count(100)

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        await self._socket.send_json(message)
        answer = await self._until(lambda received: received.get("id") == number)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def open(self, url: str) -> None:
        """Open a page, and wait until it has loaded."""
        number = next(self._numbers)
        message = {"id": number, "method": "Page.navigate", "params": {"url": url}}
        await self._socket.send_json(message | {"sessionId": self._session})
        # The answer comes once the page has begun: an event before it is of the page before it.
        await self._until(lambda received: received.get("id") == number)
        await self._until(lambda received: received.get("method") == "Page.loadEventFired")

    async def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        found = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return found["result"].get("value")

    async def press(self, key: str, code: int) -> None:
        """Press a key: its name, and its Windows key code."""
        text = "\r" if key == "Enter" else ""
        for type_ in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent", type=type_, key=key, code=key, text=text,
                windowsVirtualKeyCode=code,
            )  # fmt: skip

    async def accessible(self) -> list[tuple[str, str]]:
        """Return role and name of what a screen reader finds, in its order."""
        tree = await self.call("Accessibility.getFullAXTree")
        return [
            (str(node["role"]["value"]), str(node.get("name", {}).get("value", "")))
            for node in tree["nodes"]
            if not node["ignored"]
        ]

    async def screenshot(self) -> bytes:
        """Return the page as PNG."""
        picture = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(picture["data"])

    async def _until(self, is_it: Any) -> dict[str, Any]:
        async with asyncio.timeout(_DEADLINE_S):
            while True:
                received: dict[str, Any] = await self._socket.receive_json()
                if is_it(received):
                    return received


@asynccontextmanager
async def chromium_tab(directory: Path) -> AsyncIterator[Tab]:
    """Start Chromium with a profile of its own, and yield a tab. Skips the test without it."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed")
    process = await asyncio.create_subprocess_exec(
        program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--no-first-run", "--disable-background-networking", "--window-size=1200,900",
        f"--user-data-dir={directory / 'chromium'}", "--remote-debugging-port=0", "about:blank",
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        url = await _debugging_url(process.stderr)
        # What it prints later must not fill the pipe.
        drain = asyncio.create_task(process.stderr.read())
        async with aiohttp.ClientSession() as http, http.ws_connect(url, max_msg_size=0) as socket:
            browser = Tab(socket, "")
            target = (await browser.call("Target.createTarget", url="about:blank"))["targetId"]
            attached = await browser.call("Target.attachToTarget", targetId=target, flatten=True)
            tab = Tab(socket, attached["sessionId"])
            for domain in ("Page", "Accessibility"):
                await tab.call(f"{domain}.enable")
            await tab.call("Emulation.setScriptExecutionDisabled", value=True)
            yield tab
    finally:
        process.kill()
        await process.wait()
    await drain


async def _debugging_url(output: asyncio.StreamReader) -> str:
    async with asyncio.timeout(_DEADLINE_S):
        while line := await output.readline():
            if found := re.search(rb"DevTools listening on (ws://\S+)", line):
                return found[1].decode()
    raise AssertionError("chromium ended before it could be reached")
