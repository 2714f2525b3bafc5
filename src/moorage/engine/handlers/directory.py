"""Directories of handler files: the definitions in force, and the problems with them.

    /etc/moorage/handlers.d/NAME.toml      the administrator's: takes precedence
    DATA/handlers.d/NAME.toml              the cluster's own, generated at first start

The first directory with a file for a name takes precedence, even if the file is broken: an override
with a typo must not fall back silently to the file that it overrides. Files whose names begin with
a dot or do not end in `.toml` are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from moorage.engine.handlers.catalogue import Diagnostic
from moorage.engine.handlers.definition import (
    SUFFIX,
    DefinitionError,
    HandlerDefinition,
    parse_definition,
)
from moorage.linux.trust import distrust

_MOST_BYTES = 64 * 1024
_WRITING_S = 0.15
"""Age in seconds below which an invalid file may be one that its writer has not finished."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Result of reading the directories.

    `names` are all names with a file; `is_settled` is False when a file is so new that it has to be
    read again before its problem is reported.
    """

    definitions: Mapping[str, HandlerDefinition] = field(default_factory=dict)
    complaints: tuple[Diagnostic, ...] = ()
    names: frozenset[str] = frozenset()
    is_settled: bool = True


def read_directories(
    directories: Iterable[Path], former: Mapping[str, HandlerDefinition], now_s: float
) -> Reading:
    """Read the directories and return the definitions in force.

    A broken file keeps its `former` definition in force, if it had one. `now_s` is wall-clock time
    in seconds, as file times are.
    """
    definitions: dict[str, HandlerDefinition] = {}
    complaints: list[Diagnostic] = []
    is_settled = True
    paths = _paths(directories)
    for name, path in sorted(paths.items()):
        try:
            definition, _ = read_definition(path)
        except DefinitionError as error:
            is_kept = name in former
            if is_kept:
                definitions[name] = former[name]
            if _age_s(path, now_s) < _WRITING_S:
                is_settled = False
            else:
                complaints.append(_diagnostic(error, has_former=is_kept))
            continue
        if definition.is_enabled:
            definitions[name] = definition
    complaints += _conflicting_defaults(definitions)
    return Reading(definitions, tuple(complaints), frozenset(paths), is_settled)


def _paths(directories: Iterable[Path]) -> dict[str, Path]:
    """Return the file in effect for each name. Missing directories count as empty."""
    paths: dict[str, Path] = {}
    for directory in directories:
        for path in definitions(directory):
            paths.setdefault(path.name.removesuffix(SUFFIX), path)
    return paths


def read_definition(path: Path) -> tuple[HandlerDefinition, bytes]:
    """Read and parse a handler file; return its definition and content. Raises DefinitionError."""
    _require_trusted(path)
    content = _content(path)
    return parse_definition(path, content), content


def definitions(directory: Path) -> list[Path]:
    """Return a directory's handler files, sorted by name; empty if it does not exist."""
    try:
        entries = sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [
        path for path in entries if path.name.endswith(SUFFIX) and not path.name.startswith(".")
    ]


def _require_trusted(path: Path) -> None:
    """Raise DefinitionError for a file that is writable by users other than root.

    The programs it names run as root.
    """
    distrusted = distrust(path)
    if distrusted is not None:
        about = "it" if distrusted.path == path else str(distrusted.path)
        raise DefinitionError(
            path, 0, f"{about} {distrusted.problem}", f"inspect it, then {distrusted.remedy}"
        )


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        why = error.strerror or str(error)
        raise DefinitionError(
            path, 0, f"it cannot be read: {why}", "correct or remove it"
        ) from error
    if len(content) > _MOST_BYTES:
        limit = f"it is larger than {_MOST_BYTES // 1024} KiB"
        raise DefinitionError(path, 0, limit, "write a handler's definition or remove it")
    return content


def _age_s(path: Path, now_s: float) -> float:
    try:
        return abs(now_s - path.stat().st_mtime)
    except OSError:
        # Removed since: its removal is a change event of its own.
        return 0.0


def _diagnostic(error: DefinitionError, *, has_former: bool) -> Diagnostic:
    return Diagnostic(error.path, error.line, error.problem, error.remedy, has_former)


def _conflicting_defaults(definitions: Mapping[str, HandlerDefinition]) -> list[Diagnostic]:
    """Return a diagnostic for each handler with `default` besides the first one."""
    defaults = [definition for definition in definitions.values() if definition.is_default]
    return [
        Diagnostic(
            definition.path,
            0,
            f"`default`: the handler {defaults[0].name!r} is already the default",
            f"remove `default` from this file or from {defaults[0].path}",
        )
        for definition in defaults[1:]
    ]
