"""Node scraper: samples the statistics of node agents when a request needs them.

Nothing is scraped without a request. A measurement is used for ten seconds; the next request takes
one sample, and the last one begins its window. After a minute without requests that window would
be too long, so two samples are taken, a second apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress

import aiohttp
import msgspec

from moorage.api.clock import Clock
from moorage.api.errors import InternalError
from moorage.api.logs import Log
from moorage.apiserver.endpoints.node_agents import AgentContexts, NodeAgent, NodeTls
from moorage.apiserver.endpoints.resource_metrics.usage import Measurement, Sample, read_summary
from moorage.wire.streaming.dial import Connector

_FRESH_S = 10.0
_LONGEST_WINDOW_S = 60.0
_SHORTEST_WINDOW_S = 1.0
_RETRY_S = 15.0
_SCRAPE_WITHIN_S = 5.0
_ALL_WITHIN_S = 20.0
_PARALLEL = 16
_LARGEST_BYTES = 4 * 1024 * 1024

Fetch = Callable[[NodeAgent, str], Awaitable[bytes]]
"""Reads a path of a node agent. Raises OSError, TimeoutError, ValueError, aiohttp.ClientError."""

log = Log(__name__)


class AgentReader:
    """Reads small documents of node agents with mutual TLS; bounded in bytes and time."""

    def __init__(self, node_tls: NodeTls) -> None:
        self._contexts = AgentContexts(node_tls)
        self._http: aiohttp.ClientSession

    async def open(self) -> None:
        """Open the client."""
        self._http = aiohttp.ClientSession(connector=Connector(limit=_PARALLEL))

    async def close(self) -> None:
        await self._http.close()

    async def fetch(self, agent: NodeAgent, path: str) -> bytes:
        """Return a document. Raises as `Fetch` does."""
        context = self._contexts.of(agent.node)
        url = agent.address.url(path)
        async with self._http.get(url, allow_redirects=False, ssl=context) as answer:
            if answer.status != 200:
                raise ValueError(f"status {answer.status}")
            body = bytearray()
            async for piece in answer.content.iter_chunked(64 * 1024):
                body += piece
                if len(body) > _LARGEST_BYTES:
                    raise ValueError(f"more than {_LARGEST_BYTES} bytes")
            return bytes(body)


class _Node(msgspec.Struct):
    """What is known of one node."""

    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    before: Sample | None = None
    latest: Sample | None = None
    failed_at_s: float | None = None

    def measurement(self, now_s: float) -> Measurement | None:
        """Return the latest measurement that is not too old."""
        if self.before is None or self.latest is None:
            return None
        if now_s - self.latest.at_s > _LONGEST_WINDOW_S:
            return None
        return Measurement(self.before, self.latest)


class NodeScraper:
    """Measures nodes. `fetch` reads from their agents."""

    def __init__(self, fetch: Fetch, clock: Clock, within_s: float = _SCRAPE_WITHIN_S) -> None:
        self._within_s = within_s
        self._fetch = fetch
        self._clock = clock
        self._nodes: dict[str, _Node] = {}
        self._slots = asyncio.Semaphore(_PARALLEL)

    async def measure(
        self, agents: Mapping[str, Callable[[], NodeAgent]], existing: Iterable[str]
    ) -> dict[str, Measurement]:
        """Return a recent measurement of each node; a node that does not answer is left out.

        `agents` has a function for each node that returns its agent, or raises InternalError.
        `existing` names all nodes of the cluster: what is known of any other is forgotten.
        """
        kept = set(existing)
        self._nodes = {name: node for name, node in self._nodes.items() if name in kept}
        nodes = {name: self._nodes.setdefault(name, _Node()) for name in agents}
        with suppress(TimeoutError):
            async with asyncio.timeout(_ALL_WITHIN_S), asyncio.TaskGroup() as tasks:
                for name, node in nodes.items():
                    if self._is_due(node):
                        tasks.create_task(self._refresh(name, node, agents[name]))
        now_s = self._clock.monotonic()
        measured = {name: node.measurement(now_s) for name, node in nodes.items()}
        return {name: one for name, one in measured.items() if one is not None}

    def _is_due(self, node: _Node) -> bool:
        now_s = self._clock.monotonic()
        if node.failed_at_s is not None and now_s - node.failed_at_s < _RETRY_S:
            return False
        measurement = node.measurement(now_s)
        return measurement is None or now_s - measurement.after.at_s >= _FRESH_S

    async def _refresh(self, name: str, node: _Node, agent: Callable[[], NodeAgent]) -> None:
        async with node.lock:
            # Another request may have refreshed it while this one waited.
            if not self._is_due(node):
                return
            try:
                await self._sample_twice(node, agent())
                node.failed_at_s = None
            except (aiohttp.ClientError, OSError, ValueError, InternalError) as error:
                node.failed_at_s = self._clock.monotonic()
                why = str(error) or type(error).__name__
                log.warning("node agent not scraped", node=name, error=why)

    async def _sample_twice(self, node: _Node, agent: NodeAgent) -> None:
        last = node.latest
        if last is None or self._clock.monotonic() - last.at_s > _LONGEST_WINDOW_S:
            node.latest = await self._sample(agent)
            await self._clock.sleep(_SHORTEST_WINDOW_S)
        sample = await self._sample(agent)
        node.before, node.latest = node.latest, sample

    async def _sample(self, agent: NodeAgent) -> Sample:
        async with self._slots:
            started_s = self._clock.monotonic()
            async with asyncio.timeout(self._within_s):
                body = await self._fetch(agent, "/stats/summary")
            at_s = (started_s + self._clock.monotonic()) / 2
            return read_summary(body, at_s, self._clock.now())
