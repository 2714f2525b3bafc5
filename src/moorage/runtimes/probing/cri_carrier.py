"""CRI carrier: probes as sandboxes of a node's container engine.

Each probe has a sandbox, a container, a log directory and a cgroup of its own, with small limits
and the lowest CPU priority. Labels identify what a killed process left.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import aiohttp

from moorage.api.logs import Log
from moorage.api.runtime_group import PROBE_LABEL
from moorage.linux.cgroups import Cgroups
from moorage.runtimes.probing.carrier import (
    FLOOD_LIMIT_BYTES,
    OUTPUT_LIMIT_BYTES,
    CarrierError,
    Outcome,
    ProbeContainer,
    ProbeRefusedError,
    ProbeResult,
    RunningProbe,
    run_to_end,
    shortened,
)
from moorage.runtimes.probing.cri_configuration import (
    LOG_NAME,
    ProbePlace,
    container_config,
    resources,
    sandbox_config,
)
from moorage.runtimes.probing.cri_log import read_output
from moorage.runtimes.probing.pod_cgroups import (
    make_pod_cgroup,
    pod_cgroups_below,
    remove_pod_cgroup,
)
from moorage.runtimes.probing.port_stream import PROTOCOL, read_port
from moorage.wire.cri import CriClient, CriError, pb
from moorage.wire.cri.client import OUTPUT_TAIL

log = Log(__name__)

MEMORY_BYTES = 512 * 1024 * 1024
"""Memory of a probe's pod that states no limit: more than the sandbox of any known runtime."""
PIDS = 1024
END_DEADLINE_S = 30.0
_LIST_TIMEOUT_S = 10.0
# A runtime that hangs must not hold up the others for longer; what is left is tried again later.
_CLEAN_DEADLINE_S = 5.0
_FIRST_POLL_S, _LAST_POLL_S = 0.005, 0.1
# The last range but one, which no pod has before 32,000 others run; what runs with these ids is the
# probes' own program.
_FIRST_ID = 2**31 - 2 * 65536
_ENGINE_DOWN = frozenset({"UNAVAILABLE"})


class CriCarrier:
    """Runs probes through a node's engine. `ProbeCarrier` documents the methods.

    `owner` is the value of the label by which leftovers are found: unique to a node agent.
    `cgroup_parent` is the cgroup below which each probe gets one, as OCI's `cgroupsPath`; with
    `cgroups` None the engine's default is used. `state` is a directory for logs.
    """

    def __init__(
        self,
        cri: CriClient,
        *,
        owner: str,
        state: Path,
        cgroup_parent: str = "",
        cgroups: Cgroups | None = None,
    ) -> None:
        self._cri = cri
        self._owner = owner
        self._state = state
        self._cgroup_parent = cgroup_parent.rstrip("/")
        self._cgroups = cgroups if cgroup_parent else None
        self._images: set[str] = set()
        # Handler → its sandboxes that cannot be removed, and why.
        self._stuck: dict[str, dict[str, str]] = {}

    async def run(
        self, handler: str, container: ProbeContainer, *, deadline_s: float
    ) -> ProbeResult:
        return await run_to_end(self, handler, container, deadline_s=deadline_s)

    @asynccontextmanager
    async def running(
        self, handler: str, container: ProbeContainer, *, deadline_s: float
    ) -> AsyncIterator[RunningProbe]:
        started_s = time.monotonic()
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(deadline_s):
                    probe = await stack.enter_async_context(self._started(handler, container))
            except TimeoutError:
                result = _cut_off(f"it was not started within {deadline_s:.0f} s", started_s)
                raise ProbeRefusedError(result) from None
            yield probe

    async def clean(self) -> int:
        request = pb.ListPodSandboxRequest(
            filter=pb.PodSandboxFilter(label_selector={PROBE_LABEL: self._owner})
        )
        try:
            reply = await self._cri.call(
                self._cri.runtime.ListPodSandbox, request, timeout_s=_LIST_TIMEOUT_S
            )
        except CriError as error:
            raise CarrierError(f"probes cannot be listed: {error.sentence}") from error
        self._stuck.clear()
        removals = {
            asyncio.ensure_future(
                self._remove_or_note(sandbox.id, sandbox.runtime_handler)
            ): sandbox
            for sandbox in reply.items
        }
        if removals:
            _, late = await asyncio.wait(removals, timeout=_CLEAN_DEADLINE_S)
            for removal in late:
                removal.cancel()
                sandbox = removals[removal]
                stuck = self._stuck.setdefault(sandbox.runtime_handler, {})
                stuck[sandbox.id] = f"not within {_CLEAN_DEADLINE_S:.0f} s"
            await asyncio.gather(*removals, return_exceptions=True)
        await asyncio.to_thread(self._remove_files)
        return len(reply.items) - sum(map(len, self._stuck.values()))

    def _remove_files(self) -> None:
        shutil.rmtree(self._state, ignore_errors=True)
        if self._cgroups is None:
            return
        for path in pod_cgroups_below(self._cgroups, self._cgroup_parent):
            self._remove_cgroup(path)
        self._remove_cgroup(self._cgroup_parent)

    def _remove_cgroup(self, path: str) -> None:
        if self._cgroups is None:
            return
        try:
            remove_pod_cgroup(self._cgroups, path)
        except OSError as error:
            log.warning("cgroup of a probe cannot be removed", path=path, reason=error)

    @asynccontextmanager
    async def _started(self, handler: str, container: ProbeContainer) -> AsyncIterator[_CriProbe]:
        """Start a probe; remove it on exit. Raises ProbeRefusedError, CarrierError."""
        await self._require_image(container.image)
        await self._require_removed(handler)
        started_s = time.monotonic()
        place = self._place(handler)
        sandbox_id = ""
        try:
            await asyncio.to_thread(self._prepare, container, place)
            try:
                config = sandbox_config(container, place)
                sandbox_id = await self._run_sandbox(config, handler)
                container_id = await self._start_container(
                    sandbox_id, container_config(container, place), config
                )
            except CriError as error:
                raise _refusal(error, time.monotonic() - started_s) from error
            yield _CriProbe(
                self._cri,
                sandbox_id,
                container_id,
                place,
                time.monotonic() - started_s,
                container,
                partial(self._limit_pod, container, place),
            )
        finally:
            await asyncio.shield(self._end(place, handler, sandbox_id))

    async def _require_image(self, image: str) -> None:
        """Raise CarrierError if the engine lacks an image: that says nothing about a handler."""
        if image in self._images:
            return
        request = pb.ImageStatusRequest(image=pb.ImageSpec(image=image))
        try:
            reply = await self._cri.call(self._cri.images.ImageStatus, request)
        except CriError as error:
            raise CarrierError(f"the engine does not answer: {error.sentence}") from error
        if not reply.image.id:
            raise CarrierError(f"the engine has no image {image}")
        self._images.add(image)

    def _place(self, handler: str) -> ProbePlace:
        name = f"probe-{handler or 'default'}-{secrets.token_hex(4)}"
        return ProbePlace(
            name=name,
            uid=secrets.token_hex(16),
            owner=self._owner,
            log_directory=str(self._state / name),
            cgroup_parent="" if self._cgroups is None else f"{self._cgroup_parent}/{name}",
            first_id=_FIRST_ID,
        )

    def _prepare(self, container: ProbeContainer, place: ProbePlace) -> None:
        try:
            Path(place.log_directory).mkdir(parents=True, exist_ok=True)
            self._limit_pod(container, place, container.cpu_millis, container.memory_bytes)
        except OSError as error:
            raise CarrierError(str(error)) from error

    def _limit_pod(
        self, container: ProbeContainer, place: ProbePlace, cpu_millis: int, memory_bytes: int
    ) -> None:
        """Create or change the cgroup of a probe's pod. Blocks. Raises CgroupError."""
        if self._cgroups is None:
            return
        make_pod_cgroup(
            self._cgroups,
            place.cgroup_parent,
            cpu_millis=cpu_millis,
            memory_bytes=memory_bytes or MEMORY_BYTES,
            pids=container.pids_limit or PIDS,
        )

    async def _run_sandbox(self, config: pb.PodSandboxConfig, handler: str) -> str:
        request = pb.RunPodSandboxRequest(config=config, runtime_handler=handler)
        reply = await self._cri.call(self._cri.runtime.RunPodSandbox, request, timeout_s=None)
        return reply.pod_sandbox_id

    async def _start_container(
        self, sandbox_id: str, config: pb.ContainerConfig, sandbox: pb.PodSandboxConfig
    ) -> str:
        request = pb.CreateContainerRequest(
            pod_sandbox_id=sandbox_id, config=config, sandbox_config=sandbox
        )
        reply = await self._cri.call(self._cri.runtime.CreateContainer, request, timeout_s=None)
        start = pb.StartContainerRequest(container_id=reply.container_id)
        await self._cri.call(self._cri.runtime.StartContainer, start, timeout_s=None)
        return reply.container_id

    async def _end(self, place: ProbePlace, handler: str, sandbox_id: str) -> None:
        try:
            async with asyncio.timeout(END_DEADLINE_S):
                for found in [sandbox_id] if sandbox_id else await self._find(place):
                    await self._remove_or_note(found, handler)
        except (CriError, TimeoutError) as error:
            log.warning("probe cannot be removed yet", probe=place.name, reason=str(error))
        if self._cgroups is not None:
            await asyncio.to_thread(self._remove_cgroup, place.cgroup_parent)
        await asyncio.to_thread(shutil.rmtree, place.log_directory, ignore_errors=True)

    async def _find(self, place: ProbePlace) -> list[str]:
        """Return the sandbox of a probe whose creation was not answered."""
        request = pb.ListPodSandboxRequest(
            filter=pb.PodSandboxFilter(label_selector={PROBE_LABEL: self._owner})
        )
        reply = await self._cri.call(
            self._cri.runtime.ListPodSandbox, request, timeout_s=_LIST_TIMEOUT_S
        )
        return [item.id for item in reply.items if item.metadata.uid == place.uid]

    async def _require_removed(self, handler: str) -> None:
        """Raise ProbeRefusedError if a handler's earlier probe cannot be removed.

        Otherwise a handler that cannot delete would leave one more each time.
        """
        for sandbox_id in self._stuck.pop(handler, ()):
            await self._remove_or_note(sandbox_id, handler)
        if stuck := self._stuck.get(handler):
            why = next(iter(stuck.values()))
            raise ProbeRefusedError(
                ProbeResult(
                    outcome=Outcome.REFUSED,
                    error=shortened(f"an earlier probe cannot be removed: {why}"),
                )
            )

    async def _remove_or_note(self, sandbox_id: str, handler: str) -> None:
        """Remove a sandbox; note one that the engine cannot remove, which is retried later."""
        try:
            await self._remove(sandbox_id)
        except CarrierError as error:
            self._stuck.setdefault(handler, {})[sandbox_id] = str(error)
            log.warning("probe cannot be removed yet", sandbox=sandbox_id, reason=error)

    async def _remove(self, sandbox_id: str) -> None:
        """Stop and remove a sandbox. Raises CarrierError."""
        stop = pb.StopPodSandboxRequest(pod_sandbox_id=sandbox_id)
        remove = pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id)
        runtime = self._cri.runtime
        try:
            await self._cri.call(runtime.StopPodSandbox, stop, timeout_s=END_DEADLINE_S)
            await self._cri.call(runtime.RemovePodSandbox, remove, timeout_s=END_DEADLINE_S)
        except CriError as error:
            if not error.is_not_found:
                raise CarrierError(error.sentence) from error


class _CriProbe:
    """A started container of an engine. `RunningProbe` documents the methods."""

    def __init__(
        self,
        cri: CriClient,
        sandbox: str,
        container: str,
        place: ProbePlace,
        start_s: float,
        settings: ProbeContainer,
        limit_pod: Callable[[int, int], None],
    ) -> None:
        """`limit_pod` sets the pod's CPU and memory limit, and raises OSError."""
        self._cri = cri
        self._cpu_millis = settings.cpu_millis
        self._memory_bytes = settings.memory_bytes
        self._limit_pod = limit_pod
        self._sandbox = sandbox
        self._container = container
        self._log = Path(place.log_directory) / LOG_NAME
        self.cgroup = place.cgroup_parent
        self.start_s = start_s
        self._since_s = time.monotonic() - start_s

    async def exec(self, command: Sequence[str], *, deadline_s: float) -> ProbeResult:
        request = pb.ExecSyncRequest(
            container_id=self._container, cmd=command, timeout=max(1, int(deadline_s))
        )
        started_s = time.monotonic()
        try:
            reply = await self._cri.call(
                self._cri.commands.ExecSync,
                request,
                timeout_s=deadline_s,
                metadata={OUTPUT_TAIL: str(OUTPUT_LIMIT_BYTES)},
            )
        except CriError as error:
            return _failed(error, time.monotonic() - started_s)
        output = (reply.stdout + reply.stderr)[:OUTPUT_LIMIT_BYTES]
        return ProbeResult(
            outcome=Outcome.ENDED,
            exit_code=reply.exit_code,
            output=output.decode(errors="replace"),
            total_s=time.monotonic() - started_s,
        )

    async def resize(self, *, cpu_millis: int, memory_bytes: int, deadline_s: float) -> ProbeResult:
        request = pb.UpdateContainerResourcesRequest(
            container_id=self._container, linux=resources(cpu_millis, memory_bytes)
        )
        call = self._cri.call(
            self._cri.runtime.UpdateContainerResources, request, timeout_s=deadline_s
        )
        started_s = time.monotonic()
        # A container never has more than its pod.
        largest = max(cpu_millis, self._cpu_millis), max(memory_bytes, self._memory_bytes)
        try:
            await asyncio.to_thread(self._limit_pod, *largest)
            await call
            await asyncio.to_thread(self._limit_pod, cpu_millis, memory_bytes)
        except CriError as error:
            return _failed(error, time.monotonic() - started_s)
        except OSError as error:
            return ProbeResult(outcome=Outcome.REFUSED, error=shortened(str(error)))
        self._cpu_millis, self._memory_bytes = cpu_millis, memory_bytes
        return _done(started_s)

    async def checkpoint(self, *, deadline_s: float) -> ProbeResult:
        archive = self._log.with_name("checkpoint.tar")
        request = pb.CheckpointContainerRequest(
            container_id=self._container, location=str(archive), timeout=int(deadline_s)
        )
        call = self._cri.call(self._cri.runtime.CheckpointContainer, request, timeout_s=deadline_s)
        started_s = time.monotonic()
        try:
            await call
        except CriError as error:
            return _failed(error, time.monotonic() - started_s)
        # What was written is removed with the log directory.
        return _done(started_s)

    async def fetch(self, port: int, *, deadline_s: float) -> ProbeResult:
        request = pb.PortForwardRequest(pod_sandbox_id=self._sandbox, port=[port])
        started_s = time.monotonic()
        try:
            async with asyncio.timeout(deadline_s), aiohttp.ClientSession() as session:
                reply = await self._cri.call(
                    self._cri.runtime.PortForward, request, timeout_s=deadline_s
                )
                async with session.ws_connect(reply.url, protocols=(PROTOCOL,)) as websocket:
                    data, error_text = await read_port(websocket)
        except CriError as error:
            return _failed(error, time.monotonic() - started_s)
        except TimeoutError:
            # An OSError too: as a refusal it would be the handler's for good.
            return _cut_off(f"it did not end within {deadline_s:.0f} s", started_s)
        except (aiohttp.ClientError, OSError) as error:
            return ProbeResult(outcome=Outcome.REFUSED, error=shortened(str(error)))
        return ProbeResult(
            outcome=Outcome.ENDED,
            exit_code=0 if data else 1,
            output=data,
            error=shortened(error_text),
            total_s=time.monotonic() - started_s,
        )

    async def ended(self, *, deadline_s: float) -> ProbeResult:
        try:
            async with asyncio.timeout(deadline_s):
                return await self.wait_ended()
        except TimeoutError:
            return await self.cut_off(deadline_s)

    async def wait_ended(self) -> ProbeResult:
        """Wait for the container's end without a deadline. Raises CarrierError."""
        pause_s = _FIRST_POLL_S
        while True:
            status = await self._status()
            if status.state == pb.CONTAINER_EXITED:
                return ProbeResult(
                    outcome=Outcome.ENDED,
                    exit_code=status.exit_code,
                    output=await asyncio.to_thread(read_output, self._log),
                    error=shortened(status.message),
                    reason=status.reason,
                    start_s=self.start_s,
                    total_s=time.monotonic() - self._since_s,
                )
            if await asyncio.to_thread(_size_bytes, self._log) > FLOOD_LIMIT_BYTES:
                return await self._cut_short(
                    f"it was ended after more than {FLOOD_LIMIT_BYTES} bytes of output"
                )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LAST_POLL_S)

    async def cut_off(self, deadline_s: float) -> ProbeResult:
        """Return the result of a container that has not ended in time."""
        return await self._cut_short(f"it did not end within {deadline_s:.0f} s")

    async def _cut_short(self, why: str) -> ProbeResult:
        return ProbeResult(
            outcome=Outcome.CUT_OFF,
            output=await asyncio.to_thread(read_output, self._log),
            error=why,
            start_s=self.start_s,
            total_s=time.monotonic() - self._since_s,
        )

    async def _status(self) -> pb.ContainerStatus:
        request = pb.ContainerStatusRequest(container_id=self._container)
        try:
            reply = await self._cri.call(self._cri.runtime.ContainerStatus, request)
        except CriError as error:
            raise CarrierError(f"status of a probe cannot be read: {error.sentence}") from error
        return reply.status


def _size_bytes(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def _refusal(error: CriError, total_s: float) -> ProbeRefusedError | CarrierError:
    if error.code.name in _ENGINE_DOWN:
        return CarrierError(f"the engine does not answer: {error.sentence}")
    return ProbeRefusedError(
        ProbeResult(outcome=Outcome.REFUSED, error=shortened(error.sentence), total_s=total_s)
    )


def _failed(error: CriError, total_s: float) -> ProbeResult:
    """Return the result of a call that failed. Raises CarrierError if the engine is down."""
    if error.code.name in _ENGINE_DOWN:
        raise CarrierError(f"the engine does not answer: {error.sentence}") from error
    outcome = Outcome.CUT_OFF if error.is_timeout else Outcome.REFUSED
    return ProbeResult(outcome=outcome, error=shortened(error.sentence), total_s=total_s)


def _done(started_s: float) -> ProbeResult:
    return ProbeResult(outcome=Outcome.ENDED, exit_code=0, total_s=time.monotonic() - started_s)


def _cut_off(why: str, started_s: float) -> ProbeResult:
    return ProbeResult(outcome=Outcome.CUT_OFF, error=why, total_s=time.monotonic() - started_s)
