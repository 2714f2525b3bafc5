"""A sandbox's life: run, stopped, removed.

    run     name held → namespaces and network → files → (own task) → record → event
    stop    containers killed → own task deleted → off the network → record
    remove  stopped, containers removed → files and record gone

No process is kept for a sandbox, but where the pod's containers share one process namespace or the
handler's runtime is a machine of its own. Every step back can be repeated after a kill at any
point: what is gone is no error. Source: CRI RuntimeService; KEP-585 for the handler.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from moorage.api.logs import Log
from moorage.cri import pb
from moorage.engine.cgroups import DEFAULT_PARENT, container_cgroup
from moorage.engine.containers.life import Containers
from moorage.engine.containers.messages import container_status
from moorage.engine.context import EngineContext
from moorage.engine.drivers import handler_traits
from moorage.engine.errors import FailedError, InvalidError
from moorage.engine.inventory import Sandbox, new_id, sandbox_name
from moorage.engine.networks import CniResult, ConflistError
from moorage.engine.oci import (
    SandboxRequest,
    look_up_sandbox,
    sandbox_sysctls,
    verify_sandbox_namespaces,
)
from moorage.engine.records import SandboxRecord
from moorage.engine.sandboxes.context import (
    id_mappings,
    is_holding_processes,
    sandbox_context,
)
from moorage.engine.sandboxes.files import release_shared_memory, remove_files, write_files
from moorage.engine.sandboxes.messages import sandbox_status
from moorage.engine.sandboxes.network import network_subject
from moorage.engine.sandboxes.pod_cgroup import make_pod_cgroup, remove_pod_cgroup
from moorage.handlers.adapters import Adapter, AdapterError, Task
from moorage.handlers.catalogue import OfferedHandler
from moorage.linux import pinned
from moorage.linux.bind import bind, unmount_all
from moorage.linux.private import make_private_for, write_private
from moorage.linux.trees import make_directory
from moorage.linux.trust import distrust

log = Log(__name__)

END_DEADLINE_S = 20.0
_ROOTFS = "rootfs"


class Sandboxes:
    """Makes and ends the sandboxes of an engine."""

    def __init__(self, context: EngineContext, containers: Containers) -> None:
        self._context = context
        self._containers = containers

    async def run(self, config: pb.PodSandboxConfig, handler_name: str) -> Sandbox:
        """Make a sandbox under a handler. Raises EngineError; nothing stays of it then."""
        context = self._context
        _check(config)
        handler = self._handler(handler_name)
        program = _program(handler)
        adapter = context.drivers.adapter(handler.definition, program)
        traits = handler_traits(handler.definition, handler.features)
        verify_sandbox_namespaces(config.linux.security_context.namespace_options, traits)
        sandbox_id = new_id()
        with context.inventory.sandboxes.reserved(sandbox_name(config), sandbox_id):
            sandbox = Sandbox(
                SandboxRecord(
                    id=sandbox_id,
                    config=config.SerializeToString(),
                    handler=handler_name,
                    definition=handler.definition,
                    program=program,
                    features=handler.features,
                    created_at_ns=context.now_ns(),
                )
            )
            async with AsyncExitStack() as undoing:
                await self._make(sandbox, adapter, undoing)
                undoing.pop_all()
        self._tell(sandbox, pb.CONTAINER_CREATED_EVENT)
        self._tell(sandbox, pb.CONTAINER_STARTED_EVENT)
        return sandbox

    async def stop(self, sandbox: Sandbox) -> None:
        """End everything in a sandbox and take it off the network. Raises EngineError."""
        async with sandbox.lock:
            if not sandbox.record.is_ready:
                return
            await self._end_containers(sandbox)
            await self._end_task(sandbox)
            await self._release(sandbox, sandbox.record.attachment)
            record = msgspec.structs.replace(sandbox.record, is_ready=False, task_pid=0)
            self._context.inventory.note_sandbox_end(sandbox, record)
        self._tell(sandbox, pb.CONTAINER_STOPPED_EVENT)

    async def remove(self, sandbox: Sandbox) -> None:
        """Forget a sandbox with all that is in it, ending it first. Raises EngineError."""
        context = self._context
        await self.stop(sandbox)
        async with asyncio.TaskGroup() as tasks:
            for container in context.inventory.containers_of(sandbox):
                tasks.create_task(self._containers.remove(container))
        async with sandbox.lock:
            await remove_pod_cgroup(context, sandbox.id)
            await asyncio.to_thread(self._remove_directories, sandbox)
            self._remove_shared_parent(sandbox)
            context.inventory.forget_sandbox(sandbox)
        self._tell(sandbox, pb.CONTAINER_DELETED_EVENT)

    async def undo(self, sandbox: Sandbox) -> None:
        """Undo what an engine that was killed had made of a sandbox. Raises EngineError.

        Its network is the pool's to give back, as that of everything unknown.
        """
        context = self._context
        if context.paths.bundle(sandbox.id).is_dir():
            await self._delete_task(sandbox, context.adapter(sandbox))
        await remove_pod_cgroup(context, sandbox.id)
        await asyncio.to_thread(self._remove_directories, sandbox)
        context.inventory.forget_sandbox(sandbox)

    def watch_again(self, sandbox: Sandbox) -> None:
        """Watch what holds a sandbox of an earlier engine."""
        if sandbox.record.task_pid:
            context = self._context
            task = sandbox.task(context.paths)
            context.start(self._watch(sandbox, context.adapter(sandbox), task))

    async def _make(self, sandbox: Sandbox, adapter: Adapter, undoing: AsyncExitStack) -> None:
        context, config = self._context, sandbox.config
        options = sandbox.namespace_options
        attachment: CniResult | None = None
        files = context.paths.sandbox_files(sandbox.id)
        undoing.push_async_callback(asyncio.to_thread, self._remove_directories, sandbox)
        undoing.callback(context.inventory.forget_sandbox, sandbox)
        undoing.push_async_callback(remove_pod_cgroup, context, sandbox.id)
        context.inventory.note_making(sandbox)
        await make_pod_cgroup(context, sandbox)
        if options.network == pb.NODE:
            if options.ipc != pb.NODE:
                directory = context.paths.namespaces / sandbox.id
                undoing.push_async_callback(self._release, sandbox, None)
                await asyncio.to_thread(
                    pinned.make,
                    directory,
                    (pinned.IPC,),
                    sysctls=_sysctls(config),
                    mappings=id_mappings(options),
                )
        else:
            attachment = await self._attach(sandbox)
            undoing.push_async_callback(self._release, sandbox, attachment)
        mappings = id_mappings(options)
        write_files(
            files,
            config,
            _hostname(config),
            attachment.addresses if attachment else (),
            mappings,
        )
        task_pid = 0
        if adapter.needs_sandbox or is_holding_processes(config):
            undoing.push_async_callback(self._delete_task, sandbox, adapter)
            task_pid = await self._start_task(sandbox, adapter)
        record = msgspec.structs.replace(sandbox.record, attachment=attachment, task_pid=task_pid)
        context.inventory.save_sandbox(sandbox, record)

    async def _attach(self, sandbox: Sandbox) -> CniResult:
        config = sandbox.config
        try:
            _, attachment = await self._context.networks.take(
                sandbox.id,
                config.hostname,
                _sysctls(config),
                network_subject(sandbox.id, config),
                id_mappings(sandbox.namespace_options),
            )
        except (ConflistError, OSError) as error:
            raise FailedError(f"no network for sandbox {sandbox.id}: {error}") from error
        return attachment

    async def _start_task(self, sandbox: Sandbox, adapter: Adapter) -> int:
        """Run what holds the sandbox; its process id."""
        context = self._context
        argv = await asyncio.to_thread(context.infra.prepare)
        task = sandbox.task(context.paths)
        rootfs = self._make_bundle(sandbox, task.bundle)
        traits = handler_traits(sandbox.record.definition, sandbox.record.features)
        found = await asyncio.to_thread(look_up_sandbox, sandbox.config, traits, context.host)
        request = SandboxRequest(
            sandbox=sandbox_context(context.paths, sandbox),
            argv=argv,
            rootfs=rootfs,
            handler=traits,
        )
        document = context.specs.sandbox(request, found)
        write_private(task.bundle / "config.json", msgspec.json.encode(document))
        try:
            pid = await adapter.create(task)
            await adapter.start(task)
        except AdapterError as error:
            raise FailedError(
                f"failed to start the sandbox of pod {_spoken(sandbox)}: {error}"
            ) from error
        context.start(self._watch(sandbox, adapter, task))
        return pid

    def _make_bundle(self, sandbox: Sandbox, bundle: Path) -> Path:
        """Make the directory of the sandbox's own task; where its root file system is."""
        rootfs = self._context.infra.rootfs
        mappings = id_mappings(sandbox.namespace_options)
        make_private_for(bundle, mappings)
        if mappings is None:
            return rootfs
        # Root of a user namespace cannot go through the engine's data.
        shown = bundle / _ROOTFS
        make_directory(shown)
        bind(rootfs, shown, is_read_only=True)
        return shown

    async def _watch(self, sandbox: Sandbox, adapter: Adapter, task: Task) -> None:
        """Take a sandbox down whose own task ends unasked: its containers cannot go on."""
        await adapter.wait(task)
        async with sandbox.lock:
            # Whoever was stopping it is done.
            is_unasked = sandbox.record.is_ready
        if is_unasked and self._context.inventory.sandboxes.get(sandbox.id) is sandbox:
            log.info("what held a sandbox has ended", sandbox=sandbox.id)
            await self.stop(sandbox)

    async def _end_containers(self, sandbox: Sandbox) -> None:
        async with asyncio.TaskGroup() as tasks:
            for container in self._context.inventory.containers_of(sandbox):
                tasks.create_task(self._containers.stop(container, 0))
        if sandbox.record.task_pid:
            # Their runtime may still be forgetting them, for which it asks what holds the sandbox.
            for container in self._context.inventory.containers_of(sandbox):
                async with container.lock:
                    pass

    async def _end_task(self, sandbox: Sandbox) -> None:
        if sandbox.record.task_pid:
            await self._delete_task(sandbox, self._context.adapter(sandbox))

    async def _delete_task(self, sandbox: Sandbox, adapter: Adapter) -> None:
        try:
            await adapter.delete(sandbox.task(self._context.paths))
        except AdapterError as error:
            raise FailedError(
                f"failed to end the sandbox of pod {_spoken(sandbox)}: {error}"
            ) from error

    async def _release(self, sandbox: Sandbox, attachment: CniResult | None) -> None:
        paths = self._context.paths
        release_shared_memory(paths.sandbox_files(sandbox.id))
        await self._context.networks.give_back(paths.namespaces / sandbox.id, attachment)

    def _remove_shared_parent(self, sandbox: Sandbox) -> None:
        """Without a caller's cgroup for the pod, the one of the engine goes with the last pod."""
        parent = sandbox.config.linux.cgroup_parent
        place = container_cgroup(sandbox.record.definition.cgroup_driver, parent, sandbox.id)
        is_engines_own = place.is_parent_shared and place.parent == DEFAULT_PARENT
        # A pod that is being made may be about to have its cgroup there.
        if is_engines_own and not self._context.inventory.sandboxes.has_others(sandbox):
            self._context.cgroups.remove_if_empty_at_once(place.parent)

    def _remove_directories(self, sandbox: Sandbox) -> None:
        paths = self._context.paths
        remove_files(paths.sandbox_files(sandbox.id))
        unmount_all(paths.bundle(sandbox.id) / _ROOTFS)
        remove_files(paths.bundle(sandbox.id))

    def _handler(self, name: str) -> OfferedHandler:
        catalogue = self._context.handlers()
        handler = catalogue.find(name)
        if handler is None:
            known = ", ".join(sorted(catalogue.handlers)) or "none"
            raise FailedError(
                f'no runtime for "{name}" is configured; this engine has the handlers {known}'
            )
        if not handler.is_available:
            verdict = handler.verdict
            raise FailedError(
                f'runtime handler "{handler.name}" is not available: {verdict.reason} '
                f"({verdict.remedy})"
            )
        return handler

    def _tell(self, sandbox: Sandbox, kind: pb.ContainerEventType.ValueType) -> None:
        statuses = [
            container_status(each) for each in self._context.inventory.containers_of(sandbox)
        ]
        self._context.events.publish(
            pb.ContainerEventResponse(
                container_id=sandbox.id,
                container_event_type=kind,
                created_at=self._context.now_ns(),
                pod_sandbox_status=sandbox_status(sandbox),
                containers_statuses=statuses,
            )
        )


def _check(config: pb.PodSandboxConfig) -> None:
    """Refuse what can be no sandbox. Raises InvalidError."""
    metadata = config.metadata
    if not metadata.name or not metadata.namespace or not metadata.uid:
        raise InvalidError("sandbox config must have metadata with a name, a namespace and a uid")


def _program(handler: OfferedHandler) -> Path:
    if handler.program is None:
        raise FailedError(f'runtime handler "{handler.name}" has no program')
    found = distrust(handler.program)
    if found is not None:
        raise FailedError(f'runtime handler "{handler.name}" is not run: {found}')
    return handler.program


def _sysctls(config: pb.PodSandboxConfig) -> dict[Path, str]:
    """The files to write and what, in the sandbox's namespaces."""
    return {each.file: each.value for each in sandbox_sysctls(config)}


def _hostname(config: pb.PodSandboxConfig) -> str:
    """The pod's, or the machine's on its network."""
    options = config.linux.security_context.namespace_options
    return os.uname().nodename if options.network == pb.NODE else config.hostname


def _spoken(sandbox: Sandbox) -> str:
    metadata = sandbox.config.metadata
    return f"{metadata.namespace}/{metadata.name}"
