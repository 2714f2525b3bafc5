"""Watchers that come too late, or ask for the beginning: 410, initial events, bookmarks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from moorage.client import Client
from moorage.client.resources import RUNTIME_CLASSES
from tests.controllers.cluster import running_cluster


async def _events(client: Client, query: dict[str, str]) -> list[dict[str, Any]]:
    events = []
    async with client.stream(
        "GET", RUNTIME_CLASSES.path(), query={"watch": "1", "timeoutSeconds": "1", **query}
    ) as answer:
        async for line in answer.content:
            events.append(json.loads(line))
    return events


async def test_a_watch_from_before_the_history_is_expired(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        for number in range(5):
            wanted = {"metadata": {"name": f"c{number}"}, "handler": "runc"}
            await cluster.client.create(RUNTIME_CLASSES, wanted)
    # A server that starts knows the present state; what led to it is not kept in memory.
    async with running_cluster(tmp_path) as cluster:
        events = await _events(cluster.client, {"resourceVersion": "1"})
        assert [each["type"] for each in events] == ["ERROR"]
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
        assert [each["type"] for each in events[:2]] == ["ADDED", "BOOKMARK"]
        annotations = events[1]["object"]["metadata"]["annotations"]
        assert annotations == {"k8s.io/initial-events-end": "true"}
