"""What the supervisor does in simulated time, with processes that do what a test's script says."""

from __future__ import annotations

import errno
import json
import os
import selectors
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from moorage.cluster.layout import Layout
from moorage.cluster.supervision.probes import Patience
from moorage.cluster.supervision.supervisor import (
    COMPLETE,
    NOTIFY_VARIABLE,
    PORT_TAKEN_STATUS,
    READY_MESSAGE,
    AlreadyRunningError,
    Part,
    PortTakenError,
    Supervisor,
    hold_lock,
)
from tests.descriptors import open_descriptors

PATIENCE = Patience(period_s=2.0, answer_s=1.0, deadline_s=10.0)
STOP_S = 20.0


class FakeTime(selectors.DefaultSelector):
    """A selector in which waiting takes no time: the clock moves on to the next event or deadline.

    When nothing is left to wait for, or at `end`, the supervisor gets SIGTERM.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.end = 5000.0
        self.waits: list[float | None] = []
        self.watched: list[set[int]] = []
        self._events: list[tuple[float, Callable[[], object]]] = []

    def at(self, moment: float, event: Callable[[], object]) -> None:
        self._events.append((moment, event))

    def select(self, timeout: float | None = None) -> Any:
        self.watched.append({key.fd for key in self.get_map().values()})
        if timeout == 0 or super().select(0):
            return super().select(0)
        self.waits.append(timeout)
        soonest = min(self._events, key=lambda event: event[0], default=(self.end, _stop))
        if timeout is not None and self.now + timeout < min(soonest[0], self.end):
            self.now += timeout
        elif soonest[0] >= self.end:
            self.now = self.end
            _stop()
        else:
            self._events.remove(soonest)
            self.now = max(self.now, soonest[0])
            soonest[1]()
        return super().select(0)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


class FakeProcess:
    """A process of a part: its script, given the process, says what happens to it and when."""

    def __init__(self, pid: int, time: FakeTime, pipe: int, journal: list[tuple[int, str]]) -> None:
        self.pid, self.time, self.pipe, self.journal = pid, time, pipe, journal
        self.began = time.now
        self.returncode: int | None = None
        self.is_stubborn = False

    def after(self, seconds: float, event: Callable[[], object]) -> None:
        self.time.at(self.began + seconds, lambda: self.returncode is None and event())

    def says(self, seconds: float, message: bytes) -> None:
        self.after(seconds, lambda: os.write(self.pipe, message))

    def ends(self, seconds: float, status: int) -> None:
        self.after(seconds, lambda: self.exit(status))

    def beats(self, begin: float, end: float) -> None:
        for second in range(int(begin), int(end)):
            self.says(second + 0.5, b".")

    def exit(self, status: int) -> None:
        self.returncode = status
        os.close(self.pipe)

    def poll(self) -> int | None:
        return self.returncode

    def terminate(self) -> None:
        self.journal.append((self.pid, "terminate"))
        if not self.is_stubborn and self.returncode is None:
            self.exit(-signal.SIGTERM)

    def kill(self) -> None:
        self.journal.append((self.pid, "kill"))
        if self.returncode is None:
            self.exit(-signal.SIGKILL)

    def wait(self, timeout_s: float | None = None) -> None:
        self.journal.append((self.pid, f"wait {timeout_s}"))
        if self.returncode is None:
            assert timeout_s is not None
            raise subprocess.TimeoutExpired("x", timeout_s)


Script = Callable[[FakeProcess], object]


class Run:
    """A supervisor's life from its start to SIGTERM. Each part has scripts, one for each start."""

    def __init__(self, root: Path) -> None:
        self.layout = Layout(root)
        self.time = FakeTime()
        self.reports: list[tuple[float, str]] = []
        self.states: list[dict[str, Any]] = []
        self.starts: list[tuple[float, str]] = []
        self.journal: list[tuple[int, str]] = []

    def of(self, *parts: tuple[Part, list[Script]], until: float = 4000.0) -> Run:
        """Run the parts for `until` seconds at most; the last script is for all later starts."""
        self.time.end = self.time.now + until
        scripts = {part.label: list(rows) for part, rows in parts}

        def start(argv: Sequence[str], *, environment: Any = None, **_: Any) -> Any:
            pid = 100 + len(self.starts)
            self.starts.append((self.time.now - 1000, argv[-1]))
            rows = scripts[argv[-1]]
            row = rows.pop(0) if len(rows) > 1 else rows[0]
            # As the kernel gives a child its own copy of the pipe.
            process = FakeProcess(
                pid, self.time, os.dup(int(environment[NOTIFY_VARIABLE])), self.journal
            )
            row(process)
            return process

        supervisor = Supervisor(
            self.layout, [part for part, _ in parts], self._report, PATIENCE,
            clock=lambda: self.time.now, selector=self.time, start=start,
        )  # fmt: skip
        assert supervisor.run() == signal.SIGTERM
        return self

    def _report(self, report: str) -> None:
        self.reports.append((self.time.now - 1000, report))
        self.states.append(self.parts())

    def parts(self) -> dict[str, Any]:
        """Return the parts in the state file."""
        try:
            parts: dict[str, Any] = json.loads(self.layout.state.read_text())["parts"]
        except FileNotFoundError:
            return {}
        return parts

    def said(self, text: str) -> list[tuple[float, str]]:
        return [(at, report) for at, report in self.reports if text in report]


def a_part(name: str = "one", **fields: Any) -> Part:
    return Part(name, f"part {name}", ("/bin/true", f"part {name}"), **fields)


def ready(process: FakeProcess) -> None:
    process.says(0, READY_MESSAGE)


def hangs(_process: FakeProcess) -> None:
    """It is never ready."""


def lives(seconds: float, status: int = 7) -> Script:
    return lambda process: process.ends(seconds, status)


@pytest.mark.parametrize(
    ("lives_s", "longest_s", "waits_s"),
    [
        ((0,) * 8, 30.0, (0.5, 1, 2, 4, 8, 16, 30, 30)),
        ((0, 0, 0), 1.5, (0.5, 1, 1.5)),
        ((0, 0, 59.5, 60, 0), 30.0, (0.5, 1, 2, 0.5, 1)),
    ],
)
def test_a_part_is_started_again_later_and_later(
    tmp_path: Path, lives_s: tuple[float, ...], longest_s: float, waits_s: tuple[float, ...]
) -> None:
    part = a_part(longest_restart_s=longest_s, notifies=False)
    run = Run(tmp_path).of((part, [*map(lives, lives_s), ready]))
    at, wanted = 0.0, [0.0]
    for life_s, wait_s in zip(lives_s, waits_s, strict=True):
        at += life_s + wait_s
        wanted.append(at)
    assert [start for start, _ in run.starts] == pytest.approx(wanted)
    assert [report for _, report in run.said("ended")] == [
        f"part one ended (exit status 7); again in {wait_s:g} s; its log: {run.layout.log('one')}"
        for wait_s in waits_s
    ]


def test_the_state_file_shows_each_part_while_the_supervisor_runs(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    def dies(process: FakeProcess) -> None:
        process.says(1.5, READY_MESSAGE)
        process.ends(2, -9)
        process.time.at(process.time.now + 2.25, lambda: seen.append(run.parts()))

    run = Run(tmp_path)
    run.of((a_part(), [dies, ready]), (a_part("two"), [ready]))
    nothing = {"pid": None, "restarts": 0, "ready_after_s": None, "last_end": ""}
    assert run.states[0] == {
        "one": {**nothing, "state": "starting", "pid": 100},
        "two": {**nothing, "state": "ready", "pid": 101, "ready_after_s": 0},
    }
    assert run.states[1]["one"] == {
        **nothing, "state": "ready", "pid": 100, "ready_after_s": 1.5
    }  # fmt: skip
    ended = {"restarts": 1, "ready_after_s": 1.5, "last_end": "ended (signal SIGKILL)"}
    assert seen[0]["one"] == {"state": "restarting", "pid": None, **ended}
    assert run.reports == [
        (0, "part two ready (0.00 s)"),
        (1.5, "part one ready (1.50 s)"),
        (1.5, COMPLETE),
        (2, "part one ended (signal SIGKILL); again in 0.5 s; its log: "
            f"{run.layout.log('one')}"),
        (2.5, "part one ready (2.50 s)"),
    ]  # fmt: skip
    assert not run.layout.state.exists()
    # A part that can be asked nothing needs no waking.
    assert run.time.waits[-1] is None


@pytest.mark.parametrize(
    ("script", "restarts", "listens_on", "ends"),
    [
        (lives(0, PORT_TAKEN_STATUS), 1, "port 1", True),
        (lives(0, PORT_TAKEN_STATUS), 6, "", False),
        (lives(0, 1), 6, "port 1", False),
        (lambda process: (ready(process), process.ends(1, PORT_TAKEN_STATUS)), 6, "port 1", False),
    ],
)  # fmt: skip
def test_when_a_port_that_is_taken_ends_the_start(
    tmp_path: Path, script: Script, restarts: int, listens_on: str, ends: bool
) -> None:
    # The first time, the process that has the port may be ending.
    run, part = Run(tmp_path), a_part(listens_on=listens_on)
    if ends:
        with pytest.raises(PortTakenError, match="part one cannot listen on port 1"):
            run.of((part, [script]))
    else:
        run.of((part, [*[script] * restarts, ready]))
    assert len(run.starts) == restarts + 1
    with hold_lock(run.layout):
        assert not run.layout.state.exists()


def test_a_slow_start_is_reported_then_killed_and_the_next_has_twice_the_time(
    tmp_path: Path,
) -> None:

    def lives_a_second(process: FakeProcess) -> None:
        ready(process)
        process.ends(1, 0)

    run = Run(tmp_path).of((a_part(), [*[hangs] * 5, lives_a_second, hangs, ready]))
    first = [(at, said) for at, said in run.reports if at <= 120]
    assert first == [
        (10, f"part one is not ready after 10 s; its log: {run.layout.log('one')}"),
        (120, "part one: not ready after 120 s; it is killed and started again"),
        (120, "part one ended (signal SIGKILL); again in 0.5 s; "
              f"its log: {run.layout.log('one')}"),
    ]  # fmt: skip
    # At most 960 s, and as long as at first after a start that succeeded.
    assert [said.split()[5] for _, said in run.said("it is killed")] == [
        "120", "240", "480", "960", "960", "120"
    ]  # fmt: skip
    assert run.states[-1]["one"]["last_end"] == "killed: not ready after 120 s"


def probe_of(*answers: str) -> Callable[[], Iterator[tuple[int, int]]]:
    """A probe that is answered at once, refused, or never answered; the last for ever."""
    remaining = list(answers)

    def probe() -> Iterator[tuple[int, int]]:
        answer = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        if answer == "refused":
            raise ConnectionRefusedError
        if answer == "silence":
            read_end, write_end = os.pipe()
            try:
                yield read_end, selectors.EVENT_READ
            finally:
                os.close(read_end)
                os.close(write_end)

    return probe


QUIET, AGAIN, KILLED = "does not answer", "answers again", "it is killed"


@pytest.mark.parametrize(
    ("beats", "answers", "beating_s", "wanted"),
    [
        pytest.param(True, None, [(0, 40)], [], id="beats"),
        pytest.param(False, ["answer"], [], [], id="answers"),
        pytest.param(True, ["answer"], [(0, 40)], [], id="both"),
        # Asked each 2 s: one miss is nothing, two are reported, four and 10 s are the end.
        pytest.param(True, None, [(0, 8), (12, 40)], [(12, QUIET), (14, AGAIN)], id="pauses"),
        pytest.param(True, None, [(0, 8), (10, 40)], [], id="one miss"),
        pytest.param(True, None, [(0, 4)], [(8, QUIET), (14, KILLED)], id="no beats"),
        pytest.param(True, ["answer"], [(0, 4)], [(8, QUIET), (14, KILLED)], id="answer alone"),
        pytest.param(
            False, ["answer", "refused"], [], [(6, QUIET), (12, KILLED)], id="refuses"
        ),
        # A second for each answer.
        pytest.param(
            False, ["answer", "silence"], [], [(7, QUIET), (13, KILLED)], id="is silent"
        ),
        pytest.param(
            False, ["silence", "silence", "refused", "answer"], [],
            [(5, QUIET), (8, AGAIN)], id="recovers",
        ),
    ],
)  # fmt: skip
def test_a_part_that_can_be_asked_is_killed_when_it_hangs(
    tmp_path: Path,
    beats: bool,
    answers: list[str] | None,
    beating_s: list[tuple[float, float]],
    wanted: list[tuple[float, str]],
) -> None:
    def script(process: FakeProcess) -> None:
        ready(process)
        for begin, end in beating_s:
            process.beats(begin, end)

    probe: Any = probe_of(*answers) if answers else None
    before = open_descriptors()
    run = Run(tmp_path).of((a_part(beats=beats, probe=probe), [script]), until=14.5)
    texts = (QUIET, AGAIN, KILLED)
    seen = [
        (at, text) for at, said in run.reports for text in texts if f" {text}" in said
    ]  # fmt: skip
    assert seen == wanted
    states = [
        state["one"]["state"] for state, (_, said) in zip(run.states, run.reports, strict=True)
        if QUIET in said or AGAIN in said
    ]  # fmt: skip
    assert states == [
        "not answering" if text == QUIET else "ready" for _, text in wanted if text != KILLED
    ]
    if wanted and wanted[-1][1] == KILLED:
        ((_, killed),) = run.said(KILLED)
        hung_s = 11 if answers and "silence" in answers else 10
        assert killed == f"part one: no answer for {hung_s} s; it is killed and started again"
        assert run.said("again in 0.5 s")
    run.time.close()
    assert open_descriptors() == before


def test_descriptors_of_a_probe_are_watched_while_it_waits_for_them(tmp_path: Path) -> None:
    steps: list[str] = []
    read_end, write_end = os.pipe()

    def probe() -> Iterator[tuple[int, int]]:
        try:
            steps.append("asked")
            yield write_end, selectors.EVENT_WRITE
            steps.append("can write")
            run.time.at(run.time.now + 0.5, lambda: os.write(write_end, b"x"))
            yield read_end, selectors.EVENT_READ
            steps.append(os.read(read_end, 10).decode())
        finally:
            steps.append("closed")

    run = Run(tmp_path)
    run.of((a_part(probe=probe), [ready]), until=3.5)
    assert steps == ["asked", "can write", "x", "closed"]
    for end in (read_end, write_end):
        assert any(end in watched for watched in run.time.watched)
        assert end not in run.time.watched[-1]
        os.close(end)


@pytest.mark.parametrize(
    ("parts", "longest_wait_s"),
    [
        ([(a_part(), ready)], None),
        ([(a_part(beats=True), ready), (a_part("two"), ready)], 2.0),
        ([(a_part(), hangs)], 2.0),
    ],
)
def test_how_long_nothing_has_to_be_done(
    tmp_path: Path, parts: list[tuple[Part, Script]], longest_wait_s: float | None
) -> None:
    run = Run(tmp_path).of(*((part, [script]) for part, script in parts), until=9)
    assert run.time.waits[-1] == longest_wait_s


def test_parts_end_in_reverse_order_and_by_force_if_need_be(tmp_path: Path) -> None:
    def stubborn(process: FakeProcess) -> None:
        ready(process)
        process.is_stubborn = True

    before = open_descriptors()
    run = Run(tmp_path).of(
        (a_part(), [ready]), (a_part("two"), [lives(0)]), (a_part("three"), [stubborn]),
        until=0.25,
    )  # fmt: skip
    assert run.journal == [
        (102, "terminate"), (102, f"wait {STOP_S}"), (102, "kill"), (102, "wait None"),
        (100, "terminate"), (100, f"wait {STOP_S}"),
    ]  # fmt: skip
    run.time.close()
    assert open_descriptors() == before
    assert len(run.starts) == 3


def test_what_ends_at_the_stop_is_not_started_again_and_the_first_signal_counts(
    tmp_path: Path,
) -> None:
    def script(process: FakeProcess) -> None:
        ready(process)

        def stop() -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            process.exit(0)

        process.after(1, stop)

    run = Run(tmp_path).of((a_part(), [script]))
    assert run.reports == [(0, "part one ready (0.00 s)"), (0, COMPLETE)]


def test_unwritable_state_is_reported_once(tmp_path: Path) -> None:
    run = Run(tmp_path)
    scratch = run.layout.state.with_name(f".{run.layout.state.name}.new")
    scratch.mkdir()
    seen: list[int] = []

    def script(process: FakeProcess) -> None:
        process.says(3, READY_MESSAGE)
        process.after(4, scratch.rmdir)
        process.ends(5, 1)

    def again(process: FakeProcess) -> None:
        process.after(1, lambda: seen.append(len(run.said("cannot be written"))))
        process.after(2, scratch.mkdir)
        process.ends(3, 1)

    run.of((a_part(), [script, again, ready]))
    assert seen == [1]
    assert len(run.said("the state cannot be written: ")) == 2


def test_a_part_that_cannot_be_started_is_tried_again_and_keeps_no_descriptor(
    tmp_path: Path,
) -> None:
    part = Part("one", "part one", (str(tmp_path / "none"),))
    reports: list[str] = []
    time = FakeTime()
    time.end = time.now + 2
    before = open_descriptors()
    seen: list[int] = []
    time.at(time.now + 1.75, lambda: seen.append(open_descriptors()))
    Supervisor(
        Layout(tmp_path), [part], reports.append, PATIENCE,
        clock=lambda: time.now, selector=time,
    ).run()  # fmt: skip
    # The lock, and both ends of the pipe that a signal wakes it with.
    assert seen == [before + 3]
    assert all(report.startswith("part one cannot be started (") for report in reports)
    assert [report.partition("; ")[2].partition(";")[0] for report in reports] == [
        "again in 0.5 s", "again in 1 s", "again in 2 s"
    ]  # fmt: skip


@pytest.mark.parametrize("notifies", [True, False])
def test_a_part_has_its_log_its_environment_and_the_pipe(tmp_path: Path, notifies: bool) -> None:
    script = f"echo ready > /dev/fd/${NOTIFY_VARIABLE}; echo $A >&2; echo said; exit 3"
    part = Part("one", "part one", ("/bin/sh", "-c", script), notifies=notifies,
                environment={"A": "b"})  # fmt: skip
    reports: list[str] = []

    def report(text: str) -> None:
        reports.append(text)
        if "ended" in text:
            _stop()

    Supervisor(Layout(tmp_path), [part], report, PATIENCE).run()
    assert Layout(tmp_path).log("one").read_text().splitlines() == ["b", "said"]
    assert any("part one ready" in report for report in reports) == notifies
    assert "ended (exit status 3)" in reports[-1]


def test_the_lock_holds_the_process_id(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "d")
    layout.root.mkdir()
    layout.lock.write_text("12345678901234567890")
    with hold_lock(layout):
        assert layout.lock.read_text() == str(os.getpid())
    assert layout.root.stat().st_mode & 0o777 == 0o700


def test_holder_that_ends_meanwhile_has_no_process_id(tmp_path: Path) -> None:
    # The kernel's locks are of processes, so that only another one can be refused.
    layout = Layout(tmp_path)
    layout.lock.write_text("7")
    before = open_descriptors()
    for number in (errno.EACCES, errno.EAGAIN):
        with pytest.raises(AlreadyRunningError) as refused:
            hold_lock(layout, _refusing(number))
        assert open_descriptors() == before
        assert refused.value.pid == 0
        assert str(refused.value) == (
            f"a cluster already runs on {tmp_path} (supervisor process 0); `moor status` shows "
            "it, `moor down` stops it"
        )
        assert layout.lock.read_text() == "7"
    with pytest.raises(OSError, match="No locks available"):
        hold_lock(layout, _refusing(errno.ENOLCK))
    assert open_descriptors() == before


def _refusing(number: int) -> Callable[[object, int], None]:
    def refuse(_file: object, _operation: int) -> None:
        raise OSError(number, os.strerror(number))

    return refuse
