"""Feed: a zone has what its sender knows, also after either of them was gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from moorage.api.clock import SystemClock
from moorage.network.dns.receiver import RecordReceiver
from moorage.network.dns.records import ServiceRecord
from moorage.network.dns.sender import RecordSender
from moorage.network.dns.zone import NO_NAME, Zone

WEB, SVC = ServiceRecord(("10.96.0.7",)), ("default", "svc", "cluster", "local")


class Known:
    """What the sender knows."""

    def __init__(self, path: Path) -> None:
        self.services: dict[str, ServiceRecord] = {"default/web": WEB}
        self.namespaces = ["default"]
        self.sender = RecordSender(
            path,
            services=lambda: list(self.services),
            namespaces=lambda: list(self.namespaces),
            record_of=self.services.get,
            clock=SystemClock(),
        )


class Receiving:
    """A zone that a sender fills over a socket."""

    def __init__(self, path: Path) -> None:
        self.zone = Zone("cluster.local", "10.96.0.10")
        self.changed = asyncio.Event()
        self.receiver = RecordReceiver(self.zone, changed=self.changed.set)
        self.path = path

    def exists(self, name: str) -> bool:
        return self.zone.answer((name, *SVC), "A") != NO_NAME

    async def until(self, name: str, *, exists: bool = True) -> None:
        async with asyncio.timeout(20):
            while not self.receiver.is_complete or self.exists(name) != exists:
                self.changed.clear()
                await self.changed.wait()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_unix_server(
            lambda *streams: tasks.add(asyncio.ensure_future(self.receiver.receive(*streams))),
            self.path,
        )
        try:
            yield
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def running(sender: RecordSender) -> AsyncIterator[None]:
    task = asyncio.ensure_future(sender.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_everything_is_sent_and_then_what_changes(tmp_path: Path) -> None:
    known, zone = Known(tmp_path / "s"), Receiving(tmp_path / "s")
    async with zone.serving(), running(known.sender):
        await zone.until("web")
        known.services["default/api"] = WEB
        known.sender.touch_service("default/api")
        await zone.until("api")
        del known.services["default/web"]
        known.sender.touch_service("default/web")
        await zone.until("web", exists=False)
        known.namespaces.clear()
        known.sender.touch_namespace("default")
        await zone.until("api", exists=False)


async def test_a_receiver_that_starts_again_gets_everything(tmp_path: Path) -> None:
    known, first = Known(tmp_path / "s"), Receiving(tmp_path / "s")
    async with running(known.sender):
        async with first.serving():
            await first.until("web")
        second = Receiving(tmp_path / "s")
        async with second.serving():
            await second.until("web")


async def test_a_zone_outlives_its_sender_and_forgets_what_the_next_does_not_know(
    tmp_path: Path,
) -> None:
    known, zone = Known(tmp_path / "s"), Receiving(tmp_path / "s")
    async with zone.serving():
        async with running(known.sender):
            await zone.until("web")
        assert zone.exists("web")
        next_one = Known(tmp_path / "s")
        next_one.services.clear()
        next_one.services["default/api"] = WEB
        async with running(next_one.sender):
            await zone.until("api")
            await zone.until("web", exists=False)
