"""What the engine remembers of sandboxes and containers, on disk before it says so to anybody.

A record is one file, replaced whole. It is not forced to the disk: what it tells of ends with the
machine's power anyway, and a kill of the engine loses nothing.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from moorage.api.logs import Log
from moorage.engine.errors import ExhaustedError
from moorage.engine.networks import CniResult
from moorage.handlers.adapters import Exit
from moorage.handlers.definition import HandlerDefinition
from moorage.handlers.features import HandlerFeatures
from moorage.linux.private import write_private

log = Log(__name__)

_SUFFIX = ".json"


class SandboxRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sandbox. `config` is the serialised `PodSandboxConfig`.

    `handler` is as it was asked for; `definition` is what that meant then, and keeps its meaning
    for this sandbox whatever becomes of the file; `program` is the runtime's, and `features` what
    it could do. One that is being made when the engine is killed is found with `is_made` false,
    and nobody was told of it. `task_pid` is the first process of the sandbox's
    own task, 0 when it has none.
    """

    id: str
    config: bytes
    handler: str
    definition: HandlerDefinition
    program: Path
    features: HandlerFeatures
    created_at_ns: int
    is_made: bool = True
    is_ready: bool = True
    attachment: CniResult | None = None
    task_pid: int = 0


class Stage(StrEnum):
    """Where a container is in its life. A container that is being started when the engine is
    killed is found STARTING, and nobody knows how far it came.
    """

    CREATED = "created"
    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"


class User(msgspec.Struct, frozen=True):
    """Who a container's first process is."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


class ContainerRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A container. `config` is the serialised `ContainerConfig`; `image_id` the digest of the
    image's configuration and `image_ref` a name with the manifest's digest, if there is one;
    `image_name` the tag it was started by, empty where the image had none.
    """

    id: str
    sandbox_id: str
    config: bytes
    image_id: str
    image_ref: str
    created_at_ns: int
    user: User
    stop_signal: str = ""
    log_path: str = ""
    stage: Stage = Stage.CREATED
    pid: int = 0
    started_at_ns: int = 0
    exit: Exit | None = None
    reason: str = ""
    message: str = ""
    image_mounts: tuple[str, ...] = ()
    image_name: str = ""


class _Identified(Protocol):
    @property
    def id(self) -> str: ...


Record = TypeVar("Record", bound=_Identified)


class RecordDirectory(Generic[Record]):
    """The records of one kind in a directory, a file each."""

    def __init__(self, directory: Path, kind: type[Record]) -> None:
        self._directory = directory
        self._decoder = msgspec.json.Decoder(kind, dec_hook=_decoded)
        self._encoder = msgspec.json.Encoder(enc_hook=_encoded)

    def save(self, record: Record) -> None:
        """Write a record in place of the one before. Raises ExhaustedError on a full disk."""
        path = self._path(record.id)
        scratch = path.with_suffix(".new")
        try:
            # Environments are in it, with secrets.
            write_private(scratch, self._encoder.encode(record))
            os.replace(scratch, path)
        except OSError as error:
            scratch.unlink(missing_ok=True)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise ExhaustedError(f"no room for records in {self._directory}") from error
            raise

    def remove(self, record_id: str) -> None:
        self._path(record_id).unlink(missing_ok=True)

    def load(self) -> Iterator[Record]:
        """Every record that can be read; one that cannot is reported and left for a person."""
        for path in sorted(self._directory.iterdir()):
            if path.suffix != _SUFFIX:
                path.unlink()
                continue
            try:
                yield self._decoder.decode(path.read_bytes())
            except (msgspec.DecodeError, msgspec.ValidationError) as error:
                log.error("record cannot be read", file=path, reason=error)

    def _path(self, record_id: str) -> Path:
        return self._directory / f"{record_id}{_SUFFIX}"


def _encoded(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(f"{type(value)} in a record")


def _decoded(kind: type, value: object) -> object:
    if issubclass(kind, Path):
        return Path(str(value))
    raise NotImplementedError(f"{kind} in a record")
