"""Pull records: the images that this node's agent pulled, and the pods that may use them.

    pulling/sha256-HASH   an ImagePullIntent: a pull of that name has begun
    pulled/sha256-HASH    an ImagePulledRecord: the image's ID and which credentials pulled it

An intent is on disk before the pull and is removed once its record is, so that no crash makes an
image look preloaded. Files are those of the kubelet (`image_manager`), under the agent's root.
Reads are dictionary lookups: everything is in memory. Source: KEP-2535, kubelet
`pullmanager/fs_pullrecords.go`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from moorage.api.clock import Clock, format_time, parse_time
from moorage.api.logs import Log
from moorage.linux.atomic_file import write_durably
from moorage.node.images.verification import Access

_API_VERSION = "kubelet.config.k8s.io/v1beta1"
_PREFIX = "sha256-"

log = Log(__name__)


class _Intent(Struct, frozen=True, rename="camel"):
    """A pull intent.

    `present`, an extension, is the ID that the name had before; empty for none.
    """

    image: str
    present: str = ""
    kind: str = "ImagePullIntent"
    api_version: str = _API_VERSION


class PulledRecord(Struct, frozen=True, rename="camel"):
    """A pull record.

    `credential_mapping` maps a repository to the pods that may use the image under it.
    """

    image_ref: str
    last_updated_time: str
    credential_mapping: dict[str, Access] = {}
    kind: str = "ImagePulledRecord"
    api_version: str = _API_VERSION


_Record = TypeVar("_Record", _Intent, PulledRecord)


class PullRecords:
    """The records in one directory. Call `load` first."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._pulling = directory / "pulling"
        self._pulled = directory / "pulled"
        self._clock = clock
        self._intents: dict[str, _Intent] = {}
        self._flights: Counter[str] = Counter()
        self._records: dict[str, PulledRecord] = {}
        self._damaged: set[str] = set()
        # Serialises writers of one file; pulls are rare enough for one lock.
        self._writing = asyncio.Lock()

    def load(self) -> None:
        """Read the records of earlier agent processes. Blocks. Raises OSError."""
        for directory in (self._pulling, self._pulled):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for _, intent in self._read(self._pulling, _Intent):
            self._intents[intent.image] = intent
        for _, record in self._read(self._pulled, PulledRecord):
            self._records[record.image_ref] = record

    def _read(self, directory: Path, form: type[_Record]) -> Iterator[tuple[str, _Record]]:
        for file in directory.iterdir():
            if not file.name.startswith(_PREFIX):
                continue
            try:
                yield file.name, msgspec.json.decode(file.read_bytes(), type=form)
            except (msgspec.DecodeError, OSError) as error:
                # Only the file name is known: its image is verified for every pod.
                self._damaged.add(file.name)
                log.warning("record of a pull is damaged", file=file, error=error)

    def is_pulled(self, name: str, image_ref: str) -> bool:
        """Return whether the agent pulled the image or may have; an unsettled intent counts.

        `name` is the image's name in the pod, `image_ref` its ID on the node.
        """
        if image_ref in self._records or _file_name(image_ref) in self._damaged:
            return True
        if self._flights[name] or _file_name(name) in self._damaged:
            return True
        intent = self._intents.get(name)
        # The image that the name referred to before the pull was already present.
        return intent is not None and intent.present != image_ref

    def access(self, image_ref: str, repository: str) -> Access:
        """Return the recorded access to the image under a repository's name."""
        record = self._records.get(image_ref)
        if record is None:
            return Access()
        return record.credential_mapping.get(repository, Access())

    async def begin(self, name: str, present: str) -> None:
        """Record the intent to pull; `present` is the current ID of that name. Raises OSError."""
        async with self._writing:
            if name not in self._intents:
                intent = _Intent(name, present)
                await asyncio.to_thread(
                    write_durably, self._pulling / _file_name(name), msgspec.json.encode(intent)
                )
                self._intents[name] = intent
        self._flights[name] += 1

    async def succeeded(self, name: str, image_ref: str, repository: str, access: Access) -> None:
        """Record a pull that `begin` announced.

        Its intent remains when the record cannot be written.
        """
        try:
            await self.note(image_ref, repository, access)
        except OSError as error:
            log.warning("record of a pull cannot be written", image=name, error=error)
            self._land(name)
            return
        await self._end(name)

    async def failed(self, name: str, image_ref: str | None) -> None:
        """Record a failed pull; `image_ref` is the current ID of the name, None if unknown.

        The intent remains when the image may have been pulled after all.
        """
        intent = self._intents.get(name)
        is_as_before = intent is not None and image_ref in ("", intent.present)
        if is_as_before or image_ref in self._records:
            await self._end(name)
        else:
            self._land(name)

    def abandoned(self, name: str) -> None:
        """Record a pull whose result is not awaited: its intent remains. Does not block."""
        self._land(name)

    def unsettled(self) -> list[tuple[str, str]]:
        """Return the pulls without a known result: each name with its previous image ID."""
        return [
            (name, intent.present)
            for name, intent in self._intents.items()
            if not self._flights[name]
        ]

    async def settle(self, name: str, image_ref: str, repository: str) -> None:
        """Record the image of an unsettled pull, without any access. Raises OSError."""
        await self.note(image_ref, repository, Access())
        self._flights[name] += 1
        await self._end(name)

    async def note(self, image_ref: str, repository: str, access: Access) -> None:
        """Add an access to an image's record. Raises OSError."""
        async with self._writing:
            present = self._records.get(image_ref)
            mapping = dict(present.credential_mapping) if present is not None else {}
            joined = mapping.get(repository, Access()).joined(access)
            if present is not None and mapping.get(repository) == joined:
                return
            mapping[repository] = joined
            record = PulledRecord(image_ref, format_time(self._clock.now()), mapping)
            await asyncio.to_thread(
                write_durably, self._pulled / _file_name(image_ref), msgspec.json.encode(record)
            )
            self._records[image_ref] = record
            self._damaged.discard(_file_name(image_ref))

    async def prune(self, images: Collection[str], before: float) -> None:
        """Remove the records of missing images that are older than `before` (Unix time, s).

        `images` are the IDs on the node at that moment. Raises OSError.
        """
        async with self._writing:
            for image_ref, record in list(self._records.items()):
                is_older = parse_time(record.last_updated_time).timestamp() < before
                if image_ref not in images and is_older:
                    file = self._pulled / _file_name(image_ref)
                    await asyncio.to_thread(file.unlink, missing_ok=True)
                    del self._records[image_ref]

    def _land(self, name: str) -> None:
        self._flights[name] -= 1
        if self._flights[name] <= 0:
            del self._flights[name]

    async def _end(self, name: str) -> None:
        """Remove the intent if this was the last pull of the name."""
        self._land(name)
        async with self._writing:
            if self._flights[name] or name not in self._intents:
                return
            try:
                file = self._pulling / _file_name(name)
                await asyncio.to_thread(file.unlink, missing_ok=True)
            except OSError as error:
                log.warning("intent of a pull cannot be removed", image=name, error=error)
                return
            del self._intents[name]


def _file_name(key: str) -> str:
    return _PREFIX + hashlib.sha256(key.encode()).hexdigest()
