"""How a supervisor is stopped, and the host cleared in a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from moorage.cluster import teardown
from moorage.cluster.engine.paths import engine_paths
from moorage.cluster.errors import LeftoverError, StopError
from moorage.cluster.launching import set_launcher
from moorage.cluster.layout import Layout
from moorage.cluster.supervision.supervise import part_statuses
from moorage.cluster.supervision.supervisor import running_pid
from moorage.cluster.teardown import stop_supervisor
from tests.cluster.holding import HOLDS
from tests.cluster.test_settings import SETTINGS
from tests.descriptors import open_descriptors


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "a b", tmp_path / "run")


async def test_stopping_what_does_not_run(layout: Layout) -> None:
    assert not await stop_supervisor(layout)
    layout.root.mkdir()
    # One that was killed leaves its number, which may be another's by now.
    layout.lock.write_text(str(os.getppid()))
    assert running_pid(layout) is None
    assert not await stop_supervisor(layout)


def test_a_supervisor_that_has_just_ended_is_stopped(layout: Layout) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    assert asyncio.run(stop_supervisor(layout, find_pid=lambda _: ended.pid))


@pytest.mark.parametrize("kind", ["obedient", "stubborn"])
def test_stopping(layout: Layout, kind: str) -> None:
    argv = [sys.executable, "-c", HOLDS, str(layout.root), kind]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(2 if kind == "stubborn" else 1):
            process.stdout.readline()
        # What the file says is not asked: the kernel knows who holds it.
        layout.lock.write_text("1")
        assert running_pid(layout) == process.pid
        before = open_descriptors()
        if kind == "obedient":
            assert asyncio.run(stop_supervisor(layout))
            assert open_descriptors() == before
        else:
            with pytest.raises(StopError) as refused:
                asyncio.run(stop_supervisor(layout, 0.2))
            ending = f"the supervisor (process {process.pid}) has not ended after 0.2 s"
            assert str(refused.value) == ending
            assert part_statuses(layout) == ()
            process.kill()


class Child:
    """The process that clears the host; it waits to be interrupted if `returncode` is None."""

    def __init__(self, returncode: int | None, output: bytes = b"") -> None:
        self.returncode = returncode
        self.output = output
        self.signals: list[int] = []
        self.runs = threading.Event()
        self._ends = threading.Event()
        self.has_ended = False

    def communicate(self) -> tuple[bytes, None]:
        self.runs.set()
        if self.returncode is None:
            assert self._ends.wait(60)
        self.has_ended = True
        return self.output, None

    def send_signal(self, number: int) -> None:
        self.signals.append(number)
        self._ends.set()


@pytest.fixture
def started(layout: Layout) -> Iterator[list[Any]]:
    """What was started, in which way; the child to start is the last item, which is removed."""
    calls: list[Any] = []

    def start(argv: Sequence[str], **options: Any) -> Any:
        child: Child = calls.pop()
        calls.append((argv, {name: value for name, value in options.items() if value}))
        return child

    engine_paths(layout, SETTINGS).run.mkdir(parents=True)
    former = set_launcher(start)
    yield calls
    set_launcher(former)


@pytest.mark.parametrize("abandons_pods", [False, True])
async def test_pods_are_ended_by_a_process_of_its_own(
    layout: Layout, started: list[Any], abandons_pods: bool
) -> None:
    started.append(Child(0))
    await teardown.clear_host_apart(layout, SETTINGS, abandons_pods=abandons_pods)
    argv = [
        sys.executable, "-m", "moorage.cluster.clearing", str(layout.root),
        *(["--abandon-pods"] if abandons_pods else []),
    ]  # fmt: skip
    assert started == [(argv, {"output": subprocess.PIPE})]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (b"pod a stays\n", "pod a stays"),
        (b"\xff", "�"),
        (b" \n", "pods were not ended: exit status 3"),
    ],
)
async def test_what_that_process_could_not_end_is_an_error(
    layout: Layout, started: list[Any], output: bytes, message: str
) -> None:
    started.append(Child(3, output))
    with pytest.raises(LeftoverError) as refused:
        await teardown.clear_host_apart(layout, SETTINGS)
    assert str(refused.value) == message


async def test_that_process_is_interrupted_and_waited_for(
    layout: Layout, started: list[Any]
) -> None:
    child = Child(None)
    started.append(child)
    clearing = asyncio.ensure_future(teardown.clear_host_apart(layout, SETTINGS))
    await asyncio.to_thread(child.runs.wait, 60)
    clearing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await clearing
    assert child.signals == [signal.SIGINT]
    assert child.has_ended


async def test_without_an_engine_that_ran_no_process_is_started(
    layout: Layout, started: list[Any]
) -> None:
    async def clear(*arguments: Any, **more: Any) -> None:
        started.append((*arguments, more))

    engine_paths(layout, SETTINGS).run.rmdir()
    await teardown.clear_host_apart(layout, SETTINGS, abandons_pods=True, clear=clear)
    assert started == [(layout, SETTINGS, {"abandons_pods": True})]
