"""Our own engine, which takes a handler file over at once and restarts for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from moorage.runtimes.installing.engines import FileChange
from moorage.runtimes.installing.errors import RuntimeInstallationError
from moorage.runtimes.installing.plan import Plan, is_installed
from moorage.runtimes.installing.proof import Proof
from moorage.runtimes.installing.removal import check_removal
from moorage.wire.cri import CriClient, CriError, engine_pb

_TAKEN_OVER_S = 30.0
# A handler that the engine found not to work may still come up, but not for long.
_HOPE_S = 5.0


class OwnEngine:
    """An engine with a directory of handler files. `ManagedEngine` documents the methods."""

    restart: tuple[str, ...] = ()

    def __init__(self, cri: CriClient, handlers: Path, proof: Proof) -> None:
        self.cri = cri
        self._handlers = handlers
        self._proof = proof

    @property
    def changes_running(self) -> bool:
        return False

    async def written(self) -> frozenset[str]:
        return frozenset(await asyncio.to_thread(self._written))

    def _written(self) -> list[str]:
        return [
            file.stem for file in self._handlers.glob("*.toml") if is_installed(file.read_bytes())
        ]

    async def offered(self) -> tuple[str, ...]:
        # The others do not depend on a file that is added or removed.
        return ()

    async def addition(self, plan: Plan) -> tuple[FileChange, ...]:
        before = await asyncio.to_thread(self._content, plan.handler)
        if before is not None and not is_installed(before):
            raise RuntimeInstallationError(
                f"handler {plan.handler} is there already, and `moor runtime` did not write it "
                f"({plan.file}): give another name"
            )
        return (FileChange(plan.file, before, plan.definition),)

    async def removal(self, handler: str) -> tuple[FileChange, ...]:
        file = self._handlers / f"{handler}.toml"
        defined_by = await self._file_of(handler) or file
        await asyncio.to_thread(check_removal, handler, defined_by)
        return (FileChange(file, await asyncio.to_thread(self._content, handler), None),)

    async def take_over(self, plan: Plan) -> None:
        problem = await self._wait_available(plan) or await self._proof.find_problem(plan.handler)
        if problem:
            raise RuntimeInstallationError(f"handler {plan.handler} does not work: {problem}")

    async def drop(self, handler: str) -> None:
        del handler  # The engine takes the file's end over by itself.

    async def take_back(self, offered: Sequence[str], restart: Sequence[str]) -> None:
        del offered, restart  # The same.

    async def _file_of(self, handler: str) -> Path | None:
        """Return the file that defines a handler for the engine, None if it has no such handler.

        Raises CriError.
        """
        request = engine_pb.WatchHandlersRequest()
        listed = await anext(self.cri.stream(self.cri.engine.WatchHandlers, request), None)
        found = (one.file for one in listed.handlers if one.name == handler) if listed else iter(())
        return next(map(Path, found), None)

    def _content(self, handler: str) -> bytes | None:
        try:
            return (self._handlers / f"{handler}.toml").read_bytes()
        except FileNotFoundError:
            return None

    async def _wait_available(self, plan: Plan) -> str:
        """Wait until the engine offers the handler with the program; return why it does not."""
        problem = "the engine does not take its file over"
        request = engine_pb.WatchHandlersRequest()
        try:
            async with asyncio.timeout(_TAKEN_OVER_S) as limit:
                async for listed in self.cri.stream(self.cri.engine.WatchHandlers, request):
                    for handler in listed.handlers:
                        if handler.name == plan.handler and handler.program == str(plan.program):
                            if handler.is_available:
                                return ""
                            problem = handler.reason
                            limit.reschedule(asyncio.get_running_loop().time() + _HOPE_S)
        except TimeoutError:
            return problem
        except CriError as error:
            return error.sentence
        return "the engine ended"
