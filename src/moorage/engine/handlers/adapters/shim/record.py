"""Shim task record: the state that an engine restores after a restart, beside the task's bundle.

BUNDLE/shim/record.json    the shim's address, and the processes and cgroup of the task
BUNDLE/shim/exit.json      the task's exit, once it has been collected
BUNDLE/shim/stdin …        the named pipes
BUNDLE/log                 the shim's own log
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TypeVar

import msgspec

from moorage.engine.handlers.adapters.adapter import Exit
from moorage.engine.handlers.adapters.shim.keeper import memory_file
from moorage.engine.handlers.adapters.shim.program import Address
from moorage.linux.atomic_file import replace_file
from moorage.linux.process import Identity, began
from moorage.linux.regular_file import read_tail
from moorage.linux.trees import remove_tree

_Kind = TypeVar("_Kind")
# A shim of virtual machines may log what their kernels print.
_LOG_TAIL_BYTES = 64 * 1024


class Record(msgspec.Struct, frozen=True):
    """State of a task.

    `keeper` is the process that keeps the pipes' content; `memory` is the file of the cgroup that
    counts OOM kills, empty when it is unknown.
    """

    address: Address
    shim: Identity | None = None
    keeper: Identity | None = None
    memory: str = ""


class TaskDirectory:
    """Files of one task."""

    def __init__(self, bundle: Path) -> None:
        self.bundle = bundle
        self.path = bundle / "shim"

    def make(self) -> None:
        """Create the directory, and the log that the shim opens. Raises OSError."""
        self.path.mkdir(mode=0o700, exist_ok=True)
        # A regular file, unlike a pipe, needs no reader: the shim's log outlives the engine.
        (self.bundle / "log").touch(mode=0o600)

    def remove(self) -> None:
        """Remove the directory."""
        remove_tree(self.path)

    def record(self) -> Record | None:
        """Return the task's record; None when no task was created here.

        Raises msgspec.DecodeError if damaged.
        """
        return _read(self.path / "record.json", Record)

    def write_record(self, record: Record) -> None:
        _write(self.path / "record.json", record)

    def exit(self) -> Exit | None:
        """Return the task's exit; None while it has not been collected."""
        return _read(self.path / "exit.json", Exit)

    def write_exit(self, how: Exit) -> None:
        _write(self.path / "exit.json", how)

    def complaint(self) -> str:
        """Return the last line of the shim's log, for an error message; at most 500 characters."""
        try:
            tail = read_tail(self.bundle / "log", _LOG_TAIL_BYTES)
        except OSError:
            return ""
        log = tail.decode(errors="replace").strip()
        return log.rpartition("\n")[2][:500]


def with_processes(directory: TaskDirectory, record: Record, shim: int, task: int) -> Record:
    """Add the shim's identity and the task's memory cgroup to a record, write it and return it."""
    ticks = began(shim)
    identity = None if ticks is None else Identity(shim, ticks)
    full = Record(record.address, identity, record.keeper, memory_file(task))
    directory.write_record(full)
    return full


def _read(path: Path, kind: type[_Kind]) -> _Kind | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None


def _write(path: Path, value: msgspec.Struct) -> None:
    # Two waiters for the same exit write it concurrently.
    replace_file(path, msgspec.json.encode(value), writer=secrets.token_hex(4))
