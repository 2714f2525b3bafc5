"""Random watches over HTTP: each gets every event of its selection once, in order."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest

from moorage.apiserver.endpoints.watch import WatchTimes
from tests.apiserver.running_server import Running, serving

_SPACES = ("a", "ab", "abc")
_NAMES = tuple(f"n{number}" for number in range(8))
_COLORS = ("red", "blue")
_WRITERS = 3
_WRITES = 50
_WATCHES = 24
_FORMS = (
    "application/json",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
)

Key = tuple[str, str]
"""Namespace and name."""


def _maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps" if namespace else "/api/v1/configmaps"


class _Written:
    """What was written: revision → namespace and color of each object; `last` when all is done."""

    def __init__(self) -> None:
        self.objects: dict[int, tuple[str, str]] = {}
        self.last: int | None = None


async def _write(server: Running, written: _Written, chance: random.Random, own: str) -> None:
    """Create, change and delete objects whose names begin with `own`."""
    present: dict[Key, str] = {}
    for number in range(_WRITES):
        namespace, name = chance.choice(_SPACES), f"{own}-{chance.choice(_NAMES)}"
        path, key = _maps(namespace), (namespace, name)
        color = chance.choice(_COLORS)
        body = {
            "metadata": {"name": name, "labels": {"color": color}},
            "data": {"n": str(number), "pad": "x" * chance.choice((0, 100, 20_000))},
        }
        if key not in present:
            answer = await server.ask("POST", path, body)
        elif chance.random() < 0.3:
            answer = await server.ask("DELETE", f"{path}/{name}")
            assert answer.status == 200, answer.text
            del present[key]
            continue
        else:
            answer = await server.ask("PUT", f"{path}/{name}", body)
        assert answer.status in (200, 201), answer.text
        present[key] = color
        written.objects[int(answer.json["metadata"]["resourceVersion"])] = (namespace, color)


class _Reflector:
    """Lists, watches, and checks each event against what it knows."""

    def __init__(self, chance: random.Random) -> None:
        self._namespace = chance.choice(("", "", *_SPACES))
        self._color = chance.choice(("", "", *_COLORS))
        self._form = chance.choice(_FORMS)
        self._pause_s = chance.choice((0.0, 0.0, 0.0, 0.01))
        self._ends_early = chance.random() < 0.3
        self._ends_after = chance.randrange(60)
        self._objects: dict[Key, int] = {}
        self._revision = 0
        self._seen: list[int] = []

    async def run(self, server: Running, written: _Written) -> None:
        selector = f"labelSelector=color%3D{self._color}" if self._color else ""
        path = f"{_maps(self._namespace)}?{selector}"
        listed = (await server.ask("GET", path)).json
        self._objects = _revisions(listed)
        started = self._revision = int(listed["metadata"]["resourceVersion"])
        path += f"&watch=1&allowWatchBookmarks=true&resourceVersion={started}"
        headers = {"Authorization": "Bearer admin-token", "Accept": self._form}
        async with server.http.get(server.url + path, headers=headers) as answer:
            assert answer.status == 200
            async for line in answer.content:
                self._take(json.loads(line))
                if self._ends_early and len(self._seen) >= self._ends_after:
                    return
                if written.last is not None and self._revision >= written.last:
                    break
                await asyncio.sleep(self._pause_s)
        wanted = [
            revision
            for revision, (namespace, color) in sorted(written.objects.items())
            if revision > started
            and self._namespace in ("", namespace)
            and self._color in ("", color)
        ]
        assert self._seen == wanted
        assert self._objects == _revisions((await server.ask("GET", f"{path.split('&')[0]}")).json)

    def _take(self, event: Any) -> None:
        type_, seen = event["type"], event["object"]
        assert type_ != "ERROR", seen
        if seen["kind"] == "Table" and seen["rows"]:
            seen = seen["rows"][0]["object"]
        meta = seen["metadata"]
        revision = int(meta["resourceVersion"])
        if type_ == "BOOKMARK":
            assert revision >= self._revision
            self._revision = revision
            return
        # Neither out of order, nor covered by an earlier bookmark.
        assert revision > self._revision
        self._revision = revision
        key = (meta["namespace"], meta["name"])
        assert (key in self._objects) == (type_ != "ADDED"), (event, self._objects.get(key))
        if type_ == "DELETED":
            del self._objects[key]
        else:
            self._objects[key] = revision
            self._seen.append(revision)


def _revisions(listed: Any) -> dict[Key, int]:
    metas = [item["metadata"] for item in listed["items"]]
    return {
        (meta["namespace"], meta["name"]): int(meta["resourceVersion"])
        for meta in metas
        if meta["name"] != "kube-root-ca.crt"
    }


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
async def test_each_watch_gets_each_event_of_its_selection_once_and_in_order(
    seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    async with serving(tmp_path, watch_times=WatchTimes(bookmark_s=0.1)) as server:
        for namespace in _SPACES:
            body = {"metadata": {"name": namespace}}
            assert (await server.ask("POST", "/api/v1/namespaces", body)).status == 201
        written = _Written()
        async with asyncio.timeout(60), asyncio.TaskGroup() as watches:
            async with asyncio.TaskGroup() as writes:
                for number in range(_WRITERS):
                    own = random.Random(f"{seed} {number}")
                    writes.create_task(_write(server, written, own, f"w{number}"))
                for _ in range(_WATCHES):
                    watches.create_task(_Reflector(chance).run(server, written))
                    await asyncio.sleep(chance.choice((0.0, 0.01)))
            end = await server.ask("GET", _maps("a"))
            written.last = int(end.json["metadata"]["resourceVersion"])
