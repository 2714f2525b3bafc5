"""Which monitors are throttled, from when on and until when; cgroups are ordinary directories."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from moorage.engine.containers import log as log_rate
from moorage.engine.containers.log import LIMIT_BYTES_PER_S, LogRateLimiter
from moorage.engine.inventory import Container
from moorage.linux.cgroup_control import CgroupError
from moorage.linux.cgroups import Cgroups, Layout
from tests.clocks import settle
from tests.engine.parts import Bench, bench, place

__all__ = ["bench", "place"]

PID = 4242
SHARED = "/kubepods/throttled-monitors"


class Monitors:
    """What each monitor has written, by its container; None for what cannot be read."""

    def __init__(self, bench: Bench) -> None:
        mount = bench.root / "cgroup/cpu"
        self.cgroup = mount / SHARED.lstrip("/")
        self.written: dict[str, int | None] = {}
        self.gone: set[str] = set()
        self.reads: list[str] = []
        self.pids: dict[str, int] = {}
        cgroups = Cgroups(Layout.V1, {"cpu": mount}, hierarchies=(mount,))
        self.limiter = LogRateLimiter(
            bench.inventory, bench.paths, cgroups, bench.clock, self.pid, self.bytes
        )

    def pid(self, bundle: Path) -> int | None:
        self.reads.append(bundle.name)
        if bundle.name in self.gone:
            raise FileNotFoundError(bundle)
        if bundle.name not in self.written:
            return None
        return self.pids.setdefault(bundle.name, PID + len(self.pids))

    def bytes(self, pid: int) -> int | None:
        return next(
            self.written[name] for name, monitor_pid in self.pids.items() if monitor_pid == pid
        )

    @property
    def throttled(self) -> str:
        file = self.cgroup / "cgroup.procs"
        return file.read_text() if file.exists() else ""


@pytest.fixture
def monitors(bench: Bench) -> Monitors:
    return Monitors(bench)


async def logging(bench: Bench, **changed: str) -> Container:
    return await bench.running(await bench.pod(**changed), log_path="0.log")


@pytest.mark.parametrize(
    ("passed_s", "more", "is_throttled"),
    [
        (1, LIMIT_BYTES_PER_S, False),
        (1, LIMIT_BYTES_PER_S + 1, True),
        (2, 2 * LIMIT_BYTES_PER_S, False),
        (2, 2 * LIMIT_BYTES_PER_S + 1, True),
        (0.5, LIMIT_BYTES_PER_S // 2 + 1, True),
        (0, 9 * LIMIT_BYTES_PER_S, False),
    ],
)
async def test_a_monitor_above_the_limit_is_throttled(
    bench: Bench, monitors: Monitors, passed_s: float, more: int, is_throttled: bool
) -> None:
    container = await logging(bench)
    # What it had written before it was looked at counts nothing.
    monitors.written[container.id] = 10**12
    bench.clock.advance(5)
    await monitors.limiter.check()
    assert monitors.throttled == ""
    bench.clock.advance(passed_s)
    monitors.written[container.id] = 10**12 + more
    await monitors.limiter.check()
    assert monitors.throttled == (str(PID) if is_throttled else "")
    if is_throttled:
        assert (monitors.cgroup / "cpu.cfs_quota_us").read_text() == "10000"
        assert (monitors.cgroup / "cpu.cfs_period_us").read_text() == "100000"


async def flood(bench: Bench, monitors: Monitors, *containers: Container) -> None:
    for start in (0, 10**9):
        monitors.written |= {container.id: start for container in containers}
        bench.clock.advance(1)
        await monitors.limiter.check()


async def test_it_stays_until_it_ends_and_the_last_takes_the_cgroup_along(
    bench: Bench, monitors: Monitors
) -> None:
    first, second = await logging(bench), await logging(bench, name="other")
    await flood(bench, monitors, first, second)
    assert monitors.reads == [first.id, second.id] * 2
    await monitors.limiter.check()
    # They are not looked at again.
    assert len(monitors.reads) == 4
    for path in monitors.cgroup.iterdir():
        path.unlink()
    bench.end(first, 0)
    await settle()
    await monitors.limiter.check()
    assert monitors.cgroup.exists()
    bench.end(second, 0)
    await settle()
    await monitors.limiter.check()
    assert not monitors.cgroup.exists()


async def test_an_ended_container_is_forgotten(bench: Bench, monitors: Monitors) -> None:
    container = await logging(bench)
    monitors.written[container.id] = 5
    await monitors.limiter.check()
    assert list(monitors.limiter._readings) == [container.id]
    bench.end(container, 0)
    await settle()
    await monitors.limiter.check()
    assert monitors.limiter._readings == {}


async def test_unreadable_container_does_not_prevent_limits_of_others(
    bench: Bench, monitors: Monitors
) -> None:
    names = ("gone", "ended", "uncounted", "flooding")
    gone, ended, uncounted, flooding = [await logging(bench, name=name) for name in names]
    monitors.gone.add(gone.id)
    monitors.written[uncounted.id] = None
    monitors.written[flooding.id] = 0
    await monitors.limiter.check()
    monitors.written[flooding.id] = 10**9
    bench.clock.advance(1)
    await monitors.limiter.check()
    assert monitors.reads.count(ended.id) == 2
    assert list(monitors.limiter._throttled.items()) == [(flooding.id, SHARED)]


async def test_only_containers_with_a_log_and_a_cgroup_of_the_engine_are_looked_at(
    bench: Bench, monitors: Monitors
) -> None:
    await bench.running(await bench.pod())
    await bench.created(await bench.pod(name="created"), log_path="0.log")
    bench.offer('adapter = "oci"\nbinary = "runc"\ncgroup_driver = "systemd"\n')
    await bench.running(await bench.pod(name="slice", parent="/kube.slice"), log_path="0.log")
    await monitors.limiter.check()
    assert monitors.reads == []


async def test_failed_cgroup_creation_limits_nothing_and_is_retried(
    bench: Bench, monitors: Monitors, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise CgroupError(errno.ENOSPC, "no room")

    container = await logging(bench)
    with monkeypatch.context() as patched:
        patched.setattr(log_rate, "make_cpu_cgroup", fail)
        await flood(bench, monitors, container)
    assert monitors.throttled == ""
    monitors.written[container.id] = 10**10
    bench.clock.advance(1)
    await monitors.limiter.check()
    assert monitors.throttled == str(PID)


async def test_it_looks_every_second(bench: Bench, monitors: Monitors) -> None:

    container = await logging(bench)
    monitors.written[container.id] = 0
    running = asyncio.create_task(monitors.limiter.run())
    await settle()
    assert monitors.reads == []
    assert bench.clock.next_s == 1.0
    bench.clock.advance(1)
    await bench.until(lambda: bench.clock.next_s == 1.0)
    assert monitors.reads == [container.id]
    running.cancel()


async def test_only_a_present_monitor_is_throttled(bench: Bench, monitors: Monitors) -> None:
    container = await logging(bench)
    monitors.written[container.id] = 0
    await monitors.limiter.check()
    # The id that is read may be another process's by now.
    monitors.gone.add(container.id)
    monitors.written[container.id] = 10**9
    bench.clock.advance(1)
    await monitors.limiter.check()
    assert monitors.throttled == ""
    assert not monitors.limiter._throttled
