"""Installation of runtimes on a node: version, files, proof, or everything as before.

journal ─▶ store/NAME/VERSION ─▶ files ─▶ engine ─▶ proof ─▶ journal cleared
                                      └─ any failure: files, engine and directory as before
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from moorage.api.logs import Log
from moorage.api.runtime_group import TRIAL_HANDLER
from moorage.linux.locks import exclusive_async
from moorage.runtimes.installing.downloads import HandlerInUseError, RuntimeInstallationError
from moorage.runtimes.installing.engine import ManagedEngine, sandboxes_of
from moorage.runtimes.installing.engines import FileChange
from moorage.runtimes.installing.journal import (
    Entry,
    Journal,
    MadeDirectories,
    Stage,
    missing_above,
    restore_changes,
    write_changes,
)
from moorage.runtimes.installing.plan import Plan, Request, check_request, plan_installation
from moorage.runtimes.installing.versions import (
    Versions,
    check_new,
    check_program,
    measure,
    remove_version,
    store_version,
)
from moorage.wire.cri import CriError

_LOCK = ".lock"

log = Log(__name__)


@dataclass(frozen=True, slots=True)
class Installer:
    """Installs into `store` and an engine; `handlers` is a directory of handler files, or none.

    `report` is called with a sentence about an interrupted change that was undone.
    """

    engine: ManagedEngine
    store: Path
    handlers: Path
    report: Callable[[str], None]

    async def install(self, request: Request, *, is_upgrade: bool) -> Plan:
        """Install a handler, or another version of one. Returns what was done.

        Raises RuntimeInstallationError, with everything as before.
        """
        check_request(request)
        async with self._exclusive():
            is_there = request.handler in await self.engine.written()
            if is_there != is_upgrade:
                verb = "upgrade" if is_there else "add"
                state = "is there already" if is_there else "does not exist"
                raise RuntimeInstallationError(
                    f"handler {request.handler} {state}: use `moor runtime {verb}`"
                )
            digest = await asyncio.to_thread(measure, request)
            plan = plan_installation(request, digest, self.store, self.handlers)
            is_new = check_new(request, plan)
            if is_upgrade and self.engine.changes_running:
                await self._try(request, plan, is_new=is_new)
            entry = Entry(
                handler=plan.handler,
                verb="upgrade" if is_upgrade else "add",
                stage=Stage.STORING,
                directory=str(plan.directory) if is_new else "",
                offered=await self.engine.offered(),
                restart=self.engine.restart,
            )
            async with self._undone_on_failure(entry) as steps:
                await asyncio.to_thread(store_version, request, plan)
                await asyncio.to_thread(check_program, plan.program)
                await steps.write(await self.engine.addition(plan))
                await self.engine.take_over(plan)
            await self._keep_versions(plan)
            return plan

    async def _try(self, request: Request, plan: Plan, *, is_new: bool) -> None:
        """Prove a version as a handler of its own, which no pod uses, and remove that again.

        Containers that run would be killed by a broken version of their handler.
        """
        trial = msgspec.structs.replace(
            plan, handler=TRIAL_HANDLER, file=self.handlers / f"{TRIAL_HANDLER}.toml"
        )
        # Handlers that are new, and their removal, need no restart.
        entry = Entry(
            handler=TRIAL_HANDLER,
            verb="try",
            stage=Stage.STORING,
            directory=str(plan.directory) if is_new else "",
            offered=await self.engine.offered(),
        )
        try:
            async with self._undone_on_failure(entry) as steps:
                await asyncio.to_thread(store_version, request, plan)
                await asyncio.to_thread(check_program, plan.program)
                await steps.write(await self.engine.addition(trial))
                await self.engine.take_over(trial)
            entry = msgspec.structs.replace(entry, offered=await self.engine.offered())
            async with self._undone_on_failure(entry) as steps:
                await steps.write(await self.engine.removal(TRIAL_HANDLER))
                await self.engine.drop(TRIAL_HANDLER)
        except RuntimeInstallationError as error:
            raise RuntimeInstallationError(
                f"version {plan.version} of {plan.handler} was tried apart from pods first: {error}"
            ) from error

    async def remove(self, handler: str, *, even_if_used: bool = False) -> bool:
        """Remove a handler, and its stored versions unless sandboxes are left under it.

        Returns whether the versions are gone. Raises RuntimeInstallationError if there is none, if
        pods run under it and it is not `even_if_used`, and if the engine does not work without it.
        """
        async with self._exclusive():
            versions = Versions(self.store, handler)
            is_written = handler in await self.engine.written()
            changes: tuple[FileChange, ...] = ()
            if is_written or not versions.directory.exists():
                changes = await self.engine.removal(handler)
            pods = [
                sandbox.name
                for sandbox in await sandboxes_of(self.engine.cri, handler)
                if sandbox.is_running_pod
            ]
            if pods and is_written and not even_if_used:
                raise HandlerInUseError(handler, pods)
            if is_written:
                entry = Entry(
                    handler=handler,
                    verb="remove",
                    stage=Stage.STORING,
                    offered=await self.engine.offered(),
                    restart=self.engine.restart,
                )
                async with self._undone_on_failure(entry) as steps:
                    await steps.write(changes)
                    await self.engine.drop(handler)
                await asyncio.to_thread(MadeDirectories(self.store).remove_empty)
            if await sandboxes_of(self.engine.cri, handler):
                return False
            await asyncio.to_thread(versions.remove_all)
            return True

    async def recover(self) -> None:
        """Undo a change that was interrupted, if there is one. Raises RuntimeInstallationError."""
        async with self._exclusive():
            return

    @asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[None]:
        """Hold the right to change runtimes, with no interrupted change left."""
        await asyncio.to_thread(self.store.mkdir, mode=0o755, parents=True, exist_ok=True)
        async with exclusive_async(self.store / _LOCK):
            journal = Journal(self.store)
            entry = await asyncio.to_thread(journal.read)
            if entry is not None:
                await _undo(self.engine, self.store, entry)
                self.report(
                    f"an interrupted `moor runtime {entry.verb} {entry.handler}` was undone"
                )
            yield

    def _undone_on_failure(self, entry: Entry) -> _Steps:
        return _Steps(self.engine, self.store, entry)

    async def _keep_versions(self, plan: Plan) -> None:
        """Record what was replaced, and remove what no pod needs any more."""
        if plan.directory is None:
            return
        versions = Versions(self.store, plan.handler)
        current = plan.directory.name
        await asyncio.to_thread(versions.note_replaced, current, time.time_ns())
        try:
            sandboxes = await sandboxes_of(self.engine.cri, plan.handler)
        except CriError as error:
            log.warning("versions are not cleared yet", handler=plan.handler, reason=error)
            return
        began_ns = [sandbox.created_ns for sandbox in sandboxes]
        await asyncio.to_thread(versions.remove_unused, began_ns)


class _Steps:
    """A change under way: recorded before each step, and undone if one fails."""

    def __init__(self, engine: ManagedEngine, store: Path, entry: Entry) -> None:
        self._engine = engine
        self._store = store
        self._journal = Journal(store)
        self._entry = entry

    async def __aenter__(self) -> _Steps:
        await asyncio.to_thread(self._journal.write, self._entry)
        return self

    async def write(self, changes: tuple[FileChange, ...]) -> None:
        """Write files, after which the engine may use them."""
        self._entry = msgspec.structs.replace(self._entry, stage=Stage.WRITING, changes=changes)
        await asyncio.to_thread(self._journal.write, self._entry)
        await asyncio.to_thread(self._note_directories, changes)
        await asyncio.to_thread(write_changes, changes)
        self._entry = msgspec.structs.replace(self._entry, stage=Stage.USED)
        await asyncio.to_thread(self._journal.write, self._entry)

    def _note_directories(self, changes: tuple[FileChange, ...]) -> None:
        if missing := missing_above(change.path for change in changes if change.after is not None):
            MadeDirectories(self._store).note(missing)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        del trace
        if error is None:
            await asyncio.to_thread(self._journal.clear)
            return
        try:
            # Also of a cancelled task: the engine must not stay between two configurations.
            await _undo(self._engine, self._store, self._entry)
        except (RuntimeInstallationError, CriError, OSError) as failure:
            raise RuntimeInstallationError(
                f"{error}; and this could not be undone: {failure}; the next `moor runtime` tries "
                "again"
            ) from error
        if isinstance(error, RuntimeInstallationError):
            raise RuntimeInstallationError(f"{error}; everything is as before") from error


async def _undo(engine: ManagedEngine, store: Path, entry: Entry) -> None:
    """Undo a change. Raises RuntimeInstallationError, CriError, OSError; the record stays then."""
    await asyncio.to_thread(restore_changes, entry.changes)
    if entry.stage is not Stage.STORING:
        await engine.take_back(entry.offered, entry.restart)
    if entry.directory:
        await asyncio.to_thread(remove_version, Path(entry.directory))
    await asyncio.to_thread(MadeDirectories(store).remove_empty)
    await asyncio.to_thread(Journal(store).clear)
