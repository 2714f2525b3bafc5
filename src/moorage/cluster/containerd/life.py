"""Runs a private containerd: started or found running, kept running, stopped.

    async with PrivateContainerd(plan, SystemClock()) as engine:
        ... engine.endpoint ...
        await engine.supervise()

Containers are not the engine's children but their shims', so they go on when the engine stops or
is killed, and the next one finds them. An engine that an earlier Moorage left running is taken
over when it has the same configuration, and replaced otherwise.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import socket
from typing import Never, Self

import msgspec

from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.client.backoff import Backoff
from moorage.cluster.containerd.plan import EnginePlan
from moorage.cluster.containerd.sweep import LeftoverError, end_engine
from moorage.cluster.files import write_private
from moorage.cluster.images import catalogue, import_images
from moorage.cluster.network import NetworkState, set_up
from moorage.cri import CriClient, CriError, pb
from moorage.linux.process import Identity, Process

READY_DEADLINE_S = 30.0
STOP_PATIENCE_S = 10.0
_ANSWER_DEADLINE_S = 5.0
_ANSWER_POLL_S = 0.01
_FIRST_RESTART_S = 0.2
_LONGEST_RESTART_S = 30.0
_STEADY_S = 60.0
_LOG_LIMIT_BYTES = 10 * 1024 * 1024
_TAIL_BYTES = 2048
# What belongs to this process alone and must not reach the engine's children.
_NOT_PASSED_ON = ("NOTIFY_SOCKET", "MOORAGE_NOTIFY_FD", "LISTEN_FDS", "LISTEN_PID")

log = Log(__name__)


class EngineStartError(Exception):
    """The engine ended, or said nothing, before it was ready; with the end of its log."""


class _Record(msgspec.Struct, frozen=True):
    """The running engine: which process, and a digest of what it was started with."""

    process: Identity
    configuration: str


class PrivateContainerd:
    """A containerd of the cluster's own, with its network and images. Used once, by one task."""

    def __init__(self, plan: EnginePlan, clock: Clock) -> None:
        self.plan = plan
        self._clock = clock
        self._process: Process | None = None
        self._network = NetworkState(has_outside=False)
        self._is_adopted = False

    @property
    def endpoint(self) -> str:
        """The CRI endpoint."""
        return self.plan.paths.endpoint

    @property
    def network(self) -> NetworkState:
        """What pods can reach."""
        return self._network

    @property
    def is_adopted(self) -> bool:
        """Whether the engine was found running."""
        return self._is_adopted

    @property
    def pid(self) -> int | None:
        """The engine's process id while it runs."""
        return self._process.pid if self._process else None

    async def __aenter__(self) -> Self:
        """Make the network, start or take over the engine, import the images.

        Raises NetworkError, EngineStartError, NoPauseError, CommandError and CriError; the engine
        is stopped again then.
        """
        plan = self.plan
        tools = plan.host.tools
        paths = {name: tools[name].path for name in ("busybox", "catatonit") if name in tools}
        self._network = await set_up(plan.network, plan.host, plan.paths.cni)
        images = await catalogue(paths.get("busybox"), paths.get("catatonit"))
        await self.start()
        try:
            async with CriClient(self.endpoint) as cri:
                await import_images(
                    images,
                    cri=cri,
                    socket=plan.paths.socket,
                    ctr=plan.ctr,
                    scratch=plan.paths.run,
                    snapshotter=plan.configuration.snapshotter,
                    clock=self._clock,
                )
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Take over the running engine or start one; it answers the CRI then.

        Raises EngineStartError, and LeftoverError for an engine in the way that does not end.
        """
        _write_files(self.plan)
        self._process = await self._adopt()
        self._is_adopted = self._process is not None
        if self._process is None:
            # One that was killed between an engine's start and its record left that engine running,
            # and two cannot share a folder.
            await end_engine(self.plan.paths)
            self._process = await self._launch()

    async def stop(self) -> None:
        """Stop the engine; its containers go on."""
        if self._process is None:
            return
        process, self._process = self._process, None
        try:
            await process.stop(STOP_PATIENCE_S)
        finally:
            process.close()
        self.plan.paths.record.unlink(missing_ok=True)
        log.info("engine stopped", pid=process.pid)

    async def supervise(self) -> Never:
        """Start the engine again whenever it ends, later and later if it keeps failing."""
        backoff = Backoff(_FIRST_RESTART_S, _LONGEST_RESTART_S)
        while True:
            began_s = self._clock.monotonic()
            if self._process is not None:
                how = await self._process.ended()
                self._process.close()
                self._process = None
                log.warning("engine ended", how=how, log=self.plan.paths.log)
            if self._clock.monotonic() - began_s > _STEADY_S:
                backoff.reset()
            await self._clock.sleep(backoff.next_s())
            try:
                await self.start()
            except (EngineStartError, LeftoverError, OSError) as error:
                log.error("engine does not start", reason=error)

    async def _adopt(self) -> Process | None:
        """The engine that runs already, if it can be kept; one that cannot is stopped."""
        try:
            record = msgspec.json.decode(self.plan.paths.record.read_bytes(), type=_Record)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        process = Process.find(record.process)
        if process is None:
            return None
        if record.configuration == _digest(self.plan) and await self._answers():
            log.info("engine taken over", pid=process.pid)
            return process
        log.info("engine replaced", pid=process.pid)
        try:
            await process.stop(STOP_PATIENCE_S)
        finally:
            process.close()
        return None

    async def _launch(self) -> Process:
        paths = self.plan.paths
        paths.notifications.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifications:
            notifications.setblocking(False)
            notifications.bind(str(paths.notifications))
            process = Process.launch(
                [str(self.plan.program), "--config", str(paths.configuration)],
                log=paths.log,
                environment=_environment(self.plan),
            )
            try:
                await self._until_ready(process, notifications)
                record = _Record(process.identity, _digest(self.plan))
                write_private(paths.record, msgspec.json.encode(record))
            except BaseException:
                await process.stop(STOP_PATIENCE_S)
                process.close()
                raise
            finally:
                paths.notifications.unlink(missing_ok=True)
        log.info("engine started", pid=process.pid, socket=paths.socket)
        return process

    async def _until_ready(self, process: Process, notifications: socket.socket) -> None:
        """Wait for the engine's word, and then for its CRI, which may still be finding containers.

        containerd tells systemd's way that all its parts are there.
        """
        ready = asyncio.ensure_future(self._hear(notifications))
        end = asyncio.ensure_future(process.ended())
        try:
            done, _ = await asyncio.wait(
                {ready, end}, timeout=READY_DEADLINE_S, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for waiting in (ready, end):
                waiting.cancel()
            await asyncio.gather(ready, end, return_exceptions=True)
        if ready not in done:
            how = end.result() if end in done else f"not ready after {READY_DEADLINE_S:g} s"
            raise EngineStartError(
                f"{self.plan.program} --config {self.plan.paths.configuration}: {how}; "
                f"its log {self.plan.paths.log} ends: {_tail(self.plan)}"
            )
        ready.result()

    async def _hear(self, notifications: socket.socket) -> None:
        await asyncio.get_running_loop().sock_recv(notifications, 4096)
        while not await self._answers():
            await self._clock.sleep(_ANSWER_POLL_S)

    async def _answers(self) -> bool:
        async with CriClient(self.endpoint) as cri:
            try:
                await cri.call(
                    cri.runtime.Version,
                    pb.VersionRequest(version="0.1.0"),
                    timeout_s=_ANSWER_DEADLINE_S,
                )
            except CriError:
                return False
        return True


def _write_files(plan: EnginePlan) -> None:
    """Everything the engine reads at its start or later, in place."""
    paths = plan.paths
    for folder in (paths.data, paths.run.parent, paths.run):
        # Passable, not readable: the root of a user namespace has to get through to its files.
        folder.mkdir(parents=True, exist_ok=True, mode=0o711)
    paths.configuration.write_text(plan.text)
    shutil.rmtree(paths.registries, ignore_errors=True)
    for registry, text in plan.registries.items():
        folder = paths.registries / registry
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "hosts.toml").write_text(text)
    if paths.log.exists() and paths.log.stat().st_size > _LOG_LIMIT_BYTES:
        paths.log.replace(paths.log.with_suffix(".old"))


def _environment(plan: EnginePlan) -> dict[str, str]:
    inherited = {name: text for name, text in os.environ.items() if name not in _NOT_PASSED_ON}
    return {
        **inherited,
        "PATH": plan.host.path,
        "NOTIFY_SOCKET": str(plan.paths.notifications),
    }


def _digest(plan: EnginePlan) -> str:
    started_with = f"{plan.program} {plan.containerd.version}\n{plan.text}"
    return hashlib.sha256(started_with.encode()).hexdigest()


def _tail(plan: EnginePlan) -> str:
    try:
        written = plan.paths.log.read_bytes()[-_TAIL_BYTES:]
    except FileNotFoundError:
        return "(empty)"
    lines = written.decode(errors="replace").strip().splitlines()
    return " | ".join(lines[-3:]) or "(empty)"
