"""Handler probing: finds, queries and judges the programs of a handler's definition.

A program is queried once per state of its file: an upgrade changes the file's inode or times, and
only then is it queried again, unless it did not answer. Programs are queried concurrently, each
under a deadline.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from moorage.engine.handlers.availability import (
    AVAILABLE,
    InstalledRuntime,
    Verdict,
    distrusted,
    judge,
)
from moorage.engine.handlers.definition import HandlerDefinition, ShimOptions
from moorage.engine.handlers.features import NO_FEATURES, Machine
from moorage.engine.handlers.runtimes import KNOWN_RUNTIMES, Runtime
from moorage.engine.handlers.search_path import QUERY_DEADLINE_S, Program, probe_program
from moorage.engine.handlers.templates import OfferedHandler
from moorage.linux.trust import distrust

RETRY_S = 10.0
MAX_RETRY_S = 300.0
PENDING = Verdict(
    "its version query has not completed yet", "wait a moment, then run `moor runtimes`"
)
"""On a handler whose program is being asked for the first time."""


@dataclass(frozen=True, slots=True)
class _Fingerprint:
    """State of a program's file; a different fingerprint means a different program."""

    path: Path
    inode: int
    modified_ns: int
    changed_ns: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class RequiredProgram:
    """A program that a definition needs, as spelled there."""

    spelled: str
    runtime: Runtime


class Prober:
    """Finds and queries programs, and caches their answers.

    Queries run as tasks of the given group. A program that did not answer is queried again after a
    pause, which doubles each time: a busy host may have been the cause.
    """

    def __init__(
        self,
        group: asyncio.TaskGroup,
        path: str,
        on_result: Callable[[], None],
        *,
        deadline_s: float = QUERY_DEADLINE_S,
        retry_s: float = RETRY_S,
    ) -> None:
        """`path` is the search path; `on_result` is called after each answer.

        `retry_s` is the first pause before a program that did not answer is queried again.
        """
        self._group = group
        self._path = path
        self._on_result = on_result
        self._deadline_s = deadline_s
        self._retry_s = retry_s
        self._queries: dict[_Fingerprint, asyncio.Task[Program]] = {}
        self._retries: dict[_Fingerprint, asyncio.Task[Program]] = {}
        self._is_closed = False

    def offer(self, definition: HandlerDefinition, machine: Machine) -> OfferedHandler:
        """Return the handler of a definition as far as its programs have answered.

        Does not block on queries: it starts them, and `on_result` is called when one completes.
        Reads a few file system entries.
        """
        programs = [
            (required, self.find(required.spelled)) for required in required_programs(definition)
        ]
        # All queries are started before the first verdict, so that they run concurrently.
        results = [
            None if path is None else self.query(required.runtime, path, machine)
            for required, path in programs
        ]
        features, version, program = NO_FEATURES, "", programs[0][1]
        is_pending = False
        for (required, path), result in zip(programs, results, strict=True):
            if path is not None and result is None:
                # What is wrong with another file is known already.
                is_pending = True
                continue
            answer = result or Program(Path(required.spelled))
            verdict = judge(_installed_runtime(definition, required, path, answer), machine)
            if not verdict.is_available:
                return OfferedHandler(
                    definition=definition, program=program, version=version, verdict=verdict
                )
            # Behind a shim, the runtime reports the features and the shim only its version.
            version = version or str(answer.version or "")
            features = answer.features or features
        verdict = _missing_configuration(definition)
        if verdict.is_available and is_pending:
            verdict = PENDING
        return OfferedHandler(
            definition=definition,
            program=program,
            version="" if is_pending else version,
            features=features if verdict.is_available else NO_FEATURES,
            verdict=verdict,
        )

    def query(self, runtime: Runtime, path: Path, machine: Machine) -> Program | None:
        """Return a program's answer, or None while the query runs; starts it if needed."""
        # Not cached: the cause may be a parent directory, which the fingerprint does not cover.
        distrusted = distrust(path)
        if distrusted is not None:
            return Program(path, distrust=distrusted)
        try:
            status = path.stat()
        except OSError as error:
            return Program(path, failure=error.strerror or str(error))
        print_ = _Fingerprint(
            path, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size
        )
        task = self._queries.get(print_)
        if task is None:
            self._drop(tuple(former for former in self._queries if former.path == path))
            task = self._query(runtime, print_, machine, pause_s=0.0, retry_s=self._retry_s)
            self._queries[print_] = task
        return task.result() if task.done() and not task.cancelled() else None

    def _query(
        self,
        runtime: Runtime,
        print_: _Fingerprint,
        machine: Machine,
        *,
        pause_s: float,
        retry_s: float,
    ) -> asyncio.Task[Program]:
        """Query a program after a pause, and after `retry_s` again if it does not answer."""

        async def query() -> Program:
            await asyncio.sleep(pause_s)
            return await probe_program(
                runtime, print_.path, machine.kernel, deadline_s=self._deadline_s
            )

        def on_done(task: asyncio.Task[Program]) -> None:
            if self._retries.get(print_) is task:
                # The former answer counts until the next one is there.
                del self._retries[print_]
                self._queries[print_] = task
            if (
                not self._is_closed
                and not task.cancelled()
                and self._queries.get(print_) is task
                and task.result().is_unanswered
            ):
                self._retries[print_] = self._query(
                    runtime,
                    print_,
                    machine,
                    pause_s=retry_s,
                    retry_s=min(2 * retry_s, MAX_RETRY_S),
                )
            self._on_result()

        task = self._group.create_task(query())
        task.add_done_callback(on_done)
        return task

    def find(self, spelled: str) -> Path | None:
        """Return the path of an executable program, or None."""
        program = shutil.which(spelled, path=self._path)
        return None if program is None else Path(program)

    @property
    def pending(self) -> tuple[asyncio.Task[Program], ...]:
        """Return the first queries that have not completed."""
        return tuple(task for task in self._queries.values() if not task.done())

    def close(self) -> None:
        """Cancel all queries, and start none."""
        self._is_closed = True
        for task in (*self._queries.values(), *tuple(self._retries.values())):
            task.cancel()
        self._retries.clear()

    def forget(self) -> None:
        """Drop the cached answers, so that programs are queried again; keeps running queries."""
        self._drop(tuple(print_ for print_, task in self._queries.items() if task.done()))

    def _drop(self, prints: Iterable[_Fingerprint]) -> None:
        """Drop answers, and the retries of those that are missing."""
        for print_ in prints:
            del self._queries[print_]
            if (retry := self._retries.pop(print_, None)) is not None:
                retry.cancel()


def required_programs(
    definition: HandlerDefinition, runtimes: Iterable[Runtime] = KNOWN_RUNTIMES
) -> tuple[RequiredProgram, ...]:
    """Return the programs a handler needs: its own, and the runtime behind runc's shim."""
    options = definition.options
    is_shim = isinstance(options, ShimOptions)
    own = runtime_of(definition.binary, definition, is_shim=is_shim, runtimes=tuple(runtimes))
    programs = [RequiredProgram(definition.binary, own)]
    behind = options.runtime if isinstance(options, ShimOptions) else None
    if behind is not None:
        runtime = runtime_of(behind, definition, is_shim=False, runtimes=tuple(runtimes))
        programs.append(RequiredProgram(behind, runtime))
    return tuple(programs)


def runtime_of(
    spelled: str, definition: HandlerDefinition, *, is_shim: bool, runtimes: tuple[Runtime, ...]
) -> Runtime:
    """Return the known runtime with this program, else a generic one."""
    name = Path(spelled).name
    for runtime in runtimes:
        if runtime.program == name and runtime.is_shim == is_shim:
            # The definition names the configuration, instead of the known runtime's candidates.
            return replace(runtime, configurations=())
    return Runtime(
        name=name,
        program=name,
        handlers=(definition.name,),
        is_shim=is_shim,
        # The arguments that an unknown shim accepts are unknown.
        version_arguments=() if is_shim else ("--version",),
    )


def _installed_runtime(
    definition: HandlerDefinition, required: RequiredProgram, path: Path | None, answer: Program
) -> InstalledRuntime:
    return InstalledRuntime(
        required.runtime,
        path,
        answer.version,
        failure=answer.failure,
        program=required.spelled,
        defined_in=definition.path,
        distrust=answer.distrust,
    )


def _missing_configuration(definition: HandlerDefinition) -> Verdict:
    options = definition.options
    configuration = options.config_path if isinstance(options, ShimOptions) else None
    if configuration is None:
        return AVAILABLE
    if Path(configuration).is_file():
        problem = distrust(Path(configuration))
        return AVAILABLE if problem is None else distrusted(problem)
    return Verdict(
        f"its configuration {configuration} does not exist",
        f"write it, or correct `config_path` in {definition.path}",
    )
