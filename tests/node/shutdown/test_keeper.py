"""A shutdown from logind's announcement to the released lock, and one that is cancelled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from moorage.api.clock import SystemClock
from moorage.api.pods import Pod
from moorage.node.machine.shutdown import NodeShutdown
from moorage.node.metrics import Metrics
from moorage.node.shutdown import Logind, ShutdownKeeper
from moorage.node.shutdown_periods import ShutdownPeriod
from moorage.node.status.inputs import TerminationReason
from tests.clocks import START_S, FakeClock, settle
from tests.node.objects import a_pod
from tests.node.shutdown.fake_logind import IS_MISSING, FakeLogind, bus, logind_on

CRITICAL = 2_000_000_000
PERIODS = (ShutdownPeriod(0, 20), ShutdownPeriod(CRITICAL, 10))


class Worker:
    """A pod that ends when the test says so."""

    def __init__(self, pod: Pod, done: list[str]) -> None:
        self.pod, self.is_active, self.over, self._done = pod, True, asyncio.Event(), done
        self.reasons: list[TerminationReason] = []

    def terminate(self, termination: TerminationReason, *, grace_s: int) -> bool:
        self.reasons.append(termination)
        self._done.append(f"{self.pod.metadata.name} {grace_s}")
        return True

    async def wait_over(self) -> None:
        await self.over.wait()
        self._done.append(f"{self.pod.metadata.name} over")


class Case:
    def __init__(self, root: Path, clock: Any, **priorities: int) -> None:
        self.done: list[str] = []
        self.workers = {
            name: Worker(a_pod(name=name, priority=priority), self.done)
            for name, priority in priorities.items()
        }
        self.shutdown, self.metrics, self.clock = NodeShutdown(), Metrics(), clock
        self.shutdown.add_listener(self._changed)
        self.record = root / "record"
        workers: Any = self.workers
        self.keeper = ShutdownKeeper(
            periods=PERIODS,
            logind=Logind(SystemClock(), root / "conf.d"),
            shutdown=self.shutdown,
            workers=lambda: workers.values(),
            report=lambda: self.done.append(f"event {self.shutdown.is_begun}"),
            metrics=self.metrics,
            record=self.record,
            clock=clock,
        )

    def _changed(self) -> None:
        self.done.append(f"node {self.shutdown.problem or 'ready'}")

    async def until(self, step: str) -> None:
        await until(lambda: step in self.done, self.done)


async def until(condition: Callable[[], bool], seen: object) -> None:
    """Wait for what threads and programs do."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.002)
    raise AssertionError(f"not reached: {seen}")


@asynccontextmanager
async def running(work: Any) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_ordinary_pods_end_before_critical_ones(tmp_path: Path) -> None:
    case = Case(tmp_path, FakeClock(), web=0, job=-5, dns=CRITICAL + 1, done=0)
    case.workers["done"].is_active = False
    async with running(case.keeper.end_pods()):
        await case.until("job 20")
        assert case.done == ["web 20", "job 20"]
        assert case.metrics.shutdown_start.value() == START_S
        assert case.metrics.shutdown_end.value() == 0
        case.clock.advance(5)
        case.workers["job"].over.set()
        await settle()
        assert "dns 10" not in case.done
        case.workers["web"].over.set()
        await case.until("dns 10")
        assert case.done[2:] == ["web over", "job over", "dns 10"]
    (reason,) = case.workers["dns"].reasons
    message = "Pod was terminated in response to imminent node shutdown."
    assert reason == TerminationReason("Terminated", message, is_disruption=True)


async def test_pods_that_do_not_end_do_not_hold_the_next(tmp_path: Path) -> None:
    case = Case(tmp_path, FakeClock(), web=0, dns=CRITICAL)
    ending = asyncio.ensure_future(case.keeper.end_pods())
    await case.until("web 20")
    await settle()
    case.clock.advance(20)
    await case.until("dns 10")
    await settle()
    case.clock.advance(10)
    async with asyncio.timeout(20):
        await ending
    assert case.metrics.shutdown_end.value() == START_S + 30
    times = json.loads(case.record.read_text())
    assert times == {"startTime": "2026-01-01T00:00:00.000000Z",
                     "endTime": "2026-01-01T00:00:30.000000Z"}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        (None, 0, 0),
        ('{"startTime":"2026-01-01T00:00:00Z","endTime":"2026-01-01T00:00:09Z"}', START_S, 9),
        ("{", 0, 0),
        ("[]", 0, 0),
        ('{"startTime":5}', 0, 0),
    ],
)
async def test_the_last_shutdown_is_known_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, start: float, end: float
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    case = Case(tmp_path, FakeClock())
    if text is not None:
        case.record.write_text(text)
    async with running(case.keeper.run()):
        await until(lambda: case.clock.next_s is not None, case.done)
        assert case.metrics.shutdown_start.value() == start
        assert case.metrics.shutdown_end.value() == (start + end if end else 0)


async def test_without_logind_it_is_said_once_and_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    case = Case(tmp_path, FakeClock())
    async with running(case.keeper.run()):
        for attempt in range(3):
            await until(lambda: case.clock.slept > attempt, attempt)  # noqa: B023
            case.clock.advance(10)
    texts = [record.getMessage() for record in caplog.records]
    assert sum("shutdowns of the host are not noticed" in text for text in texts) == 1
    assert case.done == []


@pytest.fixture
def on_bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[FakeLogind]:
        async with bus(tmp_path) as path, logind_on(path, tmp_path / "conf.d") as logind:
            monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={path}")
            yield logind

    return opened


@pytest.mark.skipif(IS_MISSING, reason="needs dbus-daemon and systemd's programs")
async def test_the_host_waits_for_the_pods_and_a_cancelled_shutdown_brings_the_node_back(
    tmp_path: Path, on_bus: Callable[[], Any]
) -> None:
    case = Case(tmp_path, SystemClock(), web=0)
    async with on_bus() as logind:
        async with running(case.keeper.run()):
            await logind.until(lambda: len(logind.held) == 1)
            assert logind.delay_us == 30_000_000
            await logind.announce(True)
            await case.until("web 20")
            assert case.done == ["node node is shutting down", "event True", "web 20"]
            assert len(logind.held) == 1
            case.workers["web"].over.set()
            await logind.until(lambda: not logind.held)
            assert case.metrics.shutdown_end.value() > 0
            await logind.announce(False)
            await logind.until(lambda: len(logind.held) == 1)
            assert case.done[3:] == ["web over", "node ready", "event False"]
        await logind.until(lambda: not logind.held)
