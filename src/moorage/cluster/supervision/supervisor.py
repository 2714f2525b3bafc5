"""Supervisor of a cluster's parts: starts them, restarts those that end or hang, stops them.

One small process without event loop: each part is a child that writes `ready` to a pipe; one that
dies is restarted with increasing delay. A ready part is checked every few seconds: by a heartbeat
of its event loop on the pipe and by a probe of the socket it serves on; one that hangs is killed
and restarted, as is one that is not ready in time. Children die with the supervisor (parent death
signal), so killing it by force leaves no partial cluster, while pods, which are not its children,
go on. A state file holds the status for `moor status`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import selectors
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from moorage.cluster.errors import ClusterError
from moorage.cluster.launching import Launcher, launch
from moorage.cluster.layout import Layout
from moorage.cluster.supervision.probes import AttendedClock, Liveness, MakeProbe, Patience, Probe
from moorage.linux.atomic_file import replace_file
from moorage.linux.log_file import rotate_if_full
from moorage.linux.trust import make_private

NOTIFY_VARIABLE = "MOORAGE_NOTIFY_FD"
READY_MESSAGE = b"ready\n"
PORT_TAKEN_STATUS = 76
"""Exit status of a part whose port another program has."""
COMPLETE = "cluster ready"
"""Report once every part is ready for the first time."""
# struct flock: l_type, l_whence, l_start, l_len, l_pid. Source: fcntl(2).
_FLOCK = "hhqqi"

_FIRST_RESTART_S = 0.5
_LONGEST_RESTART_S = 30.0
_STEADY_S = 60.0
_STOP_S = 20.0
# All that a pipe holds, so that a message is never read in two halves.
_PIPE_BYTES = 64 * 1024
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Report = Callable[[str], None]


class AlreadyRunningError(ClusterError):
    """Another supervisor holds this data directory."""

    def __init__(self, layout: Layout, pid: int) -> None:
        super().__init__(
            f"a cluster already runs on {layout.root} (supervisor process {pid}); "
            f"`moor status` shows it, `moor down` stops it"
        )
        self.pid = pid


class PortTakenError(ClusterError):
    """Another program has a part's port."""

    def __init__(self, part: Part) -> None:
        super().__init__(
            f"{part.label} cannot listen on {part.listens_on}: another program does; stop it, or "
            "choose another port with the option"
        )


@dataclass(frozen=True, slots=True)
class Part:
    """A process to keep running. `label` is its name in messages; `notifies`: it reports readiness.

    `beats`: its event loop writes to the pipe every few seconds. `probe` makes a probe of its
    socket. `listens_on` is the address that another program may have, with the option to change
    it. `longest_restart_s` limits the wait before a restart.
    """

    name: str
    label: str
    argv: tuple[str, ...]
    notifies: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    beats: bool = False
    probe: MakeProbe | None = None
    listens_on: str = ""
    longest_restart_s: float = _LONGEST_RESTART_S


class _ProbeRun:
    """A running probe. Its descriptor is registered with a selector."""

    def __init__(self, child: _Child, probe: Probe, deadline: float) -> None:
        self.child = child
        self.deadline = deadline
        self._probe = probe
        self._descriptor = -1

    def advance(self, selector: selectors.BaseSelector) -> bool:
        """Take the next step. Return True if the part has answered. Raises OSError."""
        self._unregister(selector)
        try:
            self._descriptor, events = next(self._probe)
        except StopIteration:
            return True
        selector.register(self._descriptor, events, self)
        return False

    def stop(self, selector: selectors.BaseSelector) -> None:
        """Abort the probe."""
        self._unregister(selector)
        self._probe.close()

    def _unregister(self, selector: selectors.BaseSelector) -> None:
        if self._descriptor >= 0:
            selector.unregister(self._descriptor)
            self._descriptor = -1


@dataclass(slots=True)
class _Child:
    part: Part
    process: subprocess.Popen[bytes] | None = None
    pipe: int = -1
    started: float = 0.0
    is_ready: bool = False
    ready_after_s: float | None = None
    restarts: int = 0
    backoff_s: float = 0.0
    start_at: float = 0.0
    """When to start the process (again), on the monotonic clock; only without process."""
    liveness: Liveness | None = None
    """The answers of a process that is ready and can be probed."""
    probe_at: float = 0.0
    """When to probe next, on the attended clock."""
    ready_by: float = 0.0
    """When to give up on a start, on the attended clock."""
    start_s: float = 0.0
    """Deadline of a start in seconds; 0 for that of the first start."""
    is_reported_slow: bool = False
    killed_for: str = ""
    """Why the supervisor killed the process."""
    last_end: str = ""
    """How the previous process ended."""
    has_beaten: bool = False
    probing: _ProbeRun | None = None

    @property
    def state(self) -> str:
        if self.process is None:
            return "restarting" if self.restarts else "waiting"
        if self.liveness is not None and self.liveness.is_quiet:
            return "not answering"
        return "ready" if self.is_ready else "starting"

    @property
    def is_starting(self) -> bool:
        return self.process is not None and not self.is_ready and not self.killed_for


class Supervisor:
    """Runs parts until it is stopped. `report` receives a sentence for each change of a part.

    Time passes in `selector.select`, as `clock` shows it in seconds. `start` makes a part's
    process.
    """

    def __init__(
        self,
        layout: Layout,
        parts: Sequence[Part],
        report: Report,
        patience: Patience | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        selector: selectors.BaseSelector | None = None,
        start: Launcher = launch,
    ) -> None:
        self._layout = layout
        self._children = [_Child(part) for part in parts]
        self._report = report
        self._monotonic = clock
        self._selector = selector or selectors.DefaultSelector()
        self._launch = start
        self._is_stopping = False
        self._stop_signal = 0
        self._patience = patience or Patience()
        self._began = self._monotonic()
        # The loop wakes at least that often while any part runs.
        self._clock = AttendedClock(self._began, 2 * self._patience.period_s)
        self._was_complete = False
        self._is_state_stale = False

    def run(self) -> int:
        """Run all parts until SIGTERM, SIGINT or SIGHUP; then stop them. Blocks.

        Returns the number of the first signal. Raises AlreadyRunningError if another supervisor
        holds the data directory, PortTakenError if a part that was never ready cannot listen.
        """
        lock = hold_lock(self._layout)
        make_private(self._layout.logs)
        wake_read, wake_write = os.pipe()
        for end in (wake_read, wake_write):
            os.set_blocking(end, False)
        self._selector.register(wake_read, selectors.EVENT_READ)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        previous = {number: signal.signal(number, self._on_stop) for number in _STOP_SIGNALS}
        previous[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        try:
            while not self._is_stopping:
                self._start_due()
                self._wait(wake_read)
                self._reap()
                self._probe_due()
        finally:
            self._stop_all()
            signal.set_wakeup_fd(-1)
            self._selector.unregister(wake_read)
            for end in (wake_read, wake_write):
                os.close(end)
            for number, handler in previous.items():
                signal.signal(number, handler)
            self._layout.state.unlink(missing_ok=True)
            lock.close()
        return self._stop_signal

    def _on_stop(self, number: int, frame: object) -> None:
        del frame
        # Only the first signal counts.
        self._stop_signal = self._stop_signal or number
        self._is_stopping = True

    def _start_due(self) -> None:
        now = self._monotonic()
        for child in self._children:
            if child.process is None and child.start_at <= now:
                self._start(child)
        self._save_state()

    def _start(self, child: _Child) -> None:
        part = child.part
        read_end, write_end = os.pipe()
        environment = {**os.environ, **part.environment, NOTIFY_VARIABLE: str(write_end)}
        try:
            path = self._layout.log(part.name)
            # A part that ends before it can log leaves a traceback each time.
            rotate_if_full(path)
            with open(path, "ab") as log:
                child.process = self._launch(
                    part.argv,
                    output=log,
                    errors=log,
                    environment=environment,
                    passing=(write_end,),
                )
        except OSError as error:
            # Out of memory, disk full, no program: the other parts keep running; this is retried.
            os.close(read_end)
            self._start_later(child, 0.0, f"cannot be started ({error})")
            return
        finally:
            os.close(write_end)
        os.set_blocking(read_end, False)
        child.pipe = read_end
        child.started = self._monotonic()
        child.is_ready = not part.notifies
        child.start_s = child.start_s or self._patience.start_s
        child.ready_by = self._clock.tick(child.started) + child.start_s
        child.is_reported_slow, child.killed_for = False, ""
        self._selector.register(read_end, selectors.EVENT_READ, child)

    def _wait(self, wake_read: int) -> None:
        for key, _ in self._selector.select(self._timeout()):
            if key.fd == wake_read:
                os.read(wake_read, 4096)
            elif isinstance(key.data, _ProbeRun):
                self._advance(key.data)
            else:
                self._read_message(key.data)

    def _timeout(self) -> float | None:
        """Return the time until the next deadline, None without one."""
        now, attended = self._monotonic(), self._clock.seconds
        waits = [child.start_at - now for child in self._children if child.process is None]
        for child in self._children:
            if child.probing is not None:
                waits.append(child.probing.deadline - attended)
            elif child.liveness is not None:
                waits.append(child.probe_at - attended)
            elif child.is_starting:
                waits.append(min(child.ready_by - attended, self._patience.period_s))
        return max(min(waits), 0.0) if waits else None

    def _read_message(self, child: _Child) -> None:
        message = os.read(child.pipe, _PIPE_BYTES)
        if not message:
            self._close_pipe(child)
            return
        child.has_beaten = True
        if READY_MESSAGE in message and not child.is_ready:
            child.is_ready = True
            child.ready_after_s = self._monotonic() - child.started
            child.start_s = 0.0
            self._expect_answers(child)
            # Before the report, whose reader may read the state at once.
            self._save_state()
            self._report(f"{child.part.label} ready ({self._monotonic() - self._began:.2f} s)")
            self._report_complete()

    def _expect_answers(self, child: _Child) -> None:
        if child.part.beats or child.part.probe is not None:
            now = self._clock.tick(self._monotonic())
            child.liveness = Liveness(self._patience, now)
            child.probe_at = now + self._patience.period_s

    def _probe_due(self) -> None:
        """Probe the parts that are due, and give up on probes and starts that are overdue."""
        now = self._clock.tick(self._monotonic())
        for child in self._children:
            if child.is_starting:
                self._judge_start(child, now)
            if child.probing is not None and child.probing.deadline <= now:
                self._conclude(child, has_answered=False)
            elif child.liveness is not None and child.probing is None and child.probe_at <= now:
                self._probe_child(child, now)

    def _judge_start(self, child: _Child, now: float) -> None:
        patience, process = self._patience, child.process
        assert process is not None
        waited_s = now - (child.ready_by - child.start_s)
        if now >= child.ready_by:
            self._kill(child, f"not ready after {waited_s:.0f} s")
            child.start_s = min(child.start_s * 2, patience.longest_start_s)
        elif waited_s >= patience.deadline_s and not child.is_reported_slow:
            child.is_reported_slow = True
            self._report(
                f"{child.part.label} is not ready after {waited_s:.0f} s; "
                f"its log: {self._layout.log(child.part.name)}"
            )

    def _kill(self, child: _Child, why: str) -> None:
        self._report(f"{child.part.label}: {why}; it is killed and started again")
        assert child.process is not None
        # It may be stopped, or in an endless loop: only SIGKILL ends it in any case.
        child.process.kill()
        child.killed_for = why
        child.liveness = None

    def _probe_child(self, child: _Child, now: float) -> None:
        child.probe_at = now + self._patience.period_s
        if child.part.probe is None:
            self._conclude(child, has_answered=True)
            return
        deadline = now + self._patience.answer_s
        child.probing = _ProbeRun(child, child.part.probe(), deadline)
        self._advance(child.probing)

    def _advance(self, probing: _ProbeRun) -> None:
        child = probing.child
        if child.probing is not probing:
            return
        try:
            if probing.advance(self._selector):
                self._conclude(child, has_answered=True)
        except OSError:
            self._conclude(child, has_answered=False)

    def _conclude(self, child: _Child, *, has_answered: bool) -> None:
        """Record the result of a probe, and kill the part if it hangs."""
        self._stop_probe(child)
        liveness = child.liveness
        if liveness is None or child.process is None:
            return
        has_beaten, child.has_beaten = child.has_beaten, False
        state = child.state
        now = self._clock.seconds
        if has_answered and (has_beaten or not child.part.beats):
            liveness.answered(now)
        else:
            liveness.missed()
        if liveness.is_hung(now):
            self._kill(child, f"no answer for {now - liveness.answered_at:.0f} s")
        elif child.state != state:
            self._save_state()
            verb = "does not answer" if liveness.is_quiet else "answers again"
            self._report(f"{child.part.label} {verb}")

    def _stop_probe(self, child: _Child) -> None:
        if child.probing is not None:
            child.probing.stop(self._selector)
            child.probing = None

    def _report_complete(self) -> None:
        if not self._was_complete and all(child.is_ready for child in self._children):
            self._was_complete = True
            self._report(COMPLETE)

    def _reap(self) -> None:
        for child in self._children:
            if child.process is None or child.process.poll() is None:
                continue
            status = child.process.returncode
            lived_s = self._monotonic() - child.started
            child.process = None
            child.is_ready = False
            child.liveness = None
            self._stop_probe(child)
            self._close_pipe(child)
            if self._is_stopping:
                continue
            # The first time, the process that has the port may be ending.
            is_taken = status == PORT_TAKEN_STATUS and child.restarts > 0
            if is_taken and child.part.listens_on and child.ready_after_s is None:
                raise PortTakenError(child.part)
            self._start_later(child, lived_s, f"ended ({_ending(status)})")

    def _start_later(self, child: _Child, lived_s: float, how: str) -> None:
        child.backoff_s = (
            _FIRST_RESTART_S
            if lived_s >= _STEADY_S
            else min(max(_FIRST_RESTART_S, child.backoff_s * 2), child.part.longest_restart_s)
        )
        child.start_at = self._monotonic() + child.backoff_s
        child.restarts += 1
        child.last_end = f"killed: {child.killed_for}" if child.killed_for else how
        self._report(
            f"{child.part.label} {how}; again in {child.backoff_s:g} s; "
            f"its log: {self._layout.log(child.part.name)}"
        )

    def _close_pipe(self, child: _Child) -> None:
        if child.pipe >= 0:
            self._selector.unregister(child.pipe)
            os.close(child.pipe)
            child.pipe = -1

    def _stop_all(self) -> None:
        """Stop children in reverse order of start; kill one that has not ended after 20 s."""
        for child in reversed(self._children):
            process = child.process
            if process is None:
                continue
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._close_pipe(child)

    def _save_state(self) -> None:
        state = {
            "pid": os.getpid(),
            "parts": {
                child.part.name: {
                    "state": child.state,
                    "pid": child.process.pid if child.process else None,
                    "restarts": child.restarts,
                    "ready_after_s": child.ready_after_s,
                    "last_end": child.last_end,
                }
                for child in self._children
            },
        }
        try:
            replace_file(self._layout.state, json.dumps(state).encode())
        except OSError as error:
            # A full disk must not end the parts; `moor status` shows the last state written.
            if not self._is_state_stale:
                self._report(f"the state cannot be written: {error}")
            self._is_state_stale = True
        else:
            self._is_state_stale = False


def _ending(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    return f"signal {signal.Signals(-status).name}"


def hold_lock(layout: Layout, lockf: Callable[[TextIO, int], object] = fcntl.lockf) -> TextIO:
    """Lock the data directory for this process; closing the returned file releases it.

    Raises AlreadyRunningError while another supervisor holds it.
    """
    make_private(layout.root)
    lock = open(layout.lock, "a+")  # noqa: SIM115 - held for the life of the process
    try:
        lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise AlreadyRunningError(layout, running_pid(layout) or 0) from error
        raise
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def running_pid(layout: Layout) -> int | None:
    """Return the supervisor's process ID while one runs on this directory, else None.

    Must not be called in the supervisor itself: closing the file would release its lock.
    """
    try:
        lock = open(layout.lock)  # noqa: SIM115 - closed below
    except FileNotFoundError:
        return None
    with lock:
        # The file may hold the PID of a killed supervisor; the kernel knows the lock's holder.
        query = struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(lock, fcntl.F_GETLK, query))
    return None if kind == fcntl.F_UNLCK else pid


def read_state(path: Path) -> dict[str, object] | None:
    """Return the supervisor's state file, None if it is missing or not JSON."""
    try:
        state: dict[str, object] = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return state
