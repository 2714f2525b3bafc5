"""Records of what a node installed for RuntimeInstallations, by the objects' names."""

from __future__ import annotations

from pathlib import Path

import msgspec

from moorage.api.logs import Log
from moorage.linux.atomic_file import write_durably
from moorage.runtimeclass.installations import Record

_DIRECTORY = ".installations"
_SUFFIX = ".json"

log = Log(__name__)


class Records:
    """Files below a directory of runtimes. Methods block and raise OSError."""

    def __init__(self, store: Path) -> None:
        self._directory = store / _DIRECTORY

    def all(self) -> dict[str, Record]:
        """Return all records by the names of their objects; damaged ones are left out."""
        found = {}
        if not self._directory.is_dir():
            return {}
        for path in self._directory.glob(f"*{_SUFFIX}"):
            try:
                record = msgspec.json.decode(path.read_bytes(), type=Record)
            except (msgspec.DecodeError, msgspec.ValidationError) as error:
                log.warning("record of an installation is damaged", path=path, reason=error)
                continue
            found[path.name.removesuffix(_SUFFIX)] = record
        return found

    def write(self, name: str, record: Record) -> None:
        """Write the record of an object; its name has no slash, as names of objects have none."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(self._directory / f"{name}{_SUFFIX}", msgspec.json.encode(record))

    def remove(self, name: str) -> None:
        """Remove the record of an object."""
        (self._directory / f"{name}{_SUFFIX}").unlink(missing_ok=True)
