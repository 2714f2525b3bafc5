"""Runtime handler discovery on this host, as printed by `moor runtimes`.

Looks up each known runtime on PATH and queries its version and features, concurrently and each
under a deadline, then judges it. A runtime yields one handler per name, available
or not, so that the error for a class with an unavailable handler can give the reason.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec

from moorage.engine.handlers.availability import InstalledRuntime, judge
from moorage.engine.handlers.defects import Defect, gvisor_defect
from moorage.engine.handlers.features import NO_FEATURES, HandlerFeatures
from moorage.engine.handlers.machine import Machine
from moorage.engine.handlers.program_probe import QUERY_DEADLINE_S, Program, probe_program
from moorage.engine.handlers.runtimes import KNOWN_RUNTIMES, Runtime


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
