"""Starting a supervisor as a process of its own."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from moorage.cluster import start
from moorage.cluster.layout import Layout
from moorage.cluster.start import StartError, start_detached
from moorage.cluster.status import memory_of
from moorage.cluster.supervisor import NOTIFY_VARIABLE
from tests.cluster.programs import write_program


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "a b")


Replace = Callable[[str], None]


@pytest.fixture
def replace(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> Replace:
    """Has a shell script run where the supervisor would."""

    def replaced(script: str) -> None:
        program = write_program(layout.root, "python", script)
        monkeypatch.setattr(start.sys, "executable", str(program))

    return replaced


def test_ready_is_when_it_says_so(layout: Layout, replace: Replace) -> None:
    replace(f"echo ready > /proc/$$/fd/${NOTIFY_VARIABLE}; exec sleep 0.1")
    start_detached(layout, 10)


@pytest.mark.parametrize(
    ("script", "within_s", "said"),
    [
        ("echo one; echo two >&2; exit 3", 10, r"the cluster ended; .* ends: one \| two"),
        ("exit 0", 10, r"\(empty\)"),
        ("printf '\\377\\376 bytes'; exit 1", 10, "bytes"),
        ("echo slow; exec sleep 1", 0.2, r"is not ready after 0\.2 s; .*slow"),
    ],
)
def test_why_it_did_not_start(
    layout: Layout, replace: Replace, script: str, within_s: float, said: str
) -> None:
    replace(script)
    with pytest.raises(StartError, match=said):
        start_detached(layout, within_s)


def test_who_interrupts_the_wait_ends_what_was_started(
    layout: Layout, replace: Replace, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace(f"echo $$ > {str(layout.root / 'pid')!r}; exec sleep 60")
    waiting = start.select.select

    def interrupted(*arguments: object) -> object:
        # The wait begins, and Ctrl-C comes once the process is there.
        timer = threading.Thread(target=_interrupt_when, args=(layout.root / "pid",))
        timer.start()
        return waiting(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(start.select, "select", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start_detached(layout, 20)
    assert memory_of(int((layout.root / "pid").read_text())) is None


def _interrupt_when(path: Path) -> None:
    while not (path.exists() and path.read_text().strip()):
        os.sched_yield()
    os.kill(os.getpid(), signal.SIGINT)
