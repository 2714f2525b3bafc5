"""Versions of runtimes: a directory for each, kept as long as pods may need it.

A pod needs its runtime to be stopped, so a version that was replaced stays until no sandbox is left
that began before it was.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path

import msgspec

from moorage.linux.atomic_file import rename_durably, replace_file, sync_directory
from moorage.linux.trust import distrust
from moorage.runtimes.installing.archive import digest_of, extract
from moorage.runtimes.installing.downloads import RuntimeInstallationError
from moorage.runtimes.installing.plan import Plan, Request, Source

_REPLACED = ".replaced"
_SCRATCH = ".new-"


def measure(request: Request) -> str:
    """Return the digest of binary or archive, checked and from a trusted file. Blocks.

    A path may be any file of the host, and who names it need not be able to read it: no message
    has its digest, and a binary must be a program before it is read.
    """
    if request.source is Source.PACKAGE:
        return ""
    path = Path(request.origin)
    if not path.is_file():
        raise RuntimeInstallationError(f"{path} is no file")
    problem = distrust(path)
    if problem is not None:
        raise RuntimeInstallationError(f"{request.source} is not trusted: {problem}")
    if request.source is Source.BINARY:
        check_program(path)
    digest = digest_of(path)
    if request.digest and digest != request.digest:
        raise RuntimeInstallationError(
            f"{path} does not have the SHA-256 digest {request.digest}; `sha256sum {path}` prints "
            "its own"
        )
    return digest


def store_version(request: Request, plan: Plan) -> None:
    """Store a version; one with the same content is kept, with a binary's other name. Blocks.

    Raises RuntimeInstallationError if another content has that version's name.
    """
    if plan.directory is None:
        return
    if plan.directory.exists():
        if request.source is Source.BINARY and not plan.program.exists():
            _store_binary(request.origin, plan.program)
            _sync(plan.directory)
        return
    plan.directory.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=plan.directory.parent))
    try:
        content = scratch / "content"
        if request.source is Source.ARCHIVE:
            extract(Path(request.origin), content)
        else:
            content.mkdir(mode=0o755)
            _store_binary(request.origin, content / plan.program.name)
        _sync(content)
        rename_durably(content, plan.directory)
    finally:
        shutil.rmtree(scratch)


def _sync(directory: Path) -> None:
    """Sync all below a directory to the disk: a version that is there counts as complete."""
    for path, _, names in os.walk(directory):
        for name in names:
            if not os.path.islink(file := os.path.join(path, name)):
                _sync_file(file)
        sync_directory(Path(path))


def _sync_file(path: str | Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _store_binary(origin: str, program: Path) -> None:
    scratch = program.with_name(f"{_SCRATCH}program")
    shutil.copyfile(origin, scratch)
    scratch.chmod(0o755)
    scratch.rename(program)


def remove_version(directory: Path) -> None:
    """Remove a version that was being stored, with what a process that was killed left of it.

    The handler's directory goes too if it was the only version. Blocks.
    """
    for path in (directory, *directory.parent.glob(f"{_SCRATCH}*")):
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        directory.parent.rmdir()


def check_new(request: Request, plan: Plan) -> bool:
    """Return whether a version is new. Raises RuntimeInstallationError if its name is taken."""
    if plan.directory is None:
        return False
    if not plan.directory.exists():
        return True
    if request.version:
        raise RuntimeInstallationError(
            f"version {plan.version} of {plan.handler} is there already: give another --version"
        )
    return False


def check_program(program: Path) -> None:
    """Check that a program can be run and only root can have written it.

    Blocks. Raises RuntimeInstallationError.
    """
    problem = distrust(program)
    if problem is not None:
        raise RuntimeInstallationError(f"the runtime is not trusted: {problem}")
    if not program.is_file() or not os.access(program, os.X_OK):
        raise RuntimeInstallationError(f"{program} is not an executable file")


class Versions:
    """The versions of one handler below a directory of runtimes. Methods block, raise OSError."""

    def __init__(self, store: Path, handler: str) -> None:
        self.directory = store / handler
        self._record = store / _REPLACED / f"{handler}.json"

    def note_replaced(self, current: str, now_ns: int) -> None:
        """Record that all versions but the current one get no new pods from now on."""
        replaced = self._replaced()
        replaced.pop(current, None)
        for version in self._present():
            if version != current:
                replaced.setdefault(version, now_ns)
        self._record.parent.mkdir(mode=0o755, exist_ok=True)
        replace_file(self._record, msgspec.json.encode(replaced), mode=0o644)

    def remove_unused(self, sandboxes_ns: Collection[int]) -> tuple[str, ...]:
        """Remove the replaced versions that no sandbox can use; return them.

        `sandboxes_ns` are the times at which the handler's sandboxes began, in ns since the epoch.
        """
        oldest_ns = min(sandboxes_ns, default=None)
        replaced = self._replaced()
        unused = [
            version
            for version, since_ns in replaced.items()
            if oldest_ns is None or oldest_ns > since_ns
        ]
        for version in unused:
            shutil.rmtree(self.directory / version, ignore_errors=True)
            del replaced[version]
        if unused:
            replace_file(self._record, msgspec.json.encode(replaced), mode=0o644)
        return tuple(unused)

    def remove_all(self) -> None:
        """Remove every version."""
        if self.directory.exists():
            shutil.rmtree(self.directory)
        self._record.unlink(missing_ok=True)

    def _present(self) -> list[str]:
        if not self.directory.is_dir():
            return []
        return [path.name for path in self.directory.iterdir() if not path.name.startswith(".")]

    def _replaced(self) -> dict[str, int]:
        try:
            record = msgspec.json.decode(self._record.read_bytes(), type=dict[str, int])
        except (FileNotFoundError, msgspec.DecodeError, msgspec.ValidationError):
            return {}
        # What is in a record must not lead out of the directory.
        return {name: since for name, since in record.items() if name in self._present()}
