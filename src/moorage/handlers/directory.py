"""Reads directories of handler files: which definitions are in force, and what is wrong.

    /etc/moorage/handlers.d/NAME.toml      the administrator's: wins
    DATA/handlers.d/NAME.toml              the cluster's own, generated at first start

The first directory that has a file for a name decides about the name, broken or not: an override
with a slip in it must not quietly become what it overrides. Files whose names begin with a dot or
don't end in `.toml` are no handlers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from moorage.handlers.catalogue import Diagnostic
from moorage.handlers.definition import (
    SUFFIX,
    DefinitionError,
    HandlerDefinition,
    parse_definition,
)
from moorage.linux.trust import distrust

SYSTEM_DIRECTORY = Path("/etc/moorage/handlers.d")
_MOST_BYTES = 64 * 1024
_WRITING_S = 0.15
"""A file as young as this that cannot be read may be one that is still being written."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What stood in the directories. `names` are all that have a file, `is_settled` is False when a
    file is so new that it has to be read again before it is complained of.
    """

    definitions: Mapping[str, HandlerDefinition] = field(default_factory=dict)
    complaints: tuple[Diagnostic, ...] = ()
    names: frozenset[str] = frozenset()
    is_settled: bool = True


def read_directories(
    directories: Iterable[Path], former: Mapping[str, HandlerDefinition], now_s: float
) -> Reading:
    """The definitions in force. For a broken file that is its `former` one, if it had any.

    `now_s` is the wall clock's, as files' times are.
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
                complaints.append(_complaint(error, has_former=is_kept))
            continue
        if definition.is_enabled:
            definitions[name] = definition
    complaints += _rivals(definitions)
    return Reading(definitions, tuple(complaints), frozenset(paths), is_settled)


def _paths(directories: Iterable[Path]) -> dict[str, Path]:
    """The file that decides about each name. Directories that don't exist hold none."""
    paths: dict[str, Path] = {}
    for directory in directories:
        for path in definitions(directory):
            paths.setdefault(path.name.removesuffix(SUFFIX), path)
    return paths


def read_definition(path: Path) -> tuple[HandlerDefinition, bytes]:
    """What a file defines, and its text. Raises DefinitionError."""
    _require_trusted(path)
    content = _content(path)
    return parse_definition(path, content), content


def definitions(directory: Path) -> list[Path]:
    """The handler files in a directory, in order of their names; none where there is no
    directory.
    """
    try:
        entries = sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [
        path for path in entries if path.name.endswith(SUFFIX) and not path.name.startswith(".")
    ]


def _require_trusted(path: Path) -> None:
    """Raise DefinitionError for a file that others than root could have written.

    What it says is run as root.
    """
    found = distrust(path)
    if found is not None:
        about = "it" if found.path == path else str(found.path)
        raise DefinitionError(
            path, 0, f"{about} {found.problem}", f"look at it, then {found.remedy}"
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
        # Gone meanwhile: the change that took it away is told of too.
        return 0.0


def _complaint(error: DefinitionError, *, has_former: bool) -> Diagnostic:
    return Diagnostic(error.path, error.line, error.problem, error.remedy, has_former)


def _rivals(definitions: Mapping[str, HandlerDefinition]) -> list[Diagnostic]:
    """A complaint for each handler that wants to be the default when another one is already."""
    defaults = [each for each in definitions.values() if each.is_default]
    return [
        Diagnostic(
            each.path,
            0,
            f"`default`: the handler {defaults[0].name!r} is the default already",
            f"take `default` out of this file or of {defaults[0].path}",
        )
        for each in defaults[1:]
    ]
