"""Records of what a node installed for RuntimeInstallations, by the objects' names.

A record is a file with the object's name. That of a long name is cut and has a hash, since names of
files have at most 255 bytes and objects' up to 253; the record has the name itself.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from moorage.api.logs import Log
from moorage.linux.atomic_file import write_durably
from moorage.runtimeclass.installations import Record

_DIRECTORY = ".installations"
_SUFFIX = ".json"
_MOST = 200
"""Characters of a name that is a file's: room for the suffix, and for those of a replacement."""
_MOST_FORMER = 250
"""Characters of names that earlier versions used for files: their names have at most 255 bytes."""
_CUT, _DIGITS = "+", 32
"""What stands before the hash; no name of an object has it."""

log = Log(__name__)


class _Named(Record, frozen=True, kw_only=True):
    """A record as its file has it: with the object's name, where the file's is cut."""

    name: str = ""


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
                named = msgspec.json.decode(path.read_bytes(), type=_Named)
            except (msgspec.DecodeError, msgspec.ValidationError) as error:
                log.warning("record of an installation is damaged", path=path, reason=error)
                continue
            name = named.name or path.name.removesuffix(_SUFFIX)
            if path not in (self._path(name), self._former_path(name)):
                log.warning("record of an installation has another's name", path=path)
                continue
            if path != self._path(name) and self._path(name).exists():
                # The change to the present name was cut off.
                continue
            fields = msgspec.structs.asdict(named)
            del fields["name"]
            found[name] = Record(**fields)
        return found

    def write(self, name: str, record: Record) -> None:
        """Write the record of an object; its name has no slash, as names of objects have none."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fields = msgspec.structs.asdict(record)
        named = fields if len(name) <= _MOST else {**fields, "name": name}
        write_durably(self._path(name), msgspec.json.encode(named))
        if (former := self._former_path(name)) != self._path(name):
            former.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Remove the record of an object."""
        for path in (self._former_path(name), self._path(name)):
            path.unlink(missing_ok=True)

    def _former_path(self, name: str) -> Path:
        """Return the path under which earlier versions recorded names that a file may have."""
        if len(name) > _MOST_FORMER:
            return self._path(name)
        return self._directory / f"{name}{_SUFFIX}"

    def _path(self, name: str) -> Path:
        if len(name) > _MOST:
            digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGITS]
            name = f"{name[: _MOST - _DIGITS]}{_CUT}{digest}"
        return self._directory / f"{name}{_SUFFIX}"
