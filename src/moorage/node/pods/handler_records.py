"""Handler records: the handler each pod of this node was admitted with, in the pod's directory.

A class can be deleted and created again with another handler, and not every engine reports the
handler of a sandbox (CRI-O leaves `runtime_handler` empty), so neither determines later which
handler a pod was admitted with. The record is written before the first sandbox is created, and
survives restarts of sandbox, engine, agent and host.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from moorage.linux.atomic_file import replace_file
from moorage.node.paths import NodePaths


class HandlerRecord(msgspec.Struct, frozen=True, rename="camel"):
    """The class a pod names and the handler it was admitted with; `""` is the default handler."""

    runtime_class: str
    handler: str


class DamagedRecordError(Exception):
    """A record exists but cannot be parsed."""


class HandlerRecords:
    """The records of this node's pods."""

    def __init__(self, paths: NodePaths) -> None:
        self._paths = paths
        self._known: dict[str, HandlerRecord] = {}

    def known(self, uid: str) -> HandlerRecord | None:
        """Return the record of a pod if it was read or written before; does not block."""
        return self._known.get(uid)

    async def read(self, uid: str) -> HandlerRecord | None:
        """Return the record of a pod, None without one. Raises DamagedRecordError, OSError."""
        if uid not in self._known:
            record = await asyncio.to_thread(_read, self._paths.pod(uid).runtime_handler)
            if record is None:
                return None
            self._known[uid] = record
        return self._known[uid]

    async def write(self, uid: str, record: HandlerRecord) -> None:
        """Write a pod's record. Raises OSError."""
        await asyncio.to_thread(_write, self._paths.pod(uid).runtime_handler, record)
        self._known[uid] = record

    def forget(self, uid: str) -> None:
        """Drop the in-memory record of a removed pod; its file is removed with its volumes."""
        self._known.pop(uid, None)


def _read(file: Path) -> HandlerRecord | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=HandlerRecord)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise DamagedRecordError(f"{file}: {error}") from error


def _write(file: Path, record: HandlerRecord) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, msgspec.json.encode(record))
