"""Records of sandboxes and containers on disk, written before a call is answered.

A record is one file, replaced atomically. It is not synced: sandboxes and containers do not survive
a power loss anyway, and a kill of the engine loses nothing.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from moorage.api.logs import Log
from moorage.engine.errors import ExhaustedError
from moorage.engine.handlers.adapters import Exit
from moorage.engine.handlers.definition import HandlerDefinition
from moorage.engine.handlers.features import HandlerFeatures
from moorage.engine.networks import CniResult
from moorage.linux.atomic_file import replace_file

log = Log(__name__)

_SUFFIX = ".json"


class SandboxRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sandbox. `config` is the serialised `PodSandboxConfig`.

    `handler` is the requested name; `definition` is that handler's definition at creation, which
    applies to this sandbox even if the file changes; `program` is the runtime's path and `features`
    its features. `is_complete` is false while the sandbox is created: after a crash, such a
    sandbox has not been reported to any client. `task_pid` is the infra process, 0 without one.
    """

    id: str
    config: bytes
    handler: str
    definition: HandlerDefinition
    program: Path
    features: HandlerFeatures
    created_at_ns: int
    is_complete: bool = msgspec.field(default=True, name="is_made")
    is_ready: bool = True
    cni_result: CniResult | None = msgspec.field(default=None, name="attachment")
    task_pid: int = 0


class Stage(StrEnum):
    """A container's stage. STARTING is on disk during a start: after a crash, such a container may
    or may not run.
    """

    CREATED = "created"
    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"


class User(msgspec.Struct, frozen=True):
    """User and groups of a container's first process."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


class ContainerRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A container. `config` is the serialised `ContainerConfig`; `image_id` the digest of the
    image's configuration and `image_ref` a name with the manifest's digest, if there is one;
    `image_name` the tag it was created by, empty where the image had none.
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
    """The records of one type in a directory, a file each."""

    def __init__(self, directory: Path, kind: type[Record]) -> None:
        self._directory = directory
        self._decoder = msgspec.json.Decoder(kind, dec_hook=_decoded)
        self._encoder = msgspec.json.Encoder(enc_hook=_encoded)
        self.unreadable: set[str] = set()
        """Ids of the records that the last `load` could not read."""

    def save(self, record: Record) -> None:
        """Write or replace a record. Raises ExhaustedError on a full disk, OSError."""
        path = self._path(record.id)
        try:
            # Private: container environments hold secrets.
            replace_file(path, self._encoder.encode(record))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise ExhaustedError(f"no space left for records in {self._directory}") from error
            raise

    def remove(self, record_id: str) -> None:
        self._path(record_id).unlink(missing_ok=True)

    def load(self) -> Iterator[Record]:
        """Yield every readable record; logs an unreadable one and leaves its file."""
        self.unreadable.clear()
        for path in sorted(self._directory.iterdir()):
            if path.suffix != _SUFFIX:
                path.unlink()
                continue
            try:
                yield self._decoder.decode(path.read_bytes())
            except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
                self.reject(path.stem, error)

    def reject(self, record_id: str, error: Exception) -> None:
        """Count a record as unreadable and log why."""
        self.unreadable.add(record_id)
        log.error(
            "record cannot be read: its processes and files are left alone; end them and remove "
            "the file",
            file=self._path(record_id),
            reason=error,
        )

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
