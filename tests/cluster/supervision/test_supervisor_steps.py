"""What the supervisor decides at each step: time and processes are the test's."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import selectors
import signal
import subprocess
import time as clock
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.cluster.layout import Layout
from moorage.cluster.supervision import supervisor as module
from moorage.cluster.supervision.probes import Patience
from moorage.cluster.supervision.supervisor import (
    COMPLETE,
    READY_MESSAGE,
    AlreadyRunningError,
    Part,
    PortTakenError,
    Supervisor,
    _Child,
    _ending,
    hold_lock,
)
from tests.descriptors import open_descriptors

pytestmark = pytest.mark.usefixtures("time")


class Process:
    """A process that ends when a test says so; what was done to it is in `done`."""

    def __init__(self, pid: int = 100, status: int | None = None) -> None:
        self.pid = pid
        self.returncode: Any = None
        self.status = status
        self.done: list[str] = []
        self.is_stubborn = False

    def poll(self) -> int | None:
        self.returncode = self.status
        return self.status

    def terminate(self) -> None:
        self.done.append("terminate")

    def kill(self) -> None:
        self.done.append("kill")

    def wait(self, timeout_s: float | None = None) -> None:
        self.done.append(f"wait {timeout_s}")
        if timeout_s is not None and self.is_stubborn:
            raise subprocess.TimeoutExpired("x", timeout_s)


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Bench:
    """A supervisor of parts that are not started."""

    def __init__(self, root: Path, *parts: Part) -> None:
        self.reports: list[str] = []
        self.layout = Layout(root)
        self.layout.logs.mkdir()
        patience = Patience(period_s=2.0, answer_s=1.0, deadline_s=10.0)
        self.supervisor = Supervisor(self.layout, parts, self.reports.append, patience)

    @property
    def children(self) -> list[_Child]:
        return self.supervisor._children

    def running(self, index: int = 0, status: int | None = None) -> tuple[_Child, Process]:
        """A child with a process and a pipe; it receives what is written to `ends`."""
        child, process = self.children[index], Process(100 + index, status)
        child.process = process  # type: ignore[assignment]
        child.started = clock.monotonic()
        read_end, self.end = os.pipe()
        child.pipe = read_end
        self.supervisor._selector.register(read_end, 1, child)
        return child, process

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self.layout.state.read_text())
        return state


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Iterator[Time]:
    time = Time()
    monkeypatch.setattr(clock, "monotonic", time.monotonic)
    yield time
    monkeypatch.undo()


def a_part(name: str = "one", **fields: Any) -> Part:
    return Part(name, f"part {name}", ("/bin/true",), **fields)


def test_exit_status_is_described() -> None:
    assert (_ending(0), _ending(3), _ending(-9)) == (
        "exit status 0", "exit status 3", "signal SIGKILL"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("lived_s", "before_s", "longest_s", "after_s"),
    [
        (0, 0.0, 30, 0.5),
        (0, 0.5, 30, 1),
        (59.9, 4, 30, 8),
        (60, 8, 30, 0.5),
        (0, 20, 30, 30),
        (0, 1.5, 2.0, 2.0),
    ],
)
def test_a_part_is_started_again_later_and_later(
    tmp_path: Path, time: Time, lived_s: float, before_s: float, longest_s: float, after_s: float
) -> None:
    bench = Bench(tmp_path, a_part(longest_restart_s=longest_s))
    child, _ = bench.running(status=7)
    child.backoff_s, child.is_ready, child.ready_after_s = before_s, True, 1.0
    time.now += lived_s
    bench.supervisor._reap()
    assert (child.backoff_s, child.start_at) == (after_s, time.now + after_s)
    assert (child.process, child.is_ready, child.liveness, child.pipe) == (None, False, None, -1)
    assert (child.restarts, child.state, child.last_end) == (
        1,
        "restarting",
        "ended (exit status 7)",
    )
    assert bench.reports == [
        f"part one ended (exit status 7); again in {after_s:g} s; its log: "
        f"{bench.layout.log('one')}"
    ]
    bench.supervisor._reap()
    assert child.restarts == 1


def test_what_runs_is_left_alone_and_what_ends_at_the_stop_is_not_started_again(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, a_part(), a_part("two"))
    running, _ = bench.running()
    ended, _ = bench.running(1, status=0)
    bench.supervisor._is_stopping = True
    bench.supervisor._reap()
    assert running.process is not None
    assert ended.process is None
    assert (ended.restarts, ended.state, bench.reports) == (0, "waiting", [])


@pytest.mark.parametrize(
    ("status", "restarts", "listens_on", "ready_after_s", "ends"),
    [
        (module.PORT_TAKEN_STATUS, 1, "port 1", None, True),
        (module.PORT_TAKEN_STATUS, 0, "port 1", None, False),
        (module.PORT_TAKEN_STATUS, 1, "", None, False),
        (module.PORT_TAKEN_STATUS, 1, "port 1", 0.0, False),
        (1, 1, "port 1", None, False),
    ],
)
def test_when_a_port_that_is_taken_ends_the_start(
    tmp_path: Path, status: int, restarts: int, listens_on: str,
    ready_after_s: float | None, ends: bool,
) -> None:  # fmt: skip
    bench = Bench(tmp_path, a_part(listens_on=listens_on))
    child, _ = bench.running(status=status)
    child.restarts, child.ready_after_s = restarts, ready_after_s
    if ends:
        with pytest.raises(PortTakenError, match="part one cannot listen on port 1"):
            bench.supervisor._reap()
    else:
        bench.supervisor._reap()
        assert child.restarts == restarts + 1


def test_the_first_message_says_that_a_part_is_ready(tmp_path: Path, time: Time) -> None:
    bench = Bench(tmp_path, a_part(), a_part("two", notifies=False))
    child, _ = bench.running()
    child.start_s = 240.0
    time.now += 1.5
    os.write(bench.end, b".")
    bench.supervisor._read_message(child)
    assert (child.has_beaten, child.is_ready, child.state) == (True, False, "starting")
    os.write(bench.end, READY_MESSAGE)
    bench.supervisor._read_message(child)
    assert (child.is_ready, child.ready_after_s, child.liveness) == (True, 1.5, None)
    # The next start may take as long as the first one.
    assert child.start_s == 0.0
    assert bench.reports == ["part one ready (1.50 s)"]
    assert bench.state()["parts"]["one"] == {
        "state": "ready", "pid": 100, "restarts": 0, "ready_after_s": 1.5,
        "last_end": "",
    }  # fmt: skip
    bench.children[1].is_ready = True
    for _ in range(2):
        os.write(bench.end, READY_MESSAGE)
        bench.supervisor._read_message(child)
        bench.supervisor._report_complete()
    assert bench.reports[1:] == [COMPLETE]
    os.close(bench.end)
    bench.supervisor._read_message(child)
    assert child.pipe == -1
    bench.supervisor._close_pipe(child)


@pytest.mark.parametrize("fields", [{"beats": True}, {"probe": lambda: iter(())}])
def test_only_a_part_that_can_be_asked_is(tmp_path: Path, fields: dict[str, Any]) -> None:
    bench = Bench(tmp_path, a_part(**fields))
    child, _ = bench.running()
    bench.supervisor._expect_answers(child)
    attended = bench.supervisor._clock.seconds
    assert child.liveness is not None
    assert child.probe_at == attended + 2.0


def test_how_long_nothing_has_to_be_done(tmp_path: Path, time: Time) -> None:
    bench = Bench(tmp_path, a_part(), a_part("two", beats=True), a_part("three"))
    supervisor = bench.supervisor
    one, two, _ = bench.children
    for index in range(3):
        bench.running(index)[0].is_ready = True
    assert supervisor._timeout() is None
    supervisor._expect_answers(two)
    assert supervisor._timeout() == pytest.approx(2.0)
    one.process, one.start_at = None, time.now + 0.5
    assert supervisor._timeout() == pytest.approx(0.5)
    one.start_at = time.now - 9
    assert supervisor._timeout() == 0
    one.start_at = time.now + 100
    probing = ProbeRun(supervisor._clock.seconds + 0.25)
    two.probing = probing  # type: ignore[assignment]
    assert supervisor._timeout() == pytest.approx(0.25)
    # A start is looked at every period until it is overdue.
    two.probing = two.liveness = None
    two.is_ready, two.ready_by = False, supervisor._clock.seconds + 100
    assert supervisor._timeout() == pytest.approx(2.0)
    two.ready_by = supervisor._clock.seconds + 1.5
    assert supervisor._timeout() == pytest.approx(1.5)
    two.killed_for = "x"
    assert supervisor._timeout() == pytest.approx(100)


def test_slow_start_is_reported_then_killed_and_the_next_gets_more_time(
    tmp_path: Path, time: Time
) -> None:
    bench = Bench(tmp_path, a_part())
    child, process = bench.running()
    patience = bench.supervisor._patience
    child.start_s = patience.start_s
    child.ready_by = bench.supervisor._clock.seconds + child.start_s
    began = bench.supervisor._clock.seconds
    for _ in range(2000):
        pass_time(bench, time, 0.5)
        bench.supervisor._probe_due()
        waited_s = bench.supervisor._clock.seconds - began
        assert bool(bench.reports) == (waited_s >= patience.deadline_s)
        if process.done:
            break
    assert waited_s == patience.start_s
    assert bench.reports == [
        f"part one is not ready after {patience.deadline_s:.0f} s; "
        f"its log: {bench.layout.log('one')}",
        f"part one: not ready after {patience.start_s:.0f} s; it is killed and started again",
    ]
    assert (process.done, child.is_starting) == (["kill"], False)
    assert child.start_s == 2 * patience.start_s
    process.status = -9
    bench.supervisor._reap()
    assert child.last_end == f"killed: not ready after {patience.start_s:.0f} s"
    child.start_s, child.process, child.killed_for = 900.0, process, ""  # type: ignore[assignment]
    child.ready_by = bench.supervisor._clock.seconds
    bench.supervisor._probe_due()
    assert child.start_s == patience.longest_start_s


class ProbeRun:
    def __init__(self, deadline: float, answers: object = False) -> None:
        self.deadline = deadline
        self.answers = answers
        self.is_stopped = False
        self.child: Any = None

    def advance(self, _selector: object) -> bool:
        if isinstance(self.answers, OSError):
            raise self.answers
        return bool(self.answers)

    def stop(self, _selector: object) -> None:
        self.is_stopped = True


def asked(tmp_path: Path, **fields: Any) -> tuple[Bench, _Child, Process]:
    bench = Bench(tmp_path, a_part(**fields))
    child, process = bench.running()
    child.is_ready = True
    bench.supervisor._expect_answers(child)
    return bench, child, process


def pass_time(bench: Bench, time: Time, seconds: float) -> None:
    """Attended time passes: the supervisor is awake meanwhile."""
    for _ in range(round(seconds / 0.5)):
        time.now += 0.5
        bench.supervisor._clock.tick(time.now)


def test_a_part_that_only_beats_is_asked_every_period_and_killed_when_it_hangs(
    tmp_path: Path, time: Time
) -> None:
    bench, child, process = asked(tmp_path, beats=True)
    pass_time(bench, time, 1.5)
    bench.supervisor._probe_due()
    before = child.probe_at
    pass_time(bench, time, 0.5)
    child.has_beaten = True
    bench.supervisor._probe_due()
    assert child.probe_at == before + 2.0
    assert not child.has_beaten
    assert (child.state, bench.reports) == ("ready", [])
    for _ in range(2):
        pass_time(bench, time, 2)
        bench.supervisor._probe_due()
    assert (child.state, bench.reports) == ("not answering", ["part one does not answer"])
    assert bench.state()["parts"]["one"]["state"] == "not answering"
    child.has_beaten = True
    pass_time(bench, time, 2)
    bench.supervisor._probe_due()
    assert bench.reports[1:] == ["part one answers again"]
    assert process.done == []
    for _ in range(6):
        pass_time(bench, time, 2)
        bench.supervisor._probe_due()
    assert process.done == ["kill"]
    assert child.liveness is None
    assert bench.reports[-1].startswith("part one: no answer for ")
    assert bench.reports[-1].endswith(" s; it is killed and started again")
    assert child.killed_for.startswith("no answer for ")
    assert bench.supervisor._timeout() is None


@pytest.mark.parametrize(
    ("answer", "has_beaten", "beats", "is_answered"),
    [
        (True, False, False, True),
        (True, True, True, True),
        (True, False, True, False),
        (OSError("refused"), True, True, False),
    ],
)
def test_an_answer_counts_with_a_beat_where_the_part_beats(
    tmp_path: Path, time: Time, answer: object, has_beaten: bool, beats: bool, is_answered: bool
) -> None:
    bench, child, _ = asked(tmp_path, beats=beats, probe=lambda: iter(()))
    probing: Any = ProbeRun(5, answer)
    probing.child, child.probing, child.has_beaten = child, probing, has_beaten
    before = child.liveness.answered_at if child.liveness else 0
    pass_time(bench, time, 1)
    bench.supervisor._advance(probing)
    assert (probing.is_stopped, child.probing, child.has_beaten) == (True, None, False)
    assert child.liveness is not None
    assert (child.liveness.answered_at > before) == is_answered
    bench.supervisor._advance(probing)


def test_an_answer_that_is_overdue_is_given_up(tmp_path: Path, time: Time) -> None:
    bench, child, _ = asked(tmp_path, probe=lambda: iter(()))
    probing: Any = ProbeRun(bench.supervisor._clock.seconds + 1)
    probing.child, child.probing = child, probing
    pass_time(bench, time, 0.5)
    bench.supervisor._advance(probing)
    bench.supervisor._probe_due()
    assert child.probing is probing
    pass_time(bench, time, 0.5)
    bench.supervisor._probe_due()
    assert (child.probing, probing.is_stopped) == (None, True)  # type: ignore[union-attr]  # a fake


def test_parts_end_in_reverse_order_and_by_force_if_need_be(tmp_path: Path) -> None:
    bench = Bench(tmp_path, a_part(), a_part("two"), a_part("three"))
    _, first = bench.running(0)
    _, last = bench.running(2)
    last.is_stubborn = True
    order: list[int] = []
    for process in (first, last):

        def terminate(process: Any = process) -> None:
            order.append(process.pid)
            process.done.append("terminate")

        process.terminate = terminate  # type: ignore[method-assign]  # it records the order
    bench.supervisor._stop_all()
    assert order == [102, 100]
    assert first.done == ["terminate", "wait 20.0"]
    assert last.done == ["terminate", "wait 20.0", "kill", "wait None"]
    assert [child.pipe for child in bench.children] == [-1, -1, -1]


def test_unwritable_state_is_reported_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, a_part())
    scratch = bench.layout.state.with_name(f".{bench.layout.state.name}.new")
    scratch.mkdir()
    for _ in range(2):
        bench.supervisor._save_state()
    assert len(bench.reports) == 1
    assert bench.reports[0].startswith("the state cannot be written: ")
    scratch.rmdir()
    bench.supervisor._save_state()
    assert bench.state() == {
        "pid": os.getpid(),
        "parts": {
            "one": {
                "state": "waiting",
                "pid": None,
                "restarts": 0,
                "ready_after_s": None,
                "last_end": "",
            }
        },
    }
    scratch.mkdir()
    bench.supervisor._save_state()
    assert len(bench.reports) == 2


def test_a_part_that_cannot_be_started_is_tried_again_and_keeps_no_descriptor(
    tmp_path: Path, time: Time
) -> None:
    bench = Bench(tmp_path, Part("one", "part one", (str(tmp_path / "none"),)))
    before = open_descriptors()
    bench.supervisor._start_due()
    child = bench.children[0]
    assert open_descriptors() == before
    assert (child.process, child.restarts, child.start_at) == (None, 1, time.now + 0.5)
    assert "part one cannot be started (" in bench.reports[0]
    bench.supervisor._start_due()
    assert child.restarts == 1
    time.now += 1
    bench.supervisor._start_due()
    assert child.restarts == 2


@pytest.mark.parametrize("notifies", [True, False])
def test_a_part_has_its_log_its_environment_and_the_pipe(tmp_path: Path, notifies: bool) -> None:
    script = f"echo $A >&2; echo said; printf x >&${module.NOTIFY_VARIABLE}; ps -o sid= -p $$"
    part = Part("one", "part one", ("/bin/sh", "-c", f"eval '{script}'"), notifies=notifies,
                environment={"A": "b"})  # fmt: skip
    bench = Bench(tmp_path, part)
    bench.supervisor._start_due()
    child = bench.children[0]
    assert child.process is not None
    assert child.is_ready != notifies
    assert child.process.wait(20) is not None
    assert bench.layout.log("one").read_text().splitlines()[:2] == ["b", "said"]
    assert not os.get_blocking(child.pipe)
    bench.supervisor._close_pipe(child)


def test_the_first_signal_counts(tmp_path: Path) -> None:
    bench = Bench(tmp_path, a_part())
    bench.supervisor._on_stop(signal.SIGTERM, None)
    bench.supervisor._on_stop(signal.SIGINT, None)
    assert bench.supervisor._stop_signal == signal.SIGTERM
    assert bench.supervisor._is_stopping


def test_the_lock_holds_the_process_id(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "d")
    layout.root.mkdir()
    layout.lock.write_text("12345678901234567890")
    with hold_lock(layout):
        assert layout.lock.read_text() == str(os.getpid())
    assert layout.root.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("number", [errno.EACCES, errno.EAGAIN])
def test_holder_that_ends_meanwhile_has_no_process_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    layout = Layout(tmp_path)
    layout.lock.write_text("7")
    monkeypatch.setattr(fcntl, "lockf", _refusing(number))
    before = open_descriptors()
    with pytest.raises(AlreadyRunningError) as refused:
        hold_lock(layout)
    assert open_descriptors() == before
    assert refused.value.pid == 0
    assert str(refused.value) == (
        f"a cluster already runs on {tmp_path} (supervisor process 0); `moor status` shows it, "
        "`moor down` stops it"
    )
    assert layout.lock.read_text() == "7"


def test_lock_that_fails_for_another_reason_is_that_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "lockf", _refusing(errno.ENOLCK))
    before = open_descriptors()
    with pytest.raises(OSError, match="No locks available"):
        hold_lock(Layout(tmp_path))
    assert open_descriptors() == before


def _refusing(number: int) -> Callable[[object, int], None]:
    def refuse(_file: object, operation: int) -> None:
        assert operation == fcntl.LOCK_EX | fcntl.LOCK_NB
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize("is_stopped", [True, False])
def test_descriptors_of_a_probe_are_registered_while_it_waits_for_them(
    tmp_path: Path, is_stopped: bool
) -> None:
    ended: list[str] = []

    def probe() -> Iterator[tuple[int, int]]:
        try:
            yield read_end, selectors.EVENT_READ
            yield write_end, selectors.EVENT_WRITE
        finally:
            ended.append("ended")

    bench = Bench(tmp_path, a_part())
    read_end, write_end = os.pipe()
    run: Any = module._ProbeRun(bench.children[0], probe(), 5.0)  # type: ignore[arg-type]
    assert (run.child, run.deadline) == (bench.children[0], 5.0)
    with selectors.DefaultSelector() as selector:
        steps = []
        for _ in range(2):
            assert not run.advance(selector)
            steps.append([(key.fd, key.events, key.data) for key in selector.get_map().values()])
        assert steps == [
            [(read_end, selectors.EVENT_READ, run)], [(write_end, selectors.EVENT_WRITE, run)]
        ]  # fmt: skip
        if is_stopped:
            run.stop(selector)
        else:
            assert run.advance(selector)
            run.stop(selector)
        assert not selector.get_map()
    assert ended == ["ended"]
    os.close(read_end)
    os.close(write_end)
