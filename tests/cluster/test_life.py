"""Starting detached, stopping, and telling how a cluster is, with short-lived supervisors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.cluster import life
from moorage.cluster.layout import Layout
from moorage.cluster.life import (
    StartError,
    StopError,
    memory_of,
    part_statuses,
    start_detached,
    stop_parts,
)
from moorage.cluster.notify import notify_ready
from moorage.cluster.settings import save
from moorage.cluster.supervise import parts_of, usage
from moorage.cluster.supervisor import NOTIFY_VARIABLE, READY_MESSAGE, read_state, running_pid
from tests.cluster.programs import write_program
from tests.cluster.test_settings import SETTINGS
from tests.running import until

HOLDS = """
import signal, sys
from pathlib import Path
from moorage.cluster.layout import Layout
from moorage.cluster.supervisor import hold_lock
lock = hold_lock(Layout(Path(sys.argv[1])))
print("held", flush=True)
if sys.argv[2] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("deaf", flush=True)
signal.pause()
signal.pause()
"""


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "a b")


Replace = Callable[[str], None]


@pytest.fixture
def replace(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> Replace:
    """Has a shell script run where the supervisor would."""

    def replaced(script: str) -> None:
        program = write_program(layout.root, "python", script)
        monkeypatch.setattr(life.sys, "executable", str(program))

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
    waiting = life.select.select

    def interrupted(*arguments: object) -> object:
        # The wait begins, and Ctrl-C comes once the process is there.
        timer = threading.Thread(target=_interrupt_when, args=(layout.root / "pid",))
        timer.start()
        return waiting(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(life.select, "select", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start_detached(layout, 20)
    assert memory_of(int((layout.root / "pid").read_text())) is None


def _interrupt_when(path: Path) -> None:
    while not (path.exists() and path.read_text().strip()):
        os.sched_yield()
    os.kill(os.getpid(), signal.SIGINT)


def test_stopping_what_does_not_run(layout: Layout) -> None:
    assert not stop_parts(layout)
    layout.root.mkdir()
    # One that was killed leaves its number, which may be another's by now.
    layout.lock.write_text(str(os.getppid()))
    assert running_pid(layout) is None
    assert not stop_parts(layout)


@pytest.mark.parametrize("kind", ["obedient", "stubborn"])
def test_stopping(layout: Layout, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(life, "_STOP_S", 0.2)
    argv = [sys.executable, "-c", HOLDS, str(layout.root), kind]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(2 if kind == "stubborn" else 1):
            process.stdout.readline()
        # What the file says is not asked: the kernel knows who holds it.
        layout.lock.write_text("1")
        assert running_pid(layout) == process.pid
        if kind == "obedient":
            assert stop_parts(layout)
        else:
            with pytest.raises(StopError, match=f"process {process.pid}"):
                stop_parts(layout)
            assert part_statuses(layout) == ()
            process.kill()


def test_how_a_cluster_is(layout: Layout) -> None:
    assert part_statuses(layout) == ()
    argv = [sys.executable, "-c", HOLDS, str(layout.root), "obedient"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        part = {"state": "ready", "pid": process.pid, "restarts": 2, "ready_after_s": 0.5}
        waiting = {"state": "waiting", "pid": None, "restarts": 0, "ready_after_s": None}
        state = {"pid": 1, "parts": {"apiserver": part, "node": waiting}}
        layout.state.write_text(json.dumps(state))
        rows = {each.part: each for each in part_statuses(layout)}
        assert rows["supervisor"].pid == process.pid
        assert rows["apiserver"].restarts == 2
        assert rows["apiserver"].memory_bytes
        assert rows["node"].memory_bytes is None
        process.kill()


@pytest.mark.parametrize("content", [None, "", '{"pid"'])
def test_a_state_that_is_half_written_is_none(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "state"
    if content is not None:
        path.write_text(content)
    assert read_state(path) is None


def test_readiness_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NOTIFY_VARIABLE, raising=False)
    notify_ready()
    read_end, write_end = os.pipe()
    monkeypatch.setenv(NOTIFY_VARIABLE, str(write_end))
    notify_ready()
    notify_ready()
    assert os.read(read_end, 100) == READY_MESSAGE
    assert os.read(read_end, 100) == b""
    os.close(read_end)


def test_a_starter_that_has_gone_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    monkeypatch.setenv(NOTIFY_VARIABLE, str(write_end))
    notify_ready()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.close(write_end)


SUPERVISES = """
import sys
from pathlib import Path
from moorage.cluster import supervise
from moorage.cluster.supervisor import Part
code = "from moorage.cluster.notify import *; die_with_parent(); notify_ready(); signal.pause()"
part = Part("one", "one", (sys.executable, "-c", "import signal;" + code))
supervise.parts_of = lambda *_: (part,)
sys.exit(supervise.main([sys.argv[1], ""]))
"""


@pytest.mark.parametrize("output", ["closed pipe", "/dev/full"])
def test_a_cluster_that_is_ready_after_its_starter_and_its_reader_went_goes_on(
    layout: Layout, output: str
) -> None:
    layout.root.mkdir()
    save(layout.settings, SETTINGS)
    notify_read, notify_write = os.pipe()
    output_read, output_write = os.pipe()
    with open("/dev/full", "w") as full:
        process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISES, str(layout.root)],
            stdout=full if output == "/dev/full" else output_write,
            env={**os.environ, NOTIFY_VARIABLE: str(notify_write)},
            pass_fds=(notify_write,),
        )
    for end in (notify_read, notify_write, output_read, output_write):
        os.close(end)
    try:
        until(lambda: _part_state(layout) == "ready", "the part's readiness", 20)
        # It must still be there when it has reported that: it answers a request to end.
        assert stop_parts(layout)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def _part_state(layout: Layout) -> str:
    state: Any = read_state(layout.state)
    return str(state["parts"]["one"]["state"]) if state else ""


def test_what_is_started_and_how_it_is_used(layout: Layout) -> None:
    def names(**chosen: Any) -> list[str]:
        settings = msgspec.structs.replace(SETTINGS, **chosen)
        return [part.name for part in parts_of(layout, settings)]

    assert names() == ["apiserver", "engine", "node", "controllers"]
    assert names(cri="unix:///run/x.sock") == ["apiserver", "node", "controllers"]
    assert names(has_node=False) == ["apiserver", "controllers"]
    assert f"export KUBECONFIG='{layout.root}/kubeconfig'\n" in usage(layout, SETTINGS)
    assert "use-context moorage\n" in usage(layout, SETTINGS, "/home/me/.kube/config")
