"""Starts a cluster's parts, keeps them running, stops them.

One small process without event loop: each part is a child that says `ready` on a pipe; one that
dies is started again, later and later. Children die with the supervisor (they ask the kernel for
it), so killing it by force leaves no half-run cluster, while pods, which are not its children, go
on. What it knows is in a state file that `moor status` reads.
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

from moorage.cluster.layout import Layout

NOTIFY_VARIABLE = "MOORAGE_NOTIFY_FD"
READY_MESSAGE = b"ready\n"
COMPLETE = "cluster ready"
"""What is reported once every part has been ready."""
# struct flock: l_type, l_whence, l_start, l_len, l_pid. Source: fcntl(2).
_FLOCK = "hhqqi"

_FIRST_RESTART_S = 0.5
_LONGEST_RESTART_S = 30.0
_STEADY_S = 60.0
_STOP_S = 20.0
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Report = Callable[[str], None]


class AlreadyRunningError(Exception):
    """Another supervisor holds this data folder."""

    def __init__(self, layout: Layout, pid: int) -> None:
        super().__init__(
            f"a cluster already runs on {layout.root} (supervisor process {pid}); "
            f"`moor status` shows it, `moor down` stops it"
        )
        self.pid = pid


@dataclass(frozen=True, slots=True)
class Part:
    """A process to keep running. `label` is what people are told; `notifies`: says when ready."""

    name: str
    label: str
    argv: tuple[str, ...]
    notifies: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Child:
    part: Part
    process: subprocess.Popen[bytes] | None = None
    pipe: int = -1
    started: float = 0.0
    is_ready: bool = False
    ready_after_s: float | None = None
    restarts: int = 0
    backoff_s: float = _FIRST_RESTART_S
    start_at: float = 0.0
    """When to start (again), on the monotonic clock; only without process."""

    @property
    def state(self) -> str:
        if self.process is None:
            return "restarting" if self.restarts else "waiting"
        return "ready" if self.is_ready else "starting"


class Supervisor:
    """Runs parts until told to stop. `report` gets one sentence for each thing people should know.

    Raises AlreadyRunningError from `run` when the data folder is taken.
    """

    def __init__(self, layout: Layout, parts: Sequence[Part], report: Report) -> None:
        self._layout = layout
        self._children = [_Child(part) for part in parts]
        self._report = report
        self._selector = selectors.DefaultSelector()
        self._is_stopping = False
        self._began = time.monotonic()
        self._was_complete = False
        self._is_state_stale = False

    def run(self) -> None:
        """Start everything and stay until SIGTERM, SIGINT or SIGHUP; then stop everything."""
        lock = hold_lock(self._layout)
        self._layout.logs.mkdir(parents=True, exist_ok=True)
        wake_read, wake_write = os.pipe()
        for end in (wake_read, wake_write):
            os.set_blocking(end, False)
        self._selector.register(wake_read, selectors.EVENT_READ)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        previous = {each: signal.signal(each, self._on_stop) for each in _STOP_SIGNALS}
        previous[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        try:
            while not self._is_stopping:
                self._start_due()
                self._wait(wake_read)
                self._reap()
        finally:
            self._stop_all()
            signal.set_wakeup_fd(-1)
            for each, handler in previous.items():
                signal.signal(each, handler)
            self._layout.state.unlink(missing_ok=True)
            lock.close()

    def _on_stop(self, *_: object) -> None:
        self._is_stopping = True

    def _start_due(self) -> None:
        now = time.monotonic()
        for child in self._children:
            if child.process is None and child.start_at <= now:
                self._start(child)
        self._save_state()

    def _start(self, child: _Child) -> None:
        part = child.part
        read_end, write_end = os.pipe()
        environment = {**os.environ, **part.environment, NOTIFY_VARIABLE: str(write_end)}
        try:
            with open(self._layout.log(part.name), "ab") as log:
                child.process = subprocess.Popen(
                    part.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    pass_fds=(write_end,),
                    start_new_session=True,
                )
        except OSError as error:
            # No memory, no room, no program: the others go on, and it is tried again.
            os.close(read_end)
            self._start_later(child, 0.0, f"cannot be started ({error})")
            return
        finally:
            os.close(write_end)
        os.set_blocking(read_end, False)
        child.pipe = read_end
        child.started = time.monotonic()
        child.is_ready = not part.notifies
        self._selector.register(read_end, selectors.EVENT_READ, child)

    def _wait(self, wake_read: int) -> None:
        pending = [child.start_at for child in self._children if child.process is None]
        timeout = max(min(pending) - time.monotonic(), 0.0) if pending else None
        for key, _ in self._selector.select(timeout):
            if key.fd == wake_read:
                os.read(wake_read, 4096)
            else:
                self._hear(key.data)

    def _hear(self, child: _Child) -> None:
        said = os.read(child.pipe, 4096)
        if not said:
            self._close_pipe(child)
        elif READY_MESSAGE in said and not child.is_ready:
            child.is_ready = True
            child.ready_after_s = time.monotonic() - child.started
            # Who reads the report may look at the state at once.
            self._save_state()
            self._report(f"{child.part.label} ready ({time.monotonic() - self._began:.2f} s)")
            self._tell_complete()

    def _tell_complete(self) -> None:
        if not self._was_complete and all(child.is_ready for child in self._children):
            self._was_complete = True
            self._report(COMPLETE)

    def _reap(self) -> None:
        for child in self._children:
            if child.process is None or child.process.poll() is None:
                continue
            status = child.process.returncode
            lived_s = time.monotonic() - child.started
            child.process = None
            child.is_ready = False
            self._close_pipe(child)
            if self._is_stopping:
                continue
            self._start_later(child, lived_s, f"ended ({_ending(status)})")

    def _start_later(self, child: _Child, lived_s: float, how: str) -> None:
        child.backoff_s = (
            _FIRST_RESTART_S
            if lived_s >= _STEADY_S
            else min(child.backoff_s * 2, _LONGEST_RESTART_S)
        )
        child.start_at = time.monotonic() + child.backoff_s
        child.restarts += 1
        self._report(
            f"{child.part.label} {how}; again in {child.backoff_s:.0f} s; "
            f"its log: {self._layout.log(child.part.name)}"
        )

    def _close_pipe(self, child: _Child) -> None:
        if child.pipe >= 0:
            self._selector.unregister(child.pipe)
            os.close(child.pipe)
            child.pipe = -1

    def _stop_all(self) -> None:
        """End children in reverse order of start, by force those that take too long."""
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
                }
                for child in self._children
            },
        }
        scratch = self._layout.state.with_suffix(".new")
        try:
            scratch.write_text(json.dumps(state))
            scratch.replace(self._layout.state)
        except OSError as error:
            # A full disk must not end the parts; `moor status` shows what was last written.
            if not self._is_state_stale:
                self._report(f"the state cannot be written: {error}")
            self._is_state_stale = True
        else:
            self._is_state_stale = False


def _ending(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    return f"signal {signal.Signals(-status).name}"


def hold_lock(layout: Layout) -> TextIO:
    """Take the data folder for this process; the returned file gives it back when closed."""
    layout.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = open(layout.lock, "a+")  # noqa: SIM115 - held for the life of the process
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise AlreadyRunningError(layout, running_pid(layout) or 0) from error
        raise
    lock.seek(0)
    lock.truncate()
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def running_pid(layout: Layout) -> int | None:
    """The supervisor's process id while one runs on this folder.

    Not to be asked in the supervisor itself: closing the file would give its lock back.
    """
    try:
        lock = open(layout.lock)  # noqa: SIM115 - closed below
    except FileNotFoundError:
        return None
    with lock:
        # What is written in the file may be of one that was killed; the kernel knows who holds it.
        asked = struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(lock, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else pid


def read_state(path: Path) -> dict[str, object] | None:
    """What the supervisor last wrote, None when there is none."""
    try:
        state: dict[str, object] = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return state
