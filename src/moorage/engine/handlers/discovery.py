"""Runtime handler discovery on this host, as printed by `moor runtimes`.

Looks up each known runtime on PATH and queries its version and features, concurrently and each
under a deadline, then judges it. A runtime yields one handler per name, available
or not, so that the error for a class with an unavailable handler can give the reason.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from moorage.engine.handlers.availability import InstalledRuntime, judge
from moorage.engine.handlers.defects import Defect, gvisor_defect
from moorage.engine.handlers.definition import (
    SUFFIX,
    DefinitionError,
    HandlerDefinition,
    parse_definition,
)
from moorage.engine.handlers.features import NO_FEATURES, HandlerFeatures, Machine
from moorage.engine.handlers.runtimes import KNOWN_RUNTIMES, Runtime
from moorage.engine.handlers.search_path import QUERY_DEADLINE_S, Program, probe_program
from moorage.engine.handlers.templates import Diagnostic
from moorage.linux.trust import distrust

# Directories of handler files: the definitions in force, and the problems with them.
#
#     /etc/moorage/handlers.d/NAME.toml      the administrator's: takes precedence
#     DATA/handlers.d/NAME.toml              the cluster's own, generated at first start
#
# The first directory with a file for a name takes precedence, even if the file is broken: an
# override with a typo must not fall back silently to the file that it overrides. Files whose
# names begin with a dot or do not end in `.toml` are ignored.

MOST_BYTES = 64 * 1024
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
    content = read_limited(path)
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


def read_limited(path: Path) -> bytes:
    """Return a definition file's content. Raises DefinitionError for one that is too large."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        why = error.strerror or str(error)
        raise DefinitionError(
            path, 0, f"it cannot be read: {why}", "correct or remove it"
        ) from error
    if len(content) > MOST_BYTES:
        limit = f"it is larger than {MOST_BYTES // 1024} KiB"
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


class Handler(msgspec.Struct, frozen=True, kw_only=True):
    """A runtime handler of this host: the name that a RuntimeClass refers to, and its program.

    `reason` and `remedy` say why it is not available; `defect` and `defect_remedy` describe what
    does not work although it is. `features` are the features that pods get under the engine;
    `runtime_features` the features that the runtime reports, None when it reports none. `default`
    and `file` are known of an engine's handlers alone: whether pods without a class get it, and the
    file that defines it.
    """

    handler: str
    runtime: str
    path: str = ""
    version: str = ""
    available: bool = False
    reason: str = ""
    remedy: str = ""
    defect: str = ""
    defect_remedy: str = ""
    features: tuple[str, ...] = ()
    runtime_features: tuple[str, ...] | None = None
    configuration: str = ""
    default: bool = False
    file: str = ""


async def discover(
    machine: Machine,
    *,
    path: str,
    runtimes: Iterable[Runtime] = KNOWN_RUNTIMES,
    deadline_s: float = QUERY_DEADLINE_S,
) -> tuple[Handler, ...]:
    """Return every handler that the known runtimes provide on this host, in the table's order.

    Does not raise: a runtime that fails is unavailable, with the failure as its reason.
    """
    known_runtimes = tuple(runtimes)
    programs = await _query_all(known_runtimes, path, machine.kernel, deadline_s)
    return tuple(
        handler
        for runtime in known_runtimes
        for handler in _handlers(runtime, programs.get(runtime.program), machine)
    )


async def _query_all(
    runtimes: Iterable[Runtime], path: str, kernel: tuple[int, int], deadline_s: float
) -> dict[str, Program]:
    """Probe each installed program once, however many runtimes share it."""
    by_program = {runtime.program: runtime for runtime in runtimes}
    tasks: dict[str, asyncio.Task[Program]] = {}
    async with asyncio.TaskGroup() as group:
        for program, runtime in by_program.items():
            where = shutil.which(program, path=path)
            if where is not None:
                tasks[program] = group.create_task(
                    probe_program(runtime, Path(where), kernel, deadline_s=deadline_s)
                )
    return {program: task.result() for program, task in tasks.items()}


def _handlers(runtime: Runtime, program: Program | None, machine: Machine) -> Iterable[Handler]:
    configuration = next((file for file in runtime.configurations if file.is_file()), None)
    installed = InstalledRuntime(runtime, configuration=configuration)
    claimed: HandlerFeatures | None = None
    if program is not None:
        installed = InstalledRuntime(
            runtime, program.path, program.version, configuration, program.failure,
            distrust=program.distrust,
        )  # fmt: skip
        claimed = program.features
    verdict = judge(installed, machine)
    defect = gvisor_defect(str(installed.version or "")) if runtime.is_gvisor else Defect()
    offered = (claimed or NO_FEATURES) if verdict.is_available else NO_FEATURES
    for name in runtime.handlers:
        yield Handler(
            handler=name,
            runtime=runtime.name,
            path=str(installed.path or ""),
            version=str(installed.version or ""),
            available=verdict.is_available,
            reason=verdict.reason,
            remedy=verdict.remedy,
            defect=defect.meaning,
            defect_remedy=defect.remedy,
            features=offered.names,
            runtime_features=None if claimed is None else claimed.names,
            configuration=str(configuration or ""),
        )
