"""Installation of runtimes into a cluster's own engine: store, handler file, proof, or undo.

The engine takes a handler file over at once and touches no pod that runs, so nothing is restarted.
If the handler does not come up or its proof fails, file and directory are as before.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from moorage.cluster.images import BUSYBOX
from moorage.cluster.runtimes.archive import digest_of, extract
from moorage.cluster.runtimes.errors import RuntimeInstallationError
from moorage.cluster.runtimes.plan import (
    Plan,
    Request,
    Source,
    check_request,
    plan_installation,
)
from moorage.cluster.runtimes.proof import prove
from moorage.cluster.runtimes.removal import check_removal
from moorage.cri import CriClient, CriError, engine_pb, pb
from moorage.linux.atomic_file import replace_file
from moorage.linux.trust import distrust

_TAKEN_OVER_S = 30.0


@dataclass(frozen=True, slots=True)
class Installer:
    """Installs into `store` and `handlers`, directories of an engine that `cri` reaches."""

    cri: CriClient
    store: Path
    handlers: Path

    async def install(self, request: Request, *, is_upgrade: bool) -> Plan:
        """Install a handler, or another version of one. Returns what was done.

        Raises RuntimeInstallationError, with everything as before.
        """
        check_request(request)
        file = self.handlers / f"{request.handler}.toml"
        if file.exists() != is_upgrade:
            verb = "upgrade" if not is_upgrade else "add"
            state = "is there already" if not is_upgrade else "does not exist"
            raise RuntimeInstallationError(
                f"handler {request.handler} {state} ({file}): use `moor runtime {verb}`"
            )
        digest = await asyncio.to_thread(_measure, request)
        plan = plan_installation(request, digest, self.store, self.handlers)
        try:
            is_new = await asyncio.to_thread(_store, request, plan)
        except BaseException:
            _remove_empty(plan)
            raise
        before = file.read_bytes() if is_upgrade else None
        try:
            _check_program(plan.program)
            replace_file(file, plan.definition, mode=0o644, is_synced=True)
            await self._prove(plan)
        except BaseException:
            if before is not None:
                replace_file(file, before, mode=0o644, is_synced=True)
            else:
                file.unlink(missing_ok=True)
            if is_new and plan.directory is not None:
                shutil.rmtree(plan.directory)
            _remove_empty(plan)
            raise
        return plan

    async def _prove(self, plan: Plan) -> None:
        problem = await self._wait_available(plan)
        problem = problem or await prove(self.cri, plan.handler, BUSYBOX)
        if problem:
            raise RuntimeInstallationError(
                f"handler {plan.handler} does not work: {problem}; nothing was changed"
            )

    async def _wait_available(self, plan: Plan) -> str:
        """Wait until the engine offers the handler with the program; return why it does not."""
        problem = "the engine does not take its file over"
        request = engine_pb.WatchHandlersRequest()
        try:
            async with asyncio.timeout(_TAKEN_OVER_S):
                async for listed in self.cri.stream(self.cri.engine.WatchHandlers, request):
                    for handler in listed.handlers:
                        if handler.name == plan.handler and handler.program == str(plan.program):
                            if handler.is_available:
                                return ""
                            problem = handler.reason
        except TimeoutError:
            return problem
        except CriError as error:
            return error.sentence
        return "the engine ended"

    async def _file_of(self, handler: str) -> Path | None:
        """Return the file that defines a handler for the engine, None if it has no such handler.

        Raises CriError.
        """
        request = engine_pb.WatchHandlersRequest()
        listed = await anext(self.cri.stream(self.cri.engine.WatchHandlers, request), None)
        found = (one.file for one in listed.handlers if one.name == handler) if listed else iter(())
        return next(map(Path, found), None)

    async def remove(self, handler: str) -> bool:
        """Remove an installed handler, and its stored versions unless sandboxes still run under it.

        Returns whether the versions are gone. Raises RuntimeInstallationError if there is none, or
        if it was not installed.
        """
        file = self.handlers / f"{handler}.toml"
        versions = self.store / handler
        if file.exists() or not versions.exists():
            check_removal(handler, await self._file_of(handler) or file)
        file.unlink(missing_ok=True)
        sandboxes = await self.cri.call(self.cri.runtime.ListPodSandbox, pb.ListPodSandboxRequest())
        if any(sandbox.runtime_handler == handler for sandbox in sandboxes.items):
            return False
        if versions.exists():
            await asyncio.to_thread(shutil.rmtree, versions)
        return True


def _measure(request: Request) -> str:
    """Return the digest of binary or archive, checked and from a trusted file."""
    if request.source is Source.PACKAGE:
        return ""
    path = Path(request.origin)
    if not path.is_file():
        raise RuntimeInstallationError(f"{path} is no file")
    problem = distrust(path)
    if problem is not None:
        raise RuntimeInstallationError(f"{request.source} is not trusted: {problem}")
    digest = digest_of(path)
    if request.digest and digest != request.digest:
        raise RuntimeInstallationError(
            f"{path} has the SHA-256 digest {digest}, not {request.digest}"
        )
    return digest


def _store(request: Request, plan: Plan) -> bool:
    """Store a version, and return whether it is new: the same content is kept as it is."""
    if plan.directory is None:
        return False
    plan.directory.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if plan.directory.exists():
        if request.version:
            raise RuntimeInstallationError(
                f"version {plan.version} of {plan.handler} is there already: give another --version"
            )
        return False
    scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=plan.directory.parent))
    try:
        content = scratch / "content"
        if request.source is Source.ARCHIVE:
            extract(Path(request.origin), content)
        else:
            content.mkdir(mode=0o755)
            shutil.copyfile(request.origin, content / plan.program.name)
            (content / plan.program.name).chmod(0o755)
        content.rename(plan.directory)
    finally:
        shutil.rmtree(scratch)
    return True


def _remove_empty(plan: Plan) -> None:
    """Remove the directory of a handler's versions if it has none."""
    versions = plan.directory.parent if plan.directory is not None else None
    if versions is not None and versions.is_dir() and not any(versions.iterdir()):
        versions.rmdir()


def _check_program(program: Path) -> None:
    problem = distrust(program)
    if problem is not None:
        raise RuntimeInstallationError(f"the runtime is not trusted: {problem}")
    if not program.is_file() or not os.access(program, os.X_OK):
        raise RuntimeInstallationError(f"{program} is not an executable file")
