"""Handler directory watch: a handler file that is added, changed or removed takes effect at once.

    kernel ─change─▶ interest? ─▶ read all files ─▶ ask new programs ─▶ catalogue ─▶ listeners

Each round reads all files again, so a missed change, or a burst of changes, costs at most one more
round. Programs are watched as well: an upgraded runtime is queried again, and one that is installed
later gets a handler file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from moorage.api.logs import Log
from moorage.engine.handlers.definition import HandlerDefinition
from moorage.engine.handlers.discovery import Reading, read_directories
from moorage.engine.handlers.features import Machine, this_machine
from moorage.engine.handlers.probe import PENDING, Prober, required_programs
from moorage.engine.handlers.runtimes import KNOWN_RUNTIMES, Runtime
from moorage.engine.handlers.search_path import QUERY_DEADLINE_S, Program
from moorage.engine.handlers.templates import (
    Catalogue,
    OfferedHandler,
    changed_names,
    generate,
    write_missing,
)
from moorage.linux.inotify import DirectoryChange, Inotify

# Watch set: the directory changes that can affect a set of handlers.
#
# Every change in a directory of handler files is relevant; in a directory of programs only
# changes of the programs' names are. A missing path is watched in its nearest existing parent
# directory.


class WatchSet:
    """Directories to watch, each with the relevant entry names."""

    def __init__(self) -> None:
        self._names: dict[Path, set[str]] = {}
        self._whole: set[Path] = set()

    @property
    def directories(self) -> frozenset[Path]:
        """Directories to watch."""
        return frozenset(self._whole | self._names.keys())

    def add_directory(self, directory: Path) -> None:
        """Add every entry of a directory, and the directory itself, which may be created later."""
        self._whole.add(_real(directory))
        # Removal, re-creation and retargeting of a link are seen in the parent directory.
        for path in _with_links(directory):
            self._add_entry(path)

    def add_program(self, spelled: str, search_path: str) -> None:
        """Add a program at each place on the search path, existing or not, and its link target."""
        if os.sep in spelled:
            places: list[Path] = [Path(spelled)]
        else:
            places = [
                Path(directory) / spelled
                for directory in search_path.split(os.pathsep)
                if directory
            ]
        for place in places:
            for path in _with_links(place):
                self._add_entry(path)

    def concerns(self, changes: Iterable[DirectoryChange]) -> bool:
        """Return whether any of the changes is relevant."""
        return any(
            change.is_uncertain
            or not change.name
            or change.directory in self._whole
            or change.name in self._names.get(change.directory, ())
            for change in changes
        )

    def _add_entry(self, path: Path) -> None:
        missing = path
        for above in path.parents:
            if above.is_dir():
                # inotify reports a directory once, under the name by which it was watched last.
                self._names.setdefault(_real(above), set()).add(missing.name)
                return
            missing = above


def watch_set_of(
    directories: Iterable[Path], programs: Iterable[str], search_path: str
) -> WatchSet:
    """Return the watch set of directories of handler files and of the programs these name."""
    interest = WatchSet()
    for directory in directories:
        interest.add_directory(directory)
    for program in programs:
        interest.add_program(program, search_path)
    return interest


def _with_links(path: Path) -> Iterator[Path]:
    """Yield the path, and its link target if it differs."""
    yield path
    target = _real(path)
    if target != path:
        yield target


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


Listener = Callable[[Catalogue, Catalogue], None]

# Changes arrive in bursts (a package's files, an editor's write): one round per burst.
_QUIET_S = 0.01
_PATIENCE_S = 0.05
_ANSWER_S = 0.08
_SETTLE_S = 0.2
# A program has two queries.
_ANSWERED_WITHIN_S = 2 * QUERY_DEADLINE_S + 1

_LOG = Log("moorage.engine.handlers")


class HandlerDirectory:
    """The handlers of a list of directories.

    `async with` reads them and watches them until it exits.

    Inside the block, `catalogue` is always complete. When the watch itself fails, the block is
    cancelled and the failure is raised from it.
    """

    def __init__(
        self,
        directories: Sequence[Path],
        *,
        path: str,
        read_machine: Callable[[], Machine] = this_machine,
        generate_into: Path | None = None,
        query_deadline_s: float = QUERY_DEADLINE_S,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        """`directories` are in order of precedence; `path` is the search path for programs.

        Known runtimes that are installed and have no file get one in `generate_into`. A burst of
        changes is waited for during `patience_s` at most.
        """
        self._patience_s = patience_s
        self._directories = tuple(directory.absolute() for directory in directories)
        self._path = path
        self._read_machine = read_machine
        self._generate_into = generate_into
        self._catalogue = Catalogue()
        self._in_force: Mapping[str, HandlerDefinition] = {}
        self._generated: set[str] = set()
        self._listeners: list[Listener] = []
        self._changed = asyncio.Event()
        self._round = asyncio.Lock()
        self._watch_set = WatchSet()
        self._group = asyncio.TaskGroup()
        self._prober = Prober(self._group, path, self._changed.set, deadline_s=query_deadline_s)
        self._tasks: list[asyncio.Task[None]] = []
        self._settling: asyncio.TimerHandle | None = None

    @property
    def catalogue(self) -> Catalogue:
        """Return the catalogue in force."""
        return self._catalogue

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """Register a function to call with the old and the new catalogue on each change.

        Returns a function that removes it.

        The listener must not block. An exception from it ends the watch.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def wait_answered(self, name: str, within_s: float = _ANSWERED_WITHIN_S) -> None:
        """Return once the program of a handler has answered its first query, or after `within_s`.

        Returns at once for a handler that is available, or is unavailable for another reason.
        """
        answered = asyncio.Event()

        def look(_old: Catalogue, new: Catalogue) -> None:
            handler = new.find(name)
            if handler is None or handler.verdict is not PENDING:
                answered.set()

        look(self._catalogue, self._catalogue)
        remove = self.add_listener(look)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await answered.wait()
        finally:
            remove()

    async def refresh(self) -> Catalogue:
        """Read all files and query all programs again, including those that have not changed."""
        self._prober.forget()
        await self._scan(waits_for_all=True)
        return self._catalogue

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._inotify = Inotify()
        try:
            await self._scan(waits_for_all=True)
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        self._tasks = [
            self._group.create_task(self._listen()),
            self._group.create_task(self._follow()),
        ]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._prober.close()
        for task in self._tasks:
            task.cancel()
        if self._settling is not None:
            self._settling.cancel()
        try:
            await self._group.__aexit__(kind, error, trace)
        finally:
            self._inotify.close()

    async def _listen(self) -> None:
        while True:
            changes = await self._inotify.changes()
            # Evaluated late: the watch set may have changed while waiting.
            if self._watch_set.concerns(changes):
                self._changed.set()

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            await self._quiet()
            await self._scan(waits_for_all=False)

    async def _quiet(self) -> None:
        """Return once no change has arrived for `_QUIET_S`, or after the longest wait."""
        loop = asyncio.get_running_loop()
        latest = loop.time() + self._patience_s
        while self._changed.is_set() and loop.time() < latest:
            self._changed.clear()
            try:
                async with asyncio.timeout(_QUIET_S):
                    await self._changed.wait()
            except TimeoutError:
                return
        self._changed.clear()

    async def _scan(self, *, waits_for_all: bool) -> None:
        async with self._round:
            # Watches are set before the files are read, so that no change is lost in between.
            await self._watch_all({})
            await self._generate(waits_for_all=waits_for_all)
            reading, machine = await asyncio.to_thread(self._read)
            await self._watch_all(reading.definitions)
            catalogue = self._judge(reading, machine)
            if self._prober.pending:
                limit = None if waits_for_all else _ANSWER_S
                await asyncio.wait(self._prober.pending, timeout=limit)
                catalogue = self._judge(reading, machine)
            if not reading.is_settled:
                self._settle()
            self._in_force = reading.definitions
            self._publish(catalogue)

    def _read(self) -> tuple[Reading, Machine]:
        return read_directories(
            self._directories, self._in_force, time.time()
        ), self._read_machine()

    def _judge(self, reading: Reading, machine: Machine) -> Catalogue:
        return Catalogue(
            {
                name: self._offered(name, definition, machine)
                for name, definition in reading.definitions.items()
            },
            reading.complaints,
        )

    def _offered(
        self, name: str, definition: HandlerDefinition, machine: Machine
    ) -> OfferedHandler:
        """Return a handler; while its new program is asked, the former one, if that is fit.

        Pods that start in between would be refused otherwise, for as long as the host is busy.
        """
        new = self._prober.offer(definition, machine)
        former = self._catalogue.handlers.get(name)
        if new.verdict is PENDING and former is not None and self._is_fit(former, machine):
            return former
        return new

    def _is_fit(self, former: OfferedHandler, machine: Machine) -> bool:
        """Return whether an available handler's files are still there, and trusted."""
        if not former.is_available or self._prober.find(str(former.program)) is None:
            return False
        present = self._prober.offer(former.definition, machine)
        return present.is_available or present.verdict is PENDING

    async def _watch_all(self, definitions: Mapping[str, HandlerDefinition]) -> None:
        names = {runtime.program for runtime in KNOWN_RUNTIMES} if self._generate_into else set()
        for definition in (*definitions.values(), *self._in_force.values()):
            names |= {program.spelled for program in required_programs(definition)}
        while True:
            watch_set = await asyncio.to_thread(watch_set_of, self._directories, names, self._path)
            self._watch_set = watch_set
            new = watch_set.directories - self._inotify.directories
            for directory in self._inotify.directories - watch_set.directories:
                self._inotify.forget(directory)
            # Missing directories are watched in a parent; retrying them here would loop forever.
            watched = [directory for directory in new if self._inotify.watch(directory)]
            if not watched:
                return
            # Changes between the scan of a directory and its watch are found by scanning again.

    async def _generate(self, *, waits_for_all: bool) -> None:
        """Write handler files for programs that were not installed in the last round."""
        if self._generate_into is None:
            return
        installed, machine = await asyncio.to_thread(self._find_known)
        self._generated &= installed.keys()
        new = {name: installed[name] for name in installed.keys() - self._generated}
        if not new:
            return
        self._query(new, machine)
        if self._prober.pending:
            limit = None if waits_for_all else _ANSWER_S
            await asyncio.wait(self._prober.pending, timeout=limit)
        # A program that has not answered yet gets its file in the round that its answer triggers.
        programs = self._query(new, machine)
        self._generated |= programs.keys()
        for name in await asyncio.to_thread(self._write_missing, programs):
            _LOG.info("handler file written", handler=name, directory=self._generate_into)

    def _find_known(self) -> tuple[dict[str, tuple[Runtime, Path]], Machine]:
        installed = {
            runtime.program: (runtime, path)
            for runtime in KNOWN_RUNTIMES
            if (path := self._prober.find(runtime.program)) is not None
        }
        return installed, self._read_machine()

    def _query(
        self, installed: Mapping[str, tuple[Runtime, Path]], machine: Machine
    ) -> dict[str, Program]:
        results = {
            name: self._prober.query(*program, machine) for name, program in installed.items()
        }
        return {name: result for name, result in results.items() if result is not None}

    def _write_missing(self, programs: Mapping[str, Program]) -> tuple[str, ...]:
        if self._generate_into is None:
            return ()
        names = read_directories(self._directories, {}, time.time()).names
        return write_missing(self._generate_into, generate(programs), names)

    def _settle(self) -> None:
        """Schedule another round for a file that its writer may not have finished yet."""
        if self._settling is not None:
            self._settling.cancel()
        loop = asyncio.get_running_loop()
        self._settling = loop.call_later(_SETTLE_S, self._changed.set)

    def _publish(self, new: Catalogue) -> None:
        old = self._catalogue
        if new == old:
            return
        self._catalogue = new
        for diagnostic in new.complaints:
            if diagnostic not in old.complaints:
                _LOG.warning("handler file refused", file=diagnostic.path, why=diagnostic)
        for name in changed_names(old, new):
            offered = new.handlers.get(name)
            _LOG.info(
                "handler changed",
                handler=name,
                state=_state(name, new),
                **({"why": offered.verdict.reason} if offered and offered.verdict.reason else {}),
            )
        for listener in tuple(self._listeners):
            listener(old, new)


def _state(name: str, catalogue: Catalogue) -> str:
    offered = catalogue.handlers.get(name)
    if offered is None:
        return "removed"
    return "available" if offered.is_available else "unavailable"
