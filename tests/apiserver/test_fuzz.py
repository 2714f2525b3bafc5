"""Hostile requests at random against a server process: never 500, never slow, never large.

A few seconds with a fixed seed; `MOORAGE_FUZZ_S` says for how long otherwise, with a new seed
unless `MOORAGE_FUZZ_SEED` names one. A failure prints the seed and the request.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from moorage.apiserver.registry.kinds import STORED_KINDS
from tests.apiserver.fuzz import Fuzz, Request
from tests.apiserver.process import Connection, Server, is_fault, plain_request, server_process

_FOR_S = float(os.environ.get("MOORAGE_FUZZ_S", "0"))
_SHORT_REQUESTS, _SHORT_LARGE = 600, 6
_SEED = int(os.environ.get("MOORAGE_FUZZ_SEED", str(int(time.time()) if _FOR_S else 1)))

SLOWEST_S = 2.0
"""The longest that any answer of the long form may take."""

MOST_RSS_MIB = 1024
"""The most that the server's resident memory may be."""

_WORKERS = 3
_CLEAN_EVERY = 300
_ENOUGH_FAULTS = 10

pytestmark = pytest.mark.timeout(_FOR_S * 1.2 + 180)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with server_process(tmp_path) as server:
        yield server


@dataclass
class Outcome:
    """What was seen."""

    statuses: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    slowest: str = ""
    slowest_bystander_s: float = 0.0
    most_rss_mib: int = 0

    def see(self, request: Request, status: int, body: bytes, took_s: float) -> None:
        self.statuses[status] += 1
        if took_s > self.slowest_s and not _waits(body):
            self.slowest_s, self.slowest = took_s, f"{request.method} {request.target}"
        if is_fault(status, body):
            self.faults.append(
                f"{status} {body[:500]!r}\nfor {request.data[:3000]!r} ({len(request.data)} bytes)"
            )


def _waits(body: bytes) -> bool:
    """Whether the answer is late on purpose: a revision that was still to come."""
    return b"Too large resource version" in body


class Attack:
    """One seed's requests against one server."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.outcome = Outcome()
        self._fuzz = Fuzz(_SEED)
        self._large = asyncio.Lock()
        self._sent = 0
        self._ends = time.monotonic() + _FOR_S
        self._is_over = asyncio.Event()

    async def run(self) -> Outcome:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._stand_by())
            async with asyncio.TaskGroup() as workers:
                for _ in range(_WORKERS):
                    workers.create_task(self._work())
            self._is_over.set()
        return self.outcome

    def _goes_on(self) -> bool:
        if len(self.outcome.faults) >= _ENOUGH_FAULTS:
            return False
        if _FOR_S:
            return time.monotonic() < self._ends
        return self._sent < _SHORT_REQUESTS

    async def _work(self) -> None:
        connection = Connection(self.server)
        every = 40 if _FOR_S else _SHORT_REQUESTS // _SHORT_LARGE
        while self._goes_on():
            self._sent += 1
            if self._sent % every == 0:
                async with self._large:
                    await self._ask(connection, self._fuzz.large())
            else:
                await self._ask(connection, self._fuzz.request())
            if self._sent % _CLEAN_EVERY == 0:
                await self._clean(connection)
            if self._sent % 50 == 0:
                rss_mib = self.server.rss_mib
                self.outcome.most_rss_mib = max(self.outcome.most_rss_mib, rss_mib)
        connection.close()

    async def _ask(self, connection: Connection, request: Request) -> None:
        began = time.monotonic()
        status, body = await connection.ask(request)
        self.outcome.see(request, status, body, time.monotonic() - began)

    async def _clean(self, connection: Connection) -> None:
        """Delete what was made, so that memory is not for what is kept on purpose."""
        for kind in STORED_KINDS:
            if kind.plural in ("namespaces", "clusterroles", "clusterrolebindings"):
                continue
            served = kind.storage
            root = f"/apis/{served.group}" if served.group else "/api"
            for namespace in ("default", "fuzz") if kind.is_namespaced else ("",):
                place = f"/namespaces/{namespace}" if namespace else ""
                target = f"{root}/{served.version}{place}/{kind.plural}?gracePeriodSeconds=0"
                await connection.ask(plain_request("DELETE", target))

    async def _stand_by(self) -> None:
        """Ask for something small all the time, as everybody else does."""
        connection = Connection(self.server)
        while not self._is_over.is_set():
            began = time.monotonic()
            status, _ = await connection.ask(plain_request("GET", "/readyz"))
            took_s = time.monotonic() - began
            assert status == 200
            self.outcome.slowest_bystander_s = max(self.outcome.slowest_bystander_s, took_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    await self._is_over.wait()
        connection.close()


@contextlib.asynccontextmanager
async def _prepared(server: Server) -> AsyncIterator[Connection]:
    """Something to patch in every kind that takes an object without a specification."""
    connection = Connection(server)
    await connection.ask(
        plain_request("POST", "/api/v1/namespaces", {"metadata": {"name": "fuzz"}})
    )
    for namespace in ("default", "fuzz"):
        root = f"/api/v1/namespaces/{namespace}"
        for name in ("present", "default"):
            await connection.ask(
                plain_request("POST", f"{root}/serviceaccounts", {"metadata": {"name": name}})
            )
        for plural in ("configmaps", "secrets", "endpoints"):
            body = {"metadata": {"name": "present", "labels": {"a": "b"}}}
            await connection.ask(plain_request("POST", f"{root}/{plural}", body))
        spec = {"containers": [{"name": "c", "image": "i", "env": [{"name": "a", "value": "b"}]}]}
        pod = {"metadata": {"name": "present", "labels": {"a": "b"}}, "spec": spec}
        await connection.ask(plain_request("POST", f"{root}/pods", pod))
    yield connection
    connection.close()


async def test_hostile_requests(server: Server, tmp_path: Path) -> None:
    async with _prepared(server) as connection:
        outcome = await Attack(server).run()
        # The server closes what was idle for as long as a long attack lasts.
        connection.close()
        status, _ = await connection.ask(plain_request("GET", "/api/v1/pods"))
    outcome.most_rss_mib = max(outcome.most_rss_mib, server.rss_mib)
    print(
        f"seed {_SEED}: {outcome.statuses.total()} requests {dict(outcome.statuses)}; slowest "
        f"{outcome.slowest_s:.2f} s ({outcome.slowest}), another's "
        f"{outcome.slowest_bystander_s:.2f} s; resident memory up to {outcome.most_rss_mib} MiB "
        f"of {MOST_RSS_MIB}"
    )
    if outcome.faults:
        faults = "\n\n".join(outcome.faults)
        (tmp_path / "faults").write_text(faults)
        pytest.fail(f"seed {_SEED}: {faults}\n{server.log.read_text()[-20_000:]}")
    assert "request broke" not in server.log.read_text()
    assert server.process.poll() is None
    assert status == 200
    assert outcome.most_rss_mib < MOST_RSS_MIB
    if _FOR_S:
        assert outcome.slowest_s < SLOWEST_S, outcome.slowest
        assert outcome.slowest_bystander_s < SLOWEST_S
