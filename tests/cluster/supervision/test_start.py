"""Starting a supervisor as a process of its own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from moorage.cluster.errors import StartError
from moorage.cluster.layout import Layout
from moorage.cluster.supervision.start import start_supervisor
from moorage.cluster.supervision.supervisor import NOTIFY_VARIABLE
from moorage.linux.process_memory import resident_bytes
from tests.cluster.programs import write_program
from tests.running import until


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "a b")


Replace = Callable[[str], None]


@pytest.fixture
def replace(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> Replace:
    """Has a shell script run where the supervisor would."""

    def replaced(script: str) -> None:
        program = write_program(layout.root, "python", script)
        monkeypatch.setattr(sys, "executable", str(program))

    return replaced


async def test_a_cluster_is_ready_when_its_supervisor_reports_it(
    layout: Layout, replace: Replace
) -> None:
    replace(f"echo ready > /proc/$$/fd/${NOTIFY_VARIABLE}; exec sleep 0.1")
    await start_supervisor(layout, 10)


@pytest.mark.parametrize(
    ("script", "within_s", "text", "has_ended"),
    [
        ("echo one; echo two >&2; exit 3", 10, r"the cluster ended; .* ends: one \| two", True),
        ("exit 0", 10, r"\(empty\)", True),
        ("printf '\\377\\376 bytes'; exit 1", 10, "bytes", True),
        ("echo slow; exec sleep 1", 0.2, r"is not ready after 0\.2 s; .*slow", False),
    ],
)
async def test_a_start_that_fails_says_why(
    layout: Layout, replace: Replace, script: str, within_s: float, text: str, has_ended: bool
) -> None:
    replace(script)
    with pytest.raises(StartError, match=text) as raised:
        await start_supervisor(layout, within_s)
    assert raised.value.has_ended == has_ended


async def test_a_cancelled_start_ends_the_process_that_it_started(
    layout: Layout, replace: Replace
) -> None:
    path = layout.root / "pid"
    replace(f"echo $$ > {str(path)!r}; exec sleep 60")
    starting = asyncio.create_task(start_supervisor(layout, 20))
    await asyncio.to_thread(until, lambda: path.exists() and bool(path.read_text()), "a process")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert resident_bytes(int(path.read_text())) is None
