"""Events handed on in portions; of too many at once the oldest are dropped, and counted."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from moorage.api.meta import ObjectReference
from moorage.scheduler.event_buffer import EventBuffer
from tests.clocks import settle

LIMIT = 1200
"""Instead of 50,000: more than two portions."""


class FakeRecorder:
    """Keeps what is recorded; `flush` waits until the test lets it."""

    def __init__(self) -> None:
        self.recorded: list[tuple[str, str, str, str]] = []
        self.flushes = 0

    def record(self, about: ObjectReference, type_: str, reason: str, message: str) -> None:
        self.recorded.append((about.name, type_, reason, message))

    async def flush(self) -> None:
        self.flushes += 1
        await asyncio.sleep(0)


@pytest.mark.parametrize(("count", "dropped"), [(3, 0), (LIMIT, 0), (LIMIT + 2, 2)])
async def test_events_reach_the_recorder_in_order(
    count: int, dropped: int, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = FakeRecorder()
    untyped: Any = recorder
    announcer = EventBuffer(untyped, LIMIT)
    for number in range(count):
        announcer.announce(ObjectReference(name=f"p{number}"), "Normal", "R", f"m{number}")
    with caplog.at_level(logging.WARNING):
        task = asyncio.create_task(announcer.run())
        await settle(3 * LIMIT)
        names = [record[0] for record in recorder.recorded]
        assert names == [f"p{number}" for number in range(dropped, count)]
        assert recorder.recorded[0] == (f"p{dropped}", "Normal", "R", f"m{dropped}")
        counts = [vars(record)["moorage_fields"]["count"] for record in caplog.records
                  if record.getMessage().startswith("events dropped")]  # fmt: skip
        assert counts == ([dropped] if dropped else [])
        # What comes later is handed on as well, and nothing is said twice.
        announcer.announce(ObjectReference(name="late"), "Warning", "R", "m")
        await settle(20)
        assert recorder.recorded[-1] == ("late", "Warning", "R", "m")
        task.cancel()
        await asyncio.wait({task})
    assert len([record for record in caplog.records if "dropped" in record.getMessage()]) == len(
        counts
    )
    assert recorder.flushes >= 2
