"""Cache of probe results, by fingerprint: a file for each in a directory of the node.

A file that is damaged, of another format or not trusted is ignored, and is replaced by the next
result; a directory that others may write to is not used. Writes are atomic. What is cached are
handlers that work; a broken one is probed again at each start.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TypeVar

import msgspec

from moorage.api.logs import Log
from moorage.api.runtime_group import ProfileFeature
from moorage.linux.atomic_file import replace_file
from moorage.linux.descriptors import read_regular_file
from moorage.linux.trust import distrust
from moorage.runtimes.probing.fingerprint import Digests

log = Log(__name__)

_FORMAT = 1
_SUFFIX = ".json"
_DIGESTS = "programs.json"
_RESULT = re.compile(r"[0-9a-f]{64}\.json")
_KEPT_FILES = 64
# A result has some 20 outputs of a few kilobytes.
_SIZE_LIMIT_BYTES = 4 * 1024 * 1024

T = TypeVar("T")


class ProbeRecord(msgspec.Struct, frozen=True):
    """Result of one probe, for people: how it ended, and what was printed."""

    outcome: str
    exit_code: int = -1
    error: str = ""
    output: str = ""


class ProbedHandler(msgspec.Struct, frozen=True, kw_only=True):
    """What the probes found of a working handler.

    `kernel` is the version that a container sees, `isolation` a level or empty. `features` is empty
    before the features were probed. `passing` names the features whose probe something kept from
    its finding, such as a busy node: a later process probes these again, and the others stay as
    they were found. `probed_at` is in the API's form.
    `program` and `digest` are of the program that ran, empty where they are unknown.
    """

    kernel: str = ""
    isolation: str = ""
    features: tuple[ProfileFeature, ...] = ()
    probed_at: str = ""
    probes: dict[str, ProbeRecord] = {}
    passing: tuple[str, ...] = ()
    handler: str = ""
    program: str = ""
    digest: str = ""
    format: int = _FORMAT


class ProbeCache:
    """A directory of results. Its methods block."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self, fingerprint: str) -> ProbedHandler | None:
        """Return the result of a fingerprint; None without one that can be read."""
        probed = self._read(self._path(fingerprint), ProbedHandler)
        return probed if probed is not None and probed.format == _FORMAT else None

    def all(self) -> tuple[ProbedHandler, ...]:
        """Return every result that can be read, the newest first."""
        probed = []
        for path in reversed(self._entries()):
            found = self.load(path.name.removesuffix(_SUFFIX))
            if found is not None:
                probed.append(found)
        return tuple(probed)

    def store(self, fingerprint: str, probed: ProbedHandler) -> None:
        """Write a result; remove the oldest beyond 64. A failure is logged."""
        self._write(self._path(fingerprint), msgspec.json.encode(probed))
        self._trim()

    def load_digests(self) -> Digests:
        """Return the digests of programs that an earlier process stored."""
        return Digests(self._read(self._directory / _DIGESTS, dict[str, str]))

    def store_digests(self, digests: Digests) -> None:
        """Write the digests of programs. A failure is logged."""
        self._write(self._directory / _DIGESTS, msgspec.json.encode(digests.remembered))

    def _path(self, fingerprint: str) -> Path:
        return self._directory / f"{fingerprint}{_SUFFIX}"

    def _read(self, path: Path, kind: type[T]) -> T | None:
        try:
            # Verdicts decide where pods run: what others may have written is no evidence.
            if problem := distrust(path):
                raise OSError(f"not trusted: {problem}")
            return msgspec.json.decode(read_regular_file(path, _SIZE_LIMIT_BYTES + 1), type=kind)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, msgspec.ValidationError, ValueError) as error:
            log.warning("results of probes cannot be read", file=path, reason=error)
            return None

    def _write(self, path: Path, content: bytes) -> None:
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            if problem := distrust(self._directory):
                raise OSError(f"not trusted: {problem}")
            # The nodes of several clusters on one host share the directory.
            replace_file(path, content, writer=str(os.getpid()))
        except OSError as error:
            log.warning("results of probes cannot be kept", file=path, reason=error)

    def _entries(self) -> list[Path]:
        """Return the files of results, the oldest first. Other processes may remove any."""
        found = []
        try:
            with os.scandir(self._directory) as entries:
                for entry in entries:
                    if _RESULT.fullmatch(entry.name):
                        found.append((_modified_ns(entry), Path(entry.path)))
        except OSError:
            return []
        return [path for _, path in sorted(found)]

    def _trim(self) -> None:
        try:
            for path in self._entries()[:-_KEPT_FILES]:
                path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("old results of probes cannot be removed", reason=error)


def _modified_ns(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_mtime_ns
    except FileNotFoundError:
        return 0
