"""Files of an engine's configuration, read in the engine's own order."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from pathlib import Path

from moorage.runtimes.installing.engine_process import CONTAINERD
from moorage.runtimes.installing.engines import (
    Configuration,
    ContainerdConfiguration,
    CrioConfiguration,
    EngineFile,
)
from moorage.runtimes.installing.engines.changes import unreadable

_MOST_BYTES = 4 * 1024 * 1024
_MOST_FILES = 1000


def read_configuration(
    engine: str, version: str, paths: Mapping[str, Path], offered: frozenset[str]
) -> Configuration:
    """Return an engine's configuration. Blocks. Raises RuntimeInstallationError."""
    if engine == CONTAINERD:
        files = _containerd_files(paths["main"])
        return ContainerdConfiguration(main=paths["main"], files=files, version=version)
    found = [paths["main"], *sorted(_files_in(paths["directory"]))]
    return CrioConfiguration(
        directory=paths["directory"],
        files=tuple(_read(path) for path in found if path.exists()),
        offered=offered,
    )


def _containerd_files(main: Path) -> tuple[EngineFile, ...]:
    """Return the main file and what it and its imports import, as containerd's LoadConfig does."""
    if not main.exists():
        return ()
    files: dict[Path, EngineFile] = {}
    pending = [main]
    while pending:
        path = pending.pop(0)
        if path in files:
            continue
        if len(files) >= _MOST_FILES:
            raise unreadable(main, f"it imports more than {_MOST_FILES} files")
        files[path] = _read(path)
        imports = files[path].document.get("imports", [])
        if isinstance(imports, list):
            for pattern in imports:
                pending += _resolved(path, pattern)
    return tuple(files.values())


def _resolved(parent: Path, pattern: object) -> list[Path]:
    if not isinstance(pattern, str):
        raise unreadable(parent, "its `imports` are not a list of texts")
    path = parent.parent / pattern
    if "*" not in pattern:
        return [path]
    return [Path(one) for one in sorted(glob.glob(str(path)))]


def _files_in(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if path.is_file()] if directory.is_dir() else []


def _read(path: Path) -> EngineFile:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise unreadable(path, error.strerror or str(error)) from error
    if len(content) > _MOST_BYTES:
        raise unreadable(path, f"it has more than {_MOST_BYTES} bytes")
    return EngineFile(path, content)
