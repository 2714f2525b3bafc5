from __future__ import annotations

import asyncio
import logging
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from moorage.api.clock import format_time
from moorage.api.errors import NotFoundError, StatusError
from moorage.apiserver.registry.deletion import DeleteOptions
from moorage.apiserver.registry.kind import Kind, Served
from moorage.apiserver.registry.kinds import STORED_KINDS
from moorage.apiserver.registry.request import Request
from moorage.apiserver.registry.stored import Stored, StoredFactory, to_value
from moorage.apiserver.server.compaction import (
    COMPACTION_INTERVAL_S,
    expire_events,
    keep_compacting,
    keep_expiring_events,
)
from moorage.apiserver.storage import SqliteStore
from tests.clocks import FakeClock, settle


def run(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


async def test_a_compaction_that_fails_is_reported_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.db"
    clock = FakeClock()
    async with SqliteStore(path) as store:
        revision = await store.put("a/1", b"1", 0)
        revision = await store.put("a/1", b"2", revision)
        run(path, "CREATE TRIGGER no BEFORE DELETE ON log BEGIN SELECT RAISE(ABORT, 'no'); END")
        keeping = asyncio.ensure_future(keep_compacting(store, clock))
        with caplog.at_level(logging.ERROR):
            await pass_interval(clock, store, "b/1")
        assert "compaction failed" in caplog.text
        assert not keeping.done()
        assert revisions_of(path, "a/1") == 2
        run(path, "DROP TRIGGER no")
        await pass_interval(clock, store, "b/2")
        assert revisions_of(path, "a/1") == 1
        keeping.cancel()


class Ledger:
    """Events of a cache, and objects that delete them as the test says."""

    def __init__(self, clock: FakeClock, **events: dict[str, Any]) -> None:
        factory = StoredFactory(STORED_KINDS)
        self.items = [
            factory(f"events/ns/{name}", 1, to_value({
                "metadata": {"name": name, "creationTimestamp": format_time(clock.now())}, **event,
            }))
            for name, event in events.items()
        ]  # fmt: skip
        self.deleted: list[tuple[str, str, str]] = []
        self.failures: dict[str, StatusError] = {}

    def scan(self, prefix: str) -> list[Stored]:
        return [item for item in self.items if item.key.startswith(prefix)]

    async def delete(
        self, request: Request, kind: Kind, served: Served, namespace: str, name: str, options: Any
    ) -> None:
        assert (kind.name, served, options) == ("Event", kind.storage, DeleteOptions())
        assert "system:masters" in request.user.groups
        self.deleted.append((kind.name, namespace, name))
        if name in self.failures:
            raise self.failures[name]

    @property
    def names(self) -> list[str]:
        return [name for *_, name in self.deleted]


def _ago(clock: FakeClock, seconds: float) -> dict[str, Any]:
    return {"lastTimestamp": format_time(clock.now() - timedelta(seconds=seconds))}


async def test_events_are_deleted_an_hour_after_they_were_last_seen() -> None:
    clock = FakeClock()
    fresh, due, old = (_ago(clock, seconds) for seconds in (3599, 3600, 3601))
    ledger: Any = Ledger(clock, fresh=fresh, due=due, old=old, unseen={}, older=_ago(clock, 9999))
    await expire_events(ledger, ledger, clock)
    assert ledger.deleted == [("Event", "ns", "old"), ("Event", "ns", "older")]


async def test_an_event_that_has_gone_is_skipped_and_another_failure_ends_the_round(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    old = _ago(clock, 9999)
    ledger: Any = Ledger(clock, a=old, b=old, c=old)
    ledger.failures = {"a": NotFoundError("gone"), "b": StatusError("the disk is full")}
    with caplog.at_level(logging.WARNING):
        await expire_events(ledger, ledger, clock)
    assert ledger.names == ["a", "b"]
    assert "event not expired" in caplog.text


async def test_events_are_looked_at_every_minute() -> None:
    clock = FakeClock()
    ledger: Any = Ledger(clock, a={})
    keeping = asyncio.create_task(keep_expiring_events(ledger, ledger, clock))
    for minutes, names in ((60, []), (1, ["a"]), (1, ["a", "a"])):
        for _ in range(minutes):
            await settle()
            clock.advance(60)
        await settle()
        assert ledger.names == names
    keeping.cancel()
    await asyncio.wait([keeping])


async def pass_interval(clock: FakeClock, store: SqliteStore, key: str) -> None:
    """Let a compaction become due and end: it comes before the second of two later commits."""
    await settle()
    clock.advance(COMPACTION_INTERVAL_S)
    await settle()
    revision = await store.put(key, b"", 0)
    await store.put(key, b"", revision)
    await settle()


def revisions_of(path: Path, key: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        result = connection.execute("SELECT count(*) FROM log WHERE key = ?", (key,)).fetchone()
        return int(result[0])
