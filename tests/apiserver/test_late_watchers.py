"""Watchers that come too late, or ask for the beginning: 410, initial events, bookmarks."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from moorage.apiserver.storage import SqliteStore
from moorage.wire.client.resources import RUNTIME_CLASSES
from moorage.wire.client.rest import Client
from tests.apiserver.running_server import serving
from tests.controllers.cluster import running_cluster


async def _events(client: Client, query: dict[str, str]) -> list[dict[str, Any]]:
    events = []
    async with client.stream(
        "GET", RUNTIME_CLASSES.path(), query={"watch": "1", "timeoutSeconds": "1", **query}
    ) as answer:
        async for line in answer.content:
            events.append(json.loads(line))
    return events


async def test_watch_from_before_a_restart_is_resumed(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        for number in range(5):
            wanted = {"metadata": {"name": f"c{number}"}, "handler": "runc"}
            await cluster.client.create(RUNTIME_CLASSES, wanted)
    async with running_cluster(tmp_path) as cluster:
        events = await _events(cluster.client, {"resourceVersion": "1"})
        names = [event["object"]["metadata"]["name"] for event in events]
        assert names == [f"c{number}" for number in range(5)]


async def test_a_watch_from_before_the_history_is_expired(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        for number in range(5):
            wanted = {"metadata": {"name": f"c{number}"}, "handler": "runc"}
            await cluster.client.create(RUNTIME_CLASSES, wanted)
    async with SqliteStore(tmp_path / "state.db") as store:
        await store.compact(store.revision)
    async with running_cluster(tmp_path) as cluster:
        events = await _events(cluster.client, {"resourceVersion": "1"})
        assert [event["type"] for event in events] == ["ERROR"]
        status = events[0]["object"]
        assert (status["code"], status["reason"]) == (410, "Expired")
        assert "too old resource version: 1" in status["message"]
        # A reader that lists again goes on.
        assert len((await cluster.client.list(RUNTIME_CLASSES)).items) == 5


async def test_initial_events_end_with_a_marked_bookmark(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        client = cluster.client
        await client.create(RUNTIME_CLASSES, {"metadata": {"name": "c"}, "handler": "runc"})
        events = await _events(
            client,
            {
                "sendInitialEvents": "true",
                "resourceVersionMatch": "NotOlderThan",
                "allowWatchBookmarks": "true",
            },
        )
        assert [event["type"] for event in events[:2]] == ["ADDED", "BOOKMARK"]
        annotations = events[1]["object"]["metadata"]["annotations"]
        assert annotations == {"k8s.io/initial-events-end": "true"}


async def test_client_that_disconnects_while_its_watch_starts_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as server:
        port = int(server.url.rpartition(":")[2])
        head = (
            f"GET {RUNTIME_CLASSES.path()}?watch=1 HTTP/1.1\r\nHost: x\r\n"
            "Authorization: Bearer admin-token\r\n\r\n"
        )
        for _ in range(20):
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=server.tls())
            writer.write(head.encode())
            writer.close()
            await writer.wait_closed()
        assert (await server.ask("GET", RUNTIME_CLASSES.path())).status == 200
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
