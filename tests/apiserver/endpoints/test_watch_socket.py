"""Watches over a websocket: one event a message, until either side closes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.apiserver.running_server import Running, serving

CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


@asynccontextmanager
async def watching(
    server: Running, query: str = "", offered: tuple[str, ...] = ()
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with (
        asyncio.timeout(30),
        aiohttp.ClientSession(headers={"Authorization": "Bearer admin-token"}) as http,
        http.ws_connect(
            f"{server.url}{CLASSES}?watch=true{query}", ssl=server.tls(), protocols=offered
        ) as websocket,
    ):
        yield websocket


async def event(websocket: aiohttp.ClientWebSocketResponse) -> tuple[str, Any]:
    message = await websocket.receive()
    assert message.type is aiohttp.WSMsgType.TEXT
    read = json.loads(message.data)
    return read["type"], read["object"]


async def create(server: Running, name: str) -> None:
    wanted = {"metadata": {"name": name}, "handler": "runc"}
    assert (await server.ask("POST", CLASSES, wanted)).status == 201


@pytest.mark.parametrize(("offered", "chosen"), [((), None), (("base64.binary.k8s.io",),) * 2])
async def test_each_event_is_a_text_message(
    tmp_path: Path, offered: tuple[str, ...], chosen: object
) -> None:
    async with serving(tmp_path) as server:
        await create(server, "first")
        async with watching(server, offered=offered) as websocket:
            assert websocket.protocol == (offered[0] if chosen else None)
            type_, obj = await event(websocket)
            assert (type_, obj["metadata"]["name"]) == ("ADDED", "first")
            await websocket.send_str("what a client says is ignored")
            for name in ("second", "third"):
                await create(server, name)
            later = [await event(websocket) for _ in range(2)]
            assert [event_object["metadata"]["name"] for _, event_object in later] == [
                "second",
                "third",
            ]
            assert (await server.ask("DELETE", f"{CLASSES}/first")).status == 200
            type_, obj = await event(websocket)
            assert (type_, obj["metadata"]["name"]) == ("DELETED", "first")
            assert await websocket.close()
        assert websocket.close_code == aiohttp.WSCloseCode.OK


async def test_the_end_of_the_time_closes_the_websocket(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, watching(server, "&timeoutSeconds=1") as websocket:
        message = await websocket.receive()
        assert message.type is aiohttp.WSMsgType.CLOSE
        assert websocket.close_code == aiohttp.WSCloseCode.OK


async def test_a_watch_that_may_not_be_is_refused_before_the_upgrade(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with watching(server, "&labelSelector=("):
                pass
        assert refused.value.status == 400


async def test_a_long_message_of_the_client_is_not_kept(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, watching(server) as websocket:
        await websocket.send_bytes(b"x" * 5000)
        message = await websocket.receive()
        assert message.type is aiohttp.WSMsgType.CLOSE
        assert message.data == aiohttp.WSCloseCode.MESSAGE_TOO_BIG
