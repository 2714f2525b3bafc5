"""Clients that write, read, list and watch at random, and note what they are answered."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.apiserver.history.operations import Change, Get, History, Listing, Stream, Version, Write
from tests.apiserver.history.process import KEPT_S, TOKEN

_PATHS = {
    "configmaps": "/api/v1/namespaces/default/configmaps",
    "leases": "/apis/coordination.k8s.io/v1/namespaces/default/leases",
}
_CUT = (aiohttp.ClientError, TimeoutError, ConnectionError)
_ROOT = Path(__file__).parents[3]
_READY_S = 30.0
_GRACE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How much is done; `kills` are spread over `seconds`."""

    seconds: float = 6.0
    kills: int = 1
    keys: int = 4
    writers: int = 6
    readers: int = 3
    watchers: int = 12


class _Server:
    """The process under test, killed and started again."""

    def __init__(self, directory: Path, port: int) -> None:
        self._arguments = ("-m", "tests.apiserver.history.process", str(directory), str(port))
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, *self._arguments, stdout=asyncio.subprocess.PIPE, cwd=_ROOT
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(_READY_S):
            output = await self._process.stdout.readline()
        if output != b"ready\n":
            raise AssertionError("the server did not start")

    async def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            self._process = None


async def record(directory: Path, port: int, seed: int, load: Load) -> History:
    """Run a load against a server of its own, and return what happened."""
    server = _Server(directory, port)
    await server.start()
    try:
        context = ssl.create_default_context(cafile=str(directory / "pki" / "ca.crt"))
        connector = aiohttp.TCPConnector(ssl=context, limit=0)
        async with aiohttp.ClientSession(
            f"https://127.0.0.1:{port}",
            connector=connector,
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=aiohttp.ClientTimeout(total=20),
        ) as http:
            return await _Run(http, random.Random(seed), load, server).history()
    finally:
        await server.kill()


class _Run:
    """One load. Clients share what they saw of objects and revisions, stale or not."""

    def __init__(
        self, http: aiohttp.ClientSession, rng: random.Random, load: Load, server: _Server
    ) -> None:
        self._http = http
        self._rng = rng
        self._load = load
        self._server = server
        self._history = History(scribes={kind: [] for kind in _PATHS})
        self._known: dict[str, dict[str, Any]] = {}
        self._revisions: deque[tuple[float, int]] = deque(maxlen=8000)
        self._values = 0
        self._scribed = asyncio.Event()
        self._end = 0.0

    async def history(self) -> History:
        start = await self._revision()
        self._end = time.monotonic() + self._load.seconds
        scribes = [asyncio.create_task(self._scribe(kind, start)) for kind in _PATHS]
        try:
            async with asyncio.TaskGroup() as tasks:
                for clients, work in (
                    (self._load.writers, self._write),
                    (self._load.readers, self._read),
                    (self._load.watchers, self._watch),
                ):
                    for _ in range(clients):
                        tasks.create_task(self._repeat(work))
                tasks.create_task(self._kill())
            await self._let_scribes_end()
        finally:
            for scribe in scribes:
                scribe.cancel()
            await asyncio.gather(*scribes, return_exceptions=True)
        return self._history

    async def _repeat(self, work: Callable[[], Awaitable[None]]) -> None:
        while time.monotonic() < self._end:
            try:
                await work()
            except _CUT:
                await asyncio.sleep(0.02)  # The server was killed: asked again until it is back.

    async def _kill(self) -> None:
        pause_s = self._load.seconds / (self._load.kills + 1)
        for _ in range(self._load.kills):
            await asyncio.sleep(pause_s * self._rng.uniform(0.7, 1.0))
            await self._server.kill()
            await self._server.start()
            self._history.kills += 1

    async def _let_scribes_end(self) -> None:
        """Write one last object of each kind and wait until the scribes have seen it."""
        async with asyncio.timeout(_READY_S):
            for kind in _PATHS:
                key = f"{kind}/last"
                await self._send(Write("POST", key, time.monotonic(), self._value()))
                while not self._history.scribes[kind] or self._history.scribes[kind][-1].key != key:
                    self._scribed.clear()
                    await self._scribed.wait()

    async def _scribe(self, kind: str, revision: int) -> None:
        changes = self._history.scribes[kind]
        while True:
            try:
                async with self._events(kind, revision, 300) as events:
                    async for event in events:
                        if isinstance(event, Change):
                            changes.append(event)
                            self._scribed.set()
                            revision = event.version.revision
            except _ExpiredError:
                self._history.complaints.append(f"the scribe of {kind} is too late at {revision}")
                return
            except _CUT:
                await asyncio.sleep(0.02)

    async def _write(self) -> None:
        rng = self._rng
        key = f"{rng.choice(list(_PATHS))}/h-{rng.randrange(self._load.keys)}"
        known = self._known.get(key)
        choice = rng.random()
        write = Write("POST", key, 0.0, self._value())
        if choice < 0.3 and known:
            write.method = "DELETE"
            write.value = ""
        elif choice < 0.75 and known:
            write.method = "PUT"
            write.expected = int(known["metadata"]["resourceVersion"])
            if rng.random() < 0.5:
                write.uid = known["metadata"]["uid"]
        elif choice < 0.85:
            write.method = "PATCH"
        write.start = time.monotonic()
        await self._send(write)

    async def _send(self, write: Write) -> None:
        kind, _, name = write.key.partition("/")
        metadata: dict[str, Any] = {"name": name}
        if write.expected is not None:
            metadata["resourceVersion"] = str(write.expected)
        if write.uid:
            metadata["uid"] = write.uid
        body = {"metadata": metadata, **_content(kind, write.value)}
        path = _PATHS[kind] if write.method == "POST" else f"{_PATHS[kind]}/{name}"
        media = "application/json"
        if write.method == "PATCH":
            media, body = "application/merge-patch+json", _content(kind, write.value)
        self._history.writes.append(write)
        async with self._http.request(
            write.method,
            path,
            data=None if write.method == "DELETE" else json.dumps(body),
            headers={"Content-Type": media},
        ) as answer:
            document = await answer.json()
        write.status, write.end = answer.status, time.monotonic()
        write.reason = document.get("reason", "")
        self._complain(write, answer.status)
        if answer.status in (200, 201) and write.method != "DELETE":
            write.version = self._saw(kind, document)

    async def _read(self) -> None:
        rng = self._rng
        kind = rng.choice(list(_PATHS))
        start = time.monotonic()
        if rng.random() < 0.3:
            key = f"{kind}/h-{rng.randrange(self._load.keys)}"
            name = key.partition("/")[2]
            async with self._http.get(f"{_PATHS[kind]}/{name}") as answer:
                document = await answer.json()
            self._complain(key, answer.status)
            if answer.status in (200, 404):
                version = self._saw(kind, document) if answer.status == 200 else None
                self._history.gets.append(Get(key, start, time.monotonic(), version))
            return
        query = {"limit": str(rng.choice((0, 1, 2, 3)))}
        exact = None
        if rng.random() < 0.6 and self._revisions:
            # Near the floor of the server's compaction.
            wanted = start - KEPT_S * rng.uniform(0.7, 1.3)
            exact = min(self._revisions, key=lambda pair: abs(pair[0] - wanted))[1]
            query |= {"resourceVersion": str(exact), "resourceVersionMatch": "Exact"}
        await self._list(kind, query, exact, start)

    async def _list(
        self, kind: str, query: dict[str, str], exact: int | None, start: float
    ) -> None:
        items: dict[str, Version] = {}
        while True:
            async with self._http.get(_PATHS[kind], params=query) as answer:
                document = await answer.json()
            self._complain(f"list of {kind} {query}", answer.status)
            if answer.status != 200:
                return
            for item in document["items"]:
                version = self._saw(kind, item)
                items[f"{kind}/{item['metadata']['name']}"] = version
            token = document["metadata"].get("continue", "")
            if not token:
                break
            query = {"limit": query["limit"], "continue": token}
        revision = int(document["metadata"]["resourceVersion"])
        self._history.lists.append(Listing(kind, start, time.monotonic(), revision, items, exact))

    async def _watch(self) -> None:
        """Follow a kind through a few short watches, each from where the last one ended."""
        kind = self._rng.choice(list(_PATHS))
        revision = await self._revision()
        for _ in range(self._rng.randrange(1, 5)):
            stream = Stream(kind, revision)
            self._history.streams.append(stream)
            try:
                async with self._events(kind, revision, self._rng.choice((1, 1, 2, 3))) as events:
                    async for event in events:
                        stream.events.append(event)
                        revision = event if isinstance(event, int) else event.version.revision
            except _ExpiredError:
                return

    @asynccontextmanager
    async def _events(
        self, kind: str, revision: int, timeout_s: int
    ) -> AsyncIterator[AsyncIterator[Change | int]]:
        query = {
            "watch": "1",
            "resourceVersion": str(revision),
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(timeout_s),
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_read=timeout_s + _GRACE_S)
        async with self._http.get(_PATHS[kind], params=query, timeout=timeout) as answer:
            self._complain(f"watch of {kind} {revision}", answer.status)
            yield self._decoded(kind, answer)

    async def _decoded(
        self, kind: str, answer: aiohttp.ClientResponse
    ) -> AsyncIterator[Change | int]:
        async for line in answer.content:
            event = json.loads(line)
            obj = event["object"]
            if event["type"] == "ERROR":
                if obj["code"] != 410:
                    self._history.complaints.append(f"watch of {kind}: {obj}")
                raise _ExpiredError
            if event["type"] == "BOOKMARK":
                yield int(obj["metadata"]["resourceVersion"])
            else:
                version = _version(kind, obj)
                yield Change(event["type"], f"{kind}/{obj['metadata']['name']}", version)

    async def _revision(self) -> int:
        async with self._http.get(_PATHS["leases"], params={"limit": "1"}) as answer:
            document = await answer.json()
        return int(document["metadata"]["resourceVersion"])

    def _saw(self, kind: str, obj: dict[str, Any]) -> Version:
        self._known[f"{kind}/{obj['metadata']['name']}"] = obj
        version = _version(kind, obj)
        self._revisions.append((time.monotonic(), version.revision))
        return version

    def _complain(self, what: object, status: int) -> None:
        if status not in (200, 201, 404, 409, 410, 429):
            self._history.complaints.append(f"{what}: {status}")

    def _value(self) -> str:
        self._values += 1
        return f"v{self._values}"


class _ExpiredError(Exception):
    """A watch began too far in the past."""


def _content(kind: str, value: str) -> dict[str, Any]:
    return {"data": {"v": value}} if kind == "configmaps" else {"spec": {"holderIdentity": value}}


def _version(kind: str, obj: dict[str, Any]) -> Version:
    meta = obj["metadata"]
    value = obj["data"]["v"] if kind == "configmaps" else obj["spec"]["holderIdentity"]
    return Version(int(meta["resourceVersion"]), meta["uid"], value)
