"""What an engine must find again of a task that a shim runs: a few small files beside its bundle.

BUNDLE/shim/record.json    where the shim listens, and what else belongs to the task
BUNDLE/shim/exit.json      how the task ended, once somebody has learnt it
BUNDLE/shim/stdin …        the named pipes
BUNDLE/log                 what the shim itself says
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TypeVar

import msgspec

from moorage.handlers.adapters.adapter import Exit
from moorage.handlers.adapters.shim.keeper import memory_file
from moorage.handlers.adapters.shim.program import Address
from moorage.linux.process import Identity, began
from moorage.linux.trees import remove_tree

_Kind = TypeVar("_Kind")


class Record(msgspec.Struct, frozen=True):
    """`keeper` is the process that keeps the pipes' content; `memory` the file of the cgroup that
    counts kills for want of memory, empty when it is not known.
    """

    address: Address
    shim: Identity | None = None
    keeper: Identity | None = None
    memory: str = ""


class TaskDirectory:
    """The files of one task."""

    def __init__(self, bundle: Path) -> None:
        self.bundle = bundle
        self.path = bundle / "shim"

    def make(self) -> None:
        """Make the directory, and the log that the shim opens. Raises OSError."""
        self.path.mkdir(mode=0o700, exist_ok=True)
        # A plain file needs no reader: the shim's words outlive the engine.
        (self.bundle / "log").touch(mode=0o600)

    def remove(self) -> None:
        remove_tree(self.path)

    def record(self) -> Record | None:
        """None when no task was begun here. Raises msgspec.DecodeError for a damaged file."""
        return _read(self.path / "record.json", Record)

    def write_record(self, record: Record) -> None:
        _write(self.path / "record.json", record)

    def exit(self) -> Exit | None:
        """None while nobody has learnt it."""
        return _read(self.path / "exit.json", Exit)

    def write_exit(self, how: Exit) -> None:
        _write(self.path / "exit.json", how)

    def complaint(self) -> str:
        """The last line that the shim said, for an error."""
        try:
            said = (self.bundle / "log").read_text(errors="replace").strip()
        except OSError:
            return ""
        return said.rpartition("\n")[2][:500]


def with_processes(directory: TaskDirectory, record: Record, shim: int, task: int) -> Record:
    """The record with the shim and the task's cgroup by their processes, written down."""
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
    # Two who wait for one end write it both.
    unfinished = path.with_suffix(f".{secrets.token_hex(4)}.new")
    unfinished.write_bytes(msgspec.json.encode(value))
    os.replace(unfinished, path)
