"""Another's engine: containerd, which is restarted, and CRI-O, which is reloaded if that is enough.

Afterwards the engine must be ready, have the handlers of before and the new one, run a container
under it, and still run every process of pods that ran before.
"""

from __future__ import annotations

import asyncio
import glob
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from moorage.api.logs import Log
from moorage.engine.handlers import parse_definition
from moorage.linux.command import CommandError, must_run
from moorage.linux.process import Identity
from moorage.runtimes.installing.downloads import Proof, RuntimeInstallationError
from moorage.runtimes.installing.engines import (
    Configuration,
    ContainerdConfiguration,
    CrioConfiguration,
    EngineFile,
    FileChange,
)
from moorage.runtimes.installing.engines.runtime_tables import unreadable
from moorage.runtimes.installing.host_entry import HostEntry, check_shared, open_entry
from moorage.runtimes.installing.plan import Plan
from moorage.runtimes.installing.running_processes import (
    CONTAINERD,
    CRIO,
    EngineProcess,
    PodProcess,
    find_disturbed,
    find_process,
    identity_of,
    is_in_own_cgroup,
    running_processes,
)
from moorage.wire.cri import CriClient, CriError, handlers_of, pb
from moorage.wire.cri.client import HandlersUnknownError

log = Log(__name__)

RESTART_DEADLINE_S = 120.0
READY_DEADLINE_S = 60.0
_RESTART_OPTION = "--restart-command (the value agent.restartCommand of `moor attach`)"
_RELOAD_DEADLINE_S = 10.0
_POLL_S = 0.1
_RECONNECT_S = 5.0


class OtherEngine:
    """containerd or CRI-O at a CRI client's endpoint. `ManagedEngine` documents the methods.

    `restart_command` is used where the engine is no systemd service; it is one of the host, where
    this program may be in a container that shares the directory `shared` with the host.
    """

    def __init__(
        self,
        cri: CriClient,
        proof: Proof,
        *,
        shared: Path,
        restart_command: Sequence[str] = (),
    ) -> None:
        self.cri = cri
        self._proof = proof
        self._restart_command = tuple(restart_command)
        self._shared = shared
        self._name = ""
        self._process: EngineProcess | None = None
        self._entry: HostEntry | None = None

    def close(self) -> None:
        """Close the way to the host."""
        if self._entry is not None:
            self._entry.close()
            self._entry = None

    @property
    def restart(self) -> tuple[str, ...]:
        if self._restart_command:
            return self._restart_command
        unit = self._process.unit if self._process is not None else ""
        return ("systemctl", "restart", unit) if unit else ()

    @property
    def changes_running(self) -> bool:
        # containerd's shims keep theirs. Source: CRI-O internal/oci `newRuntimeOCI`.
        return self._name == CRIO

    async def written(self) -> frozenset[str]:
        return (await self._configuration()).written()

    async def offered(self) -> tuple[str, ...]:
        try:
            return tuple(sorted(handler.name for handler in await handlers_of(self.cri)))
        except HandlersUnknownError as error:
            raise RuntimeInstallationError(str(error)) from error

    async def addition(self, plan: Plan) -> tuple[FileChange, ...]:
        configuration = await self._configuration()
        self._check_restart()
        definition = parse_definition(plan.file, plan.definition)
        return configuration.with_handler(definition, str(plan.program))

    async def removal(self, handler: str) -> tuple[FileChange, ...]:
        configuration = await self._configuration()
        self._check_restart()
        return configuration.without_handler(handler)

    async def take_over(self, plan: Plan) -> None:
        before, running = await self.offered(), await running_processes(self.cri)
        wanted = {*before, plan.handler}
        # A reload changes the list alone for a handler that CRI-O had when it started: containers
        # would go on with the former program, and prove that.
        is_new = plan.handler not in before
        if self._name == CRIO and is_new and await self._reload(wanted):
            problem = await self._proof.find_problem(plan.handler)
            # CRI-O lists a handler after a reload that it may refuse until it is restarted.
            if problem and not self.restart:
                raise RuntimeInstallationError(
                    f"handler {plan.handler} does not work after a reload: {problem}; CRI-O may "
                    "have to be restarted for it, and is no systemd service here: give the command "
                    f"that restarts it with {_RESTART_OPTION}"
                )
            if not problem:
                await self._check_running(running)
                return
        await self._restart(self.restart)
        await self._check_offered(wanted)
        if problem := await self._proof.find_problem(plan.handler):
            raise RuntimeInstallationError(f"handler {plan.handler} does not work: {problem}")
        await self._check_running(running)

    async def drop(self, handler: str) -> None:
        before, running = await self.offered(), await running_processes(self.cri)
        wanted = set(before) - {handler}
        if self._name != CRIO or not await self._reload(wanted):
            await self._restart(self.restart)
        await self._check_offered(wanted, gone=handler)
        await self._check_running(running)

    async def take_back(self, offered: Sequence[str], restart: Sequence[str]) -> None:
        running: Mapping[str, PodProcess] = {}
        try:
            running = await running_processes(self.cri)
            name = (await self._version()).runtime_name
        except CriError as error:
            log.debug("engine is restarted without a look at its pods", reason=error.sentence)
            name = ""
        if name != CRIO or restart:
            await self._restart(tuple(restart))
        else:
            await self._reload(set(offered))
        await self._check_offered(set(offered))
        await self._check_running(running)

    async def _configuration(self) -> Configuration:
        """Find the engine, and read its configuration."""
        version = await self._version()
        self._name = version.runtime_name
        entry = await self._host_entry()
        self._process = process = await asyncio.to_thread(
            find_process, self.cri.endpoint, self._name
        )
        if not entry.is_direct:
            await asyncio.to_thread(check_shared, process.directory, process.directories)
        offered = await self.offered()
        return await asyncio.to_thread(
            read_configuration,
            self._name,
            version.runtime_version,
            process.paths,
            frozenset(offered),
        )

    async def _host_entry(self) -> HostEntry:
        """Return the way to the host, which is kept: an engine that is down has none."""
        if self._entry is None:
            self._entry = await asyncio.to_thread(open_entry, self.cri.endpoint, self._shared)
        return self._entry

    async def _version(self) -> pb.VersionResponse:
        request = pb.VersionRequest(version="0.1.0")
        return await self.cri.call(self.cri.runtime.Version, request, reconnect_s=_RECONNECT_S)

    def _check_restart(self) -> None:
        if self._name != CRIO and not self.restart:
            raise RuntimeInstallationError(
                f"{self._name} reads its runtimes when it starts, and is no systemd service here: "
                f"give the command that restarts it with {_RESTART_OPTION}"
            )

    async def _reload(self, wanted: set[str]) -> bool:
        """Send SIGHUP; return whether the engine has the wanted handlers then."""
        identity = await asyncio.to_thread(identity_of, self.cri.endpoint)
        if identity is None:
            return False
        os.kill(identity.pid, signal.SIGHUP)
        try:
            async with asyncio.timeout(_RELOAD_DEADLINE_S):
                # Polled: no engine announces that it has read its configuration.
                while set(await self.offered()) != wanted:  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            return False
        return True

    async def _restart(self, command: Sequence[str]) -> None:
        """Restart the engine, and wait until another process of it is ready."""
        if not command:
            raise RuntimeInstallationError(
                "the engine must be restarted, and is no systemd service here: give the command "
                f"with {_RESTART_OPTION}"
            )
        entry = await self._host_entry()
        former = await asyncio.to_thread(identity_of, self.cri.endpoint)
        try:
            await must_run(entry.command(command), deadline_s=RESTART_DEADLINE_S)
        except CommandError as error:
            raise RuntimeInstallationError(f"the engine does not restart: {error}") from error
        problem = ""
        try:
            async with asyncio.timeout(READY_DEADLINE_S):
                while (problem := await self._find_unready(former)) != "":  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise RuntimeInstallationError(
                f"the engine is not ready within {READY_DEADLINE_S:.0f} s of its restart: {problem}"
            ) from None
        if not entry.is_direct and await asyncio.to_thread(is_in_own_cgroup, self.cri.endpoint):
            raise RuntimeInstallationError(
                f"`{' '.join(command)}` started the engine in the agent's own container, with "
                "which it will end: restart it on the node, and give a command that has a service "
                "manager of the host start it"
            )

    async def _find_unready(self, former: Identity | None) -> str:
        """Return why the restarted engine cannot be used yet, empty if it can."""
        identity = await asyncio.to_thread(identity_of, self.cri.endpoint)
        if identity is None:
            return "nothing listens on its socket"
        if identity == former:
            return "it was not restarted: its process is the one of before"
        try:
            reply = await self.cri.call(
                self.cri.runtime.Status, pb.StatusRequest(), timeout_s=_RECONNECT_S
            )
        except CriError as error:
            return error.sentence
        for condition in reply.status.conditions:
            if condition.type == "RuntimeReady" and condition.status:
                return ""
        return "it reports that it is not ready"

    async def _check_offered(self, wanted: set[str], *, gone: str = "") -> None:
        offered = set(await self.offered())
        if gone and gone in offered:
            raise RuntimeInstallationError(f"the engine still offers the handler {gone}")
        if missing := wanted - offered:
            raise RuntimeInstallationError(
                f"the engine does not offer {', '.join(sorted(missing))} with its changed "
                "configuration"
            )

    async def _check_running(self, before: Mapping[str, PodProcess]) -> None:
        if disturbed := await find_disturbed(self.cri, before):
            raise RuntimeInstallationError(
                f"pods that ran before were disturbed: {'; '.join(disturbed)}"
            )


# Files of an engine's configuration, read in the engine's own order.

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
