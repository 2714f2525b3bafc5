"""Image layers, each unpacked once and shared by the images that use it.

    layers/<diff-id>/tree        the layer's files, with overlayfs's marks
    layers/<diff-id>/layer.json  its size, and what it hides
    layers/.new-…  layers/.old-…  being unpacked, being removed

A layer gets its name only when all of it is on disk, so a named layer is complete.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from moorage.api.logs import Log
from moorage.engine.errors import EngineError, ExhaustedError, FailedError
from moorage.engine.images.image import SHA256
from moorage.engine.images.manifest import ImageLimits
from moorage.engine.images.single_flight import SingleFlight
from moorage.engine.images.threads import in_thread
from moorage.engine.leftovers import remove_leftover
from moorage.linux.atomic_file import rename_durably
from moorage.linux.command import CommandError, run
from moorage.linux.trees import remove_tree
from moorage.linux.trust import make_private

log = Log(__name__)

_UNPACK = Path(__file__).with_name("unpack.py")
_RECORD, _TREE = "layer.json", "tree"
_NEW, _OLD = ".new-", ".old-"
# It reads a file of the host, and exits after it.
_LONGEST_S = 86_400.0

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The errors of a full file system."""


@dataclass(frozen=True, slots=True)
class Blob:
    """The place of a layer's blob: `length` bytes of a file. An empty digest is unknown.

    `file` is the name of the single file that the blob is, empty for an archive of files.
    """

    path: Path
    length: int
    offset: int = 0
    digest: str = ""
    compression: str = ""
    file: str = ""


class LayerRecord(msgspec.Struct, frozen=True, rename={"size_bytes": "bytes"}):
    """The metadata of an unpacked layer. The paths are relative to its tree."""

    size_bytes: int
    inodes: int
    whiteouts: tuple[str, ...] = ()
    opaques: tuple[str, ...] = ()


class Layers:
    """The layers of a store."""

    def __init__(
        self,
        directory: Path,
        single_flight: SingleFlight[None],
        *,
        is_marked: bool,
        limits: ImageLimits | None = None,
    ) -> None:
        """`is_marked`: leave overlayfs's marks in the trees, which only some file systems
        support.
        """
        self._directory = directory
        self._single_flight = single_flight
        self._is_marked = is_marked
        self.limits = limits or ImageLimits()
        self._sizes: dict[str, tuple[int, int]] = {}

    def load(self) -> None:
        """Load the layers, and remove incomplete ones. Blocks. Raises OSError."""
        make_private(self._directory)
        for entry in self._directory.iterdir():
            if entry.name.startswith("."):
                remove_leftover(entry)
                continue
            try:
                record = read_record(entry)
            except (OSError, msgspec.DecodeError) as error:
                # Images that need it are dropped from the index, and pulled again.
                log.warning("removing unreadable layer", layer=entry.name, reason=error)
                remove_leftover(entry)
            else:
                self._sizes[SHA256 + entry.name] = (record.size_bytes, record.inodes)

    def __contains__(self, diff_id: object) -> bool:
        return diff_id in self._sizes

    def path(self, diff_id: str) -> Path:
        """Return the layer's directory."""
        return self._directory / diff_id.removeprefix(SHA256)

    def stack(self, diff_ids: Sequence[str]) -> list[Path]:
        """Return the directories to stack, from the bottom up.

        Of a layer that occurs twice only the upper one counts: it repeats the content of the lower
        one, and overlayfs refuses both.
        """
        once = dict.fromkeys(reversed(diff_ids))
        return [self.path(diff_id) for diff_id in reversed(once)]

    def size(self, diff_ids: Collection[str]) -> tuple[int, int]:
        """Return bytes and inodes of present layers, each counted once."""
        sizes = [self._sizes[diff_id] for diff_id in set(diff_ids) if diff_id in self._sizes]
        return sum(size for size, _ in sizes), sum(inodes for _, inodes in sizes)

    @property
    def total(self) -> tuple[int, int]:
        """Return bytes and inodes of all layers."""
        return self.size(self._sizes)

    async def add(self, diff_id: str, blob: Blob, image: str, others: Collection[str] = ()) -> None:
        """Unpack a layer unless it is present; concurrent calls share the work.

        `others` are the image's other layers, which count for its limits. Raises FailedError for a
        blob that does not match the image or exceeds a limit, ExhaustedError when the disk is full;
        leaves nothing behind then.
        """
        if diff_id not in self._sizes:
            await self._single_flight.join(
                diff_id, lambda: self._unpack(diff_id, blob, image, others)
            )

    def discard(self, needed: Collection[str]) -> list[Path]:
        """Remove all layers but these from the store. Returns directories that only need to be
        deleted.

        At most two renames each, so that no reader finds half a layer.
        """
        directories = []
        for diff_id in [present for present in self._sizes if present not in needed]:
            doomed = self._directory / f"{_OLD}{secrets.token_hex(8)}"
            self.path(diff_id).rename(doomed)
            del self._sizes[diff_id]
            directories.append(doomed)
        return directories

    async def _unpack(self, diff_id: str, blob: Blob, image: str, others: Collection[str]) -> None:
        if diff_id in self._sizes:
            return
        scratch = self._directory / f"{_NEW}{secrets.token_hex(8)}"
        try:
            tree = scratch / _TREE
            await in_thread(_make_directory, tree)
            job = {
                "parent": os.getpid(),
                "blob": str(blob.path),
                "offset": blob.offset,
                "length": blob.length,
                "compression": blob.compression,
                "file": blob.file,
                "digest": blob.digest,
                "diff_id": diff_id,
                "directory": str(tree),
                "record": str(scratch / _RECORD),
                "is_marked": self._is_marked,
                "budget": self._budget(others),
            }
            outcome = await _run(job)
            if outcome:
                raise _failure(diff_id, blob, image, outcome)
            await in_thread(self._finish, scratch, diff_id)
        except OSError as error:
            outcome = {"error": str(error), "full": error.errno in FULL}
            raise _failure(diff_id, blob, image, outcome) from error
        finally:
            await in_thread(remove_tree, scratch)

    def _budget(self, others: Collection[str]) -> dict[str, int]:
        """Return the space that a layer may take beside the image's layers that are present."""
        limits = self.limits
        size_bytes, entries = self.size(others)
        return {
            "size_bytes": max(0, limits.unpacked_bytes - size_bytes),
            "entries": max(0, limits.entries - entries),
            "depth": limits.depth,
            "xattr_bytes": limits.xattr_bytes,
            "reserve_bytes": limits.reserve_bytes(self._directory),
        }

    def _finish(self, scratch: Path, diff_id: str) -> None:
        record = read_record(scratch)
        rename_durably(scratch, self.path(diff_id))
        self._sizes[diff_id] = (record.size_bytes, record.inodes)


def tree_of(layer: Path) -> Path:
    """Return the tree in a layer's directory."""
    return layer / _TREE


def read_record(layer: Path) -> LayerRecord:
    """Read the metadata in a layer's directory. Blocks. Raises OSError."""
    return msgspec.json.decode((layer / _RECORD).read_bytes(), type=LayerRecord)


async def _run(job: Mapping[str, Any]) -> dict[str, Any]:
    """Run the unpacker in a child, which is killed on cancellation. Returns its output."""
    argv: list[str | Path] = [sys.executable, "-I", "-S", _UNPACK]
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
    try:
        answer = await run(
            argv, deadline_s=_LONGEST_S, stdin=json.dumps(job).encode(), environment=environment
        )
    except CommandError as error:
        return {"error": str(error), "full": False}
    if answer.is_success:
        return {}
    try:
        outcome: dict[str, Any] = json.loads(answer.output)
    except ValueError:
        why = f"the unpack process exited with status {answer.status}: {answer.complaint}"
        return {"error": why, "full": False}
    return outcome


def _failure(diff_id: str, blob: Blob, image: str, outcome: Mapping[str, Any]) -> EngineError:
    name = blob.digest or diff_id
    text = f'failed to unpack image "{image}": layer {name}: {outcome["error"]}'
    if outcome["full"]:
        return ExhaustedError(f"{text}; free space or remove images")
    return FailedError(text)


def _make_directory(tree: Path) -> None:
    tree.mkdir(parents=True)
    tree.chmod(0o755)
