"""What the agent does again and again: when the first round is, and that a failure ends none."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from moorage.node.cgroups import tree as qos
from moorage.node.cgroups.tree import CgroupError, QosTree
from moorage.node.garbage.containers import ContainerCollector, OrphanCollector
from moorage.node.garbage.eviction import PressureKeeper
from moorage.node.garbage.images import ImageCollector
from moorage.node.log_rotation import LogKeeper
from moorage.wire.cri import CriError
from tests.clocks import FakeClock, settle

CRI = CriError("m", grpc.StatusCode.UNKNOWN, "no")


class Notifier:
    """Lets a round wait on the test's clock."""

    def __init__(self, clock: FakeClock) -> None:
        self.wait = clock.sleep


def bare(kind: type[Any], rounds: str, clock: FakeClock, **fields: Any) -> tuple[Any, list[float]]:
    """A keeper whose round only notes when it was; the first fails as `error` says."""
    keeper = object.__new__(kind)
    for name, value in {"_clock": clock, **fields}.items():
        setattr(keeper, name, value)
    times: list[float] = []
    error = fields.get("error")

    async def one() -> None:
        times.append(clock.monotonic())
        if error is not None and len(times) == 1:
            raise error

    setattr(keeper, rounds, one)
    return keeper, times


@pytest.mark.parametrize(
    ("kind", "rounds", "period_s", "first_s", "error"),
    [
        (ContainerCollector, "collect", 7.0, 7.0, None),
        (ImageCollector, "collect", 7.0, 0.0, None),
        (ImageCollector, "collect", 7.0, 0.0, CRI),
        (ImageCollector, "collect", 7.0, 0.0, OSError("disk")),
        (OrphanCollector, "collect", 30.0, 0.0, None),
        (OrphanCollector, "collect", 30.0, 0.0, CRI),
        (PressureKeeper, "check", 7.0, 0.0, None),
        (PressureKeeper, "check", 7.0, 0.0, OSError("disk")),
        (QosTree, "weigh", 60.0, 0.0, None),
        (QosTree, "weigh", 60.0, 0.0, CgroupError(5, "broken")),
    ],
)
async def test_rounds(
    kind: type[Any], rounds: str, period_s: float, first_s: float, error: Exception | None
) -> None:
    clock = FakeClock()
    options = SimpleNamespace(period_s=7.0)
    keeper, times = bare(kind, rounds, clock, _options=options, _wake=Notifier(clock), error=error)
    running = asyncio.ensure_future(keeper.run())
    await settle()
    for _ in range(3):
        assert not running.done()
        clock.advance(clock.next_s or 0)
        await settle()
    running.cancel()
    assert times == [first_s + number * period_s for number in range(4 if first_s == 0 else 3)]
    assert qos._PERIOD_S == 60.0


async def test_logs_are_rotated_every_period_and_compressed_after_that() -> None:
    clock = FakeClock()
    options = SimpleNamespace(period_s=7.0)
    rotation, times = bare(
        LogKeeper, "rotate_long", clock, _options=options, _has_rotated=asyncio.Event()
    )
    compressed: list[float] = []

    async def compress() -> None:
        compressed.append(clock.monotonic())

    rotation.compress_rotated = compress
    running = asyncio.ensure_future(rotation.run())
    await settle()
    clock.advance(7)
    await settle()
    assert (times, compressed) == ([7], [])
    rotation._has_rotated.set()
    await settle()
    assert (compressed, rotation._has_rotated.is_set()) == ([7], False)
    running.cancel()
