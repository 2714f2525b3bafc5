"""A container's life: created, started, watched until it ends, removed.

    create   name held → bundle → record
    start    record says so → runtime create, start → record, watch
    end      seen by the watch, whoever caused it: exit code → record → runtime forgets it
    remove   killed if need be → bundle, record gone

The record is written before and after each step, so that a new engine knows what may be half done.
Source: CRI RuntimeService; exit codes and reasons as containerd gives them.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack

import msgspec

from moorage.api.logs import Log
from moorage.cri import pb
from moorage.engine.cgroups import CgroupPath, container_cgroup
from moorage.engine.containers.bundle import BundleBuilder, Order
from moorage.engine.containers.messages import container_status
from moorage.engine.containers.signals import signal_number
from moorage.engine.context import EngineContext
from moorage.engine.errors import FailedError, InvalidError, PreconditionError, TimeLimitError
from moorage.engine.inventory import Container, Sandbox, container_name, new_id
from moorage.engine.records import ContainerRecord, Stage
from moorage.engine.sandboxes.messages import sandbox_status
from moorage.handlers.adapters import Adapter, AdapterError, Exit, TaskNotFoundError

log = Log(__name__)

KILL_DEADLINE_S = 30.0
START_FAILED = 128
_UNKNOWN = 255
_COMPLETED, _ERROR, _OUT_OF_MEMORY = "Completed", "Error", "OOMKilled"
_START_ERROR, _UNKNOWN_REASON = "StartError", "Unknown"


class Containers:
    """Makes and ends the containers of an engine."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._maker = BundleBuilder(context)

    async def create(self, sandbox: Sandbox, config: pb.ContainerConfig) -> Container:
        """Make a container in a sandbox. Raises EngineError; nothing stays of it then."""
        if not config.metadata.name:
            raise InvalidError("container config must have metadata with a name")
        # A sandbox that is being stopped must not get another container meanwhile.
        async with sandbox.lock:
            container = await self._create(sandbox, config)
        self._tell(container, pb.CONTAINER_CREATED_EVENT)
        return container

    async def start(self, container: Container) -> None:
        """Start a created container. Raises EngineError; it has ended with 128 then."""
        async with container.lock:
            record = container.record
            if record.stage is not Stage.CREATED:
                raise PreconditionError(
                    f"container {container.id} is {record.stage}: only a created one can be started"
                )
            if not container.sandbox.record.is_ready:
                raise PreconditionError(f"sandbox {container.sandbox.id} is not ready")
            adapter = self._context.adapter(container.sandbox)
            self._change(container, stage=Stage.STARTING)
            try:
                pid = await self._begin(container, adapter)
            except BaseException as error:
                await self._note_failed_start(container, adapter, error)
                raise
            self._change(
                container, stage=Stage.RUNNING, pid=pid, started_at_ns=self._context.now_ns()
            )
        self._context.start(self.watch(container))
        self._tell(container, pb.CONTAINER_STARTED_EVENT)

    async def stop(self, container: Container, grace_s: int) -> None:
        """End a container: its stop signal, then SIGKILL after the grace. Raises EngineError.

        Returns when its end is on record; not running is no error.
        """
        if container.record.stage is Stage.STARTING:
            # Whoever starts it holds the lock, and is done or has failed when it is free.
            async with container.lock:
                pass
        if not container.is_running:
            return
        adapter = self._context.adapter(container.sandbox)
        if grace_s > 0:
            number = signal_number(container.record.stop_signal) or signal.SIGTERM
            if not container.is_stopping:
                # A second call waits for the same end; it must not send the signal again.
                container.is_stopping = True
                await self._signal(adapter, container, number)
            if await _ends_within(container, grace_s):
                return
        await self._signal(adapter, container, signal.SIGKILL)
        if not await _ends_within(container, KILL_DEADLINE_S):
            raise TimeLimitError(
                f"container {container.id} does not end {KILL_DEADLINE_S:g} s after SIGKILL"
            )

    async def remove(self, container: Container) -> None:
        """Forget a container, ending it first. Raises EngineError."""
        await self.stop(container, 0)
        async with container.lock:
            if self._context.inventory.containers.get(container.id) is not container:
                return
            await self._forget_task(container, self._context.adapter(container.sandbox))
            await self._maker.unmake(container.id, container.record.image_mounts)
            self._context.inventory.forget_container(container)
        self._tell(container, pb.CONTAINER_DELETED_EVENT)

    async def watch(self, container: Container) -> None:
        """Wait for a running container's end and put it on record."""
        adapter = self._context.adapter(container.sandbox)
        ended = await adapter.wait(container.task(self._context.paths))
        if not ended.is_out_of_memory and await self._had_no_memory(container, ended):
            ended = msgspec.structs.replace(ended, is_out_of_memory=True)
        self.note_end(container, ended, reason_of(ended))
        async with container.lock:
            await self._forget_task(container, adapter)

    def note_end(self, container: Container, ended: Exit, reason: str, message: str = "") -> None:
        """Put a container's end on record and tell of it."""
        # An end is dated by the file that tells of it, whose clock ticks coarsely.
        moment = max(ended.finished_at_ns, container.record.started_at_ns)
        ended = msgspec.structs.replace(ended, finished_at_ns=moment)
        record = msgspec.structs.replace(
            container.record, stage=Stage.EXITED, exit=ended, reason=reason, message=message
        )
        self._context.inventory.note_container_end(container, record)
        container.ended.set()
        self._tell(container, pb.CONTAINER_STOPPED_EVENT)

    def note_unknown_end(self, container: Container) -> None:
        """Put on record that a container is no more and nobody knows how it ended."""
        ended = Exit(_UNKNOWN, self._context.now_ns())
        self.note_end(container, ended, _UNKNOWN_REASON, "its end was not seen by any engine")

    def keep_config(self, container: Container, config: pb.ContainerConfig) -> None:
        """Put a changed configuration on record."""
        self._change(container, config=config.SerializeToString())
        container.config = config

    async def forget_half_started(self, container: Container) -> None:
        """End what an engine that was killed may have started."""
        await self._forget_task(container, self._context.adapter(container.sandbox))

    async def _create(self, sandbox: Sandbox, config: pb.ContainerConfig) -> Container:
        if not sandbox.record.is_ready:
            raise PreconditionError(f"sandbox {sandbox.id} is not ready: run a new one")
        inventory = self._context.inventory
        container_id = new_id()
        with inventory.containers.reserved(container_name(sandbox.id, config), container_id):
            record = await self._maker.make(Order(id=container_id, config=config, sandbox=sandbox))
            container = Container(record, sandbox)
            async with AsyncExitStack() as undoing:
                undoing.push_async_callback(self._maker.unmake, container_id, record.image_mounts)
                inventory.save_container(container, record)
                undoing.pop_all()
        return container

    async def _begin(self, container: Container, adapter: Adapter) -> int:
        """Create and start the container's task; its first process. Raises FailedError."""
        task = container.task(self._context.paths)
        try:
            pid = await adapter.create(task)
            await adapter.start(task)
        except AdapterError as error:
            raise FailedError(f"failed to start container {container.id!r}: {error}") from error
        except OSError as error:
            raise FailedError(
                f"failed to start container {container.id!r}: {error.strerror or error}"
            ) from error
        return pid

    async def _note_failed_start(
        self, container: Container, adapter: Adapter, error: BaseException
    ) -> None:
        try:
            await self._forget_task(container, adapter)
        except FailedError as failure:
            # Its removal tries again; that it cannot be started is what the caller asked about.
            log.warning("a failed start is not undone", container=container.id, reason=failure)
        ended = Exit(START_FAILED, self._context.now_ns())
        self.note_end(container, ended, _START_ERROR, str(error))

    async def _forget_task(self, container: Container, adapter: Adapter) -> None:
        try:
            await adapter.delete(container.task(self._context.paths))
        except AdapterError as error:
            raise FailedError(f"container {container.id!r} cannot be removed: {error}") from error

    async def _signal(self, adapter: Adapter, container: Container, number: int) -> None:
        try:
            await adapter.kill(container.task(self._context.paths), signal.Signals(number))
        except TaskNotFoundError:
            return
        except AdapterError as error:
            raise FailedError(f"container {container.id!r} cannot be signalled: {error}") from error

    async def _had_no_memory(self, container: Container, ended: Exit) -> bool:
        """Whether the kernel killed something of it for memory; only asked of a killed one."""
        if ended.code != 128 + signal.SIGKILL:
            return False
        paths = [self.cgroup(container)]
        if self._context.adapter(container.sandbox).needs_sandbox:
            # What runs under a kernel of its own is killed with that kernel, in the pod's cgroup.
            paths.append(self._place(container.sandbox, container.sandbox.id).path)
        kills = [await self._context.cgroups.oom_kills(path) for path in paths]
        return any(kills)

    def cgroup(self, container: Container) -> str:
        """Where the container's cgroup is in each hierarchy."""
        return self._place(container.sandbox, container.id).path

    def _place(self, sandbox: Sandbox, task_id: str) -> CgroupPath:
        driver = sandbox.record.definition.cgroup_driver
        return container_cgroup(driver, sandbox.config.linux.cgroup_parent, task_id)

    def _change(self, container: Container, **fields: object) -> None:
        record: ContainerRecord = msgspec.structs.replace(container.record, **fields)
        self._context.inventory.save_container(container, record)

    def _tell(self, container: Container, kind: pb.ContainerEventType.ValueType) -> None:
        is_gone = kind == pb.CONTAINER_DELETED_EVENT
        self._context.events.publish(
            pb.ContainerEventResponse(
                container_id=container.id,
                container_event_type=kind,
                created_at=self._context.now_ns(),
                pod_sandbox_status=sandbox_status(container.sandbox),
                containers_statuses=[] if is_gone else [container_status(container)],
            )
        )


def reason_of(ended: Exit) -> str:
    """An ended container's reason in one word, as users see it in the pod's status."""
    if ended.is_out_of_memory:
        return _OUT_OF_MEMORY
    return _COMPLETED if ended.code == 0 else _ERROR


async def _ends_within(container: Container, limit_s: float) -> bool:
    try:
        async with asyncio.timeout(limit_s):
            await container.ended.wait()
    except TimeoutError:
        return False
    return True
