"""Pod actions: the operations of a pod's lifecycle that its worker runs.

Thin: every function carries out one decision, records its events, and raises SyncError when the
start of the pod is blocked, TeardownError when its end is incomplete. Source: kubelet `SyncPod`,
`SyncTerminatingPod`, `SyncTerminatedPod`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from moorage.api.errors import NotFoundError, StatusError
from moorage.api.logs import Log
from moorage.api.pods import Pod
from moorage.linux.trust import make_private
from moorage.node.cgroups.tree import CgroupError
from moorage.node.cgroups.values import CgroupValues, pod_directory, pod_values
from moorage.node.config.container import overhead_resources, sandbox_resources
from moorage.node.config.downward import DownwardInputs
from moorage.node.config.errors import ConfigError
from moorage.node.config.namespaces import has_recursive_read_only
from moorage.node.pod_facts.containers import Member, member
from moorage.node.pod_facts.errors import SyncError, TeardownError
from moorage.node.pod_facts.grace import grace_period_s
from moorage.node.pod_facts.sources import format_pod
from moorage.node.pods.allocations import (
    AllocationRecord,
    Resize,
    Update,
    grown,
    lowers_memory,
    memory_complaints,
    shrinking,
)
from moorage.node.pods.context import NodeContext
from moorage.node.pods.handler_choice import HandlerError
from moorage.node.pods.plan import Kill, NewSandbox, Reason
from moorage.node.pods.pod_network import PodNetworkError
from moorage.node.pods.start_timeline import StartTimeline
from moorage.node.pods.starting import HookFailedError, Launch
from moorage.node.runtime.views import PodView, SandboxView
from moorage.node.volumes.kinds import Mounted, VolumeError
from moorage.runtimeclass.resizing import ERROR
from moorage.wire.client.recorder import NORMAL, WARNING
from moorage.wire.client.resources import PODS
from moorage.wire.client.rest import UnreachableError
from moorage.wire.cri import CriError

log = Log(__name__)


class PodActions:
    """Actions of the pods on one node."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context

    def downward_inputs(self, pod: Pod) -> DownwardInputs:
        """Return the downward API inputs of a pod."""
        context = self._context
        on_host = pod.spec.host_network
        ips = context.host_ips if on_host else context.observer.view(pod.metadata.uid).ips
        return DownwardInputs(context.host_ips, ips, context.allocatable())

    def has_recursive_read_only(self, pod: Pod, view: PodView) -> bool:
        """Return whether the pod's handler supports recursive read-only mounts."""
        handler = self._context.classes.known_handler(pod, view)
        return handler is not None and has_recursive_read_only(
            handler, self._context.health.handlers
        )

    async def prepare(self, pod: Pod, record: AllocationRecord) -> bool:
        """Create the pod's directories and its cgroup, which the sandbox is placed in.

        Returns whether the cgroup is new; the limits of an existing one are only raised. Raises
        SyncError.
        """
        context = self._context
        try:
            is_new = await asyncio.to_thread(self._prepare, pod, record)
        except CgroupError as error:
            message = f"unable to ensure pod container exists: {error.strerror}"
            context.events.pod(pod, WARNING, "FailedCreatePodContainer", message)
            raise SyncError("PodCgroupError", message) from error
        except OSError as error:
            message = f"error making pod data directories: {error}"
            context.events.pod(pod, WARNING, "Failed", message)
            raise SyncError("PodDirectoryError", message) from error
        view = context.observer.view(pod.metadata.uid)
        if view.sandboxes:
            await self._adopt_handler(pod, view)
        return is_new

    async def _adopt_handler(self, pod: Pod, view: PodView) -> None:
        """Record the handler of a pod that an earlier agent started, while it can be determined."""
        try:
            await self._context.classes.handler(pod, view)
        except (HandlerError, OSError) as error:
            # The running sandbox is unaffected; creating another one needs the handler and reports
            # this.
            log.warning("handler not known", pod=format_pod(pod), error=error)

    def _prepare(self, pod: Pod, record: AllocationRecord) -> bool:
        meta, paths = pod.metadata, self._context.paths
        for directory in paths.pod(meta.uid).directories:
            make_private(directory)
        logs = paths.pod_logs(meta.namespace, meta.name, meta.uid)
        make_private(logs)
        self._context.allocations.write(meta.uid, record)
        cgroup, values = pod_directory(pod), self._values(pod)
        current = self._context.cgroups.read(cgroup)
        if current is not None:
            values = grown(current, values)
        self._context.cgroups.ensure(cgroup, values)
        return current is None

    def _values(self, pod: Pod) -> CgroupValues:
        return pod_values(pod, pids_limit=self._context.options.pod_pids_limit)

    async def save(self, pod: Pod, record: AllocationRecord) -> None:
        """Write the pod's allocation record. Raises SyncError."""
        try:
            await asyncio.to_thread(self._context.allocations.write, pod.metadata.uid, record)
        except OSError as error:
            raise SyncError(ERROR, f"allocation not recorded: {error}") from error

    async def resize(
        self, pod: Pod, view: PodView, resize: Resize, done: Callable[[Update], None]
    ) -> None:
        """Bring the pod's cgroup and its running containers to the pod's resources.

        `done` is called after each container. Raises SyncError at the first failure, so that the
        pod may be left half-way.
        """
        try:
            await self._resize(pod, view, resize, done)
        except CriError as error:
            raise SyncError(ERROR, error.sentence) from error
        except OSError as error:
            raise SyncError(ERROR, f"pod cgroup: {error.strerror or error}") from error

    async def _resize(
        self, pod: Pod, view: PodView, resize: Resize, done: Callable[[Update], None]
    ) -> None:
        context, directory, values = self._context, pod_directory(pod), self._values(pod)
        current = await asyncio.to_thread(context.cgroups.read, directory) or CgroupValues()
        await self._check_memory(directory, current, values, resize)
        if view.sandbox is not None and resize.updates:
            await context.engine.update_sandbox(
                view.sandbox.id, overhead_resources(pod), sandbox_resources(pod)
            )
        await asyncio.to_thread(context.cgroups.ensure, directory, grown(current, values))
        for update in resize.updates:
            found = member(pod.spec, update.container.name)
            if found is not None:
                resources = context.starter.resources_of(pod, found.container)
                await context.engine.update_container(update.container.id, resources)
                done(update)
        await asyncio.to_thread(context.cgroups.ensure, directory, values)

    async def _check_memory(
        self, directory: str, current: CgroupValues, values: CgroupValues, resize: Resize
    ) -> None:
        """Raise SyncError if a new memory limit is below the usage."""
        if not lowers_memory(current, values, resize):
            return
        context = self._context
        usage = await asyncio.to_thread(context.cgroups.memory_usage_bytes, directory)
        of_containers = {}
        if shrinking(resize):
            of_containers = {
                stats.attributes.id: stats.memory.usage_bytes.value
                for stats in await context.engine.container_stats()
                if stats.memory.HasField("usage_bytes")
            }
        complaints = memory_complaints(current, values, resize, usage, of_containers)
        if complaints:
            joined = complaints[0] if len(complaints) == 1 else f"[{', '.join(complaints)}]"
            raise SyncError(ERROR, f"cannot decrease memory limits: {joined}")

    async def mount(self, pod: Pod) -> Mounted:
        """Mount the pod's volumes. Raises SyncError."""
        try:
            return await self._context.volumes.mount(pod, self.downward_inputs(pod))
        except VolumeError as error:
            self._context.events.pod(pod, WARNING, error.reason, error.message)
            raise

    async def refresh(self, pod: Pod) -> None:
        """Update the files in the pod's volumes; failures are logged."""
        try:
            await self._context.volumes.refresh(pod, self.downward_inputs(pod))
        except VolumeError as error:
            # The running pod keeps its files; the next refresh retries.
            log.warning("volume not refreshed", pod=format_pod(pod), error=error)

    async def replace_sandbox(self, pod: Pod, view: PodView, wanted: NewSandbox) -> None:
        """Create a sandbox, after stopping the one that it replaces. Raises SyncError."""
        context = self._context
        problem = context.health.network_problem
        if problem is not None and not pod.spec.host_network:
            message = f"network is not ready: {problem}"
            context.events.pod(pod, WARNING, "NetworkNotReady", message)
            raise SyncError("NetworkNotReady", message)
        try:
            if wanted.replaced is not None:
                await self._stop_replaced_sandbox(pod, view)
            sandbox = await context.sandboxes.create(pod, view, wanted.attempt)
        except SyncError as error:
            context.events.pod(pod, WARNING, "FailedCreatePodSandBox", error.message)
            raise
        except (TeardownError, CriError) as error:
            message = f"error killing pod: {error}"
            context.events.pod(pod, WARNING, "FailedKillPod", message)
            raise SyncError("FailedKillPod", message) from error
        log.info(
            "sandbox created",
            pod=format_pod(pod),
            handler=sandbox.handler,
            ip=sandbox.ips[0] if sandbox.ips else "",
        )

    async def _stop_replaced_sandbox(self, pod: Pod, view: PodView) -> None:
        """Stop the pod's earlier sandbox, and remove its init containers, which run again."""
        context = self._context
        context.events.pod(
            pod, NORMAL, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created."
        )
        await context.stopper.stop_pod(pod, view, grace_period_s(pod))
        names = {container.name for container in pod.spec.init_containers}
        for container in view.containers:
            if container.name in names:
                await context.engine.remove_container(container.id)
                context.observer.forget_container(container.id)

    async def start(
        self,
        pod: Pod,
        started: Member,
        view: PodView,
        sandbox: SandboxView,
        volumes: Mounted,
        timeline: StartTimeline,
    ) -> None:
        """Start a container; kill it again if its postStart hook fails. Raises SyncError.

        No-op in a sandbox that was stopped from outside: the observer has been refreshed, and the
        plan replaces the sandbox first.
        """
        context = self._context
        # The cause of a container's end may also have ended its sandbox, which is reported later.
        if view.latest(started.name) is not None and not await self._serves(pod, sandbox):
            return
        try:
            handler = sandbox.handler
            if handler is None:
                handler = await context.classes.handler(pod, view)
            config = await context.sandboxes.config(pod, sandbox.attempt, handler)
            if not pod.spec.host_network:
                await context.network.admit(pod, sandbox.ips)
        except PodNetworkError as error:
            message = f"network is not ready: {error}"
            context.events.pod(pod, WARNING, "NetworkNotReady", message)
            raise SyncError("NetworkNotReady", message) from error
        except (
            ConfigError,
            OSError,
            HandlerError,
        ) as error:
            raise SyncError("CreateContainerConfigError", str(error)) from error
        launch = Launch(
            pod=pod,
            view=view,
            sandbox=sandbox,
            sandbox_config=config,
            volumes=volumes,
            where=self.downward_inputs(pod),
            has_recursive_read_only=self.has_recursive_read_only(pod, view),
            timeline=timeline,
        )
        try:
            await context.starter.start(launch, started)
        except HookFailedError as error:
            if error.container is not None:
                await self.kill(pod, Kill(error.container, "FailedPostStartHook", Reason.HOOK))
            raise
        except SyncError:
            if await self._serves(pod, sandbox):
                raise

    async def _serves(self, pod: Pod, sandbox: SandboxView) -> bool:
        """Return whether the engine's sandbox is ready now; refreshes the observer."""
        observer = self._context.observer
        try:
            current = await observer.refresh_sandbox(sandbox.id)
            if current is None:
                await observer.refresh_pod(pod.metadata.uid)
        except CriError as error:
            # The start that follows fails as well, and reports it.
            log.warning("sandbox not readable", pod=format_pod(pod), error=error)
            return True
        return current is not None and current.is_ready

    async def kill(self, pod: Pod, kill: Kill) -> None:
        """Kill one container of an active pod. Raises TeardownError."""
        await self._context.stopper.kill(pod, kill)

    async def stop(self, pod: Pod, view: PodView, grace_s: int) -> None:
        """Stop everything of a pod, and verify that it has stopped. Raises TeardownError."""
        context, uid = self._context, pod.metadata.uid
        try:
            await context.stopper.stop_pod(pod, view, grace_s)
            await context.observer.refresh_pod(uid)
        except* (TeardownError, CriError) as group:
            message = f"error killing pod: {group.exceptions[0]}"
            context.events.pod(pod, WARNING, "FailedKillPod", message)
            raise TeardownError(message) from None
        if not context.observer.view(uid).is_stopped:
            raise TeardownError("something of the pod still runs")

    async def clean(self, pod: Pod) -> None:
        """Remove the volumes and the cgroup of a stopped pod. Raises TeardownError."""
        context = self._context
        try:
            await asyncio.to_thread(context.cgroups.remove, pod_directory(pod))
        except OSError as error:
            raise TeardownError(str(error)) from error
        try:
            # Last: a later agent finds by the directory that there is something to clean up.
            await context.volumes.remove(pod.metadata.uid)
        except OSError as error:
            message = f"error removing the pod's volumes: {error}"
            context.events.pod(pod, WARNING, "VolumeFailedDelete", message)
            raise TeardownError(message) from error

    async def delete(self, pod: Pod) -> None:
        """Delete the pod from the API, once its last status is written. Raises TeardownError."""
        if not await self._context.writer.wait_written(pod.metadata.uid):
            return
        meta = pod.metadata
        try:
            await self._context.client.delete(
                PODS, meta.name, meta.namespace, uid=meta.uid, grace_period_seconds=0
            )
        except NotFoundError:
            log.debug("pod already deleted", pod=format_pod(pod))
        except (StatusError, UnreachableError) as error:
            raise TeardownError(str(error)) from error

    async def discard(self, pod: Pod) -> None:
        """Remove the engine's sandboxes and containers of a deleted pod, and its logs.

        Raises TeardownError.
        """
        context, uid = self._context, pod.metadata.uid
        view = context.observer.view(uid)
        try:
            for sandbox in view.sandboxes:
                await context.engine.remove_sandbox(sandbox.id)
                context.observer.forget_sandbox(sandbox.id)
            for container in context.observer.view(uid).containers:
                await context.engine.remove_container(container.id)
                context.observer.forget_container(container.id)
            await context.logs.remove_pod(pod, view)
        except (CriError, OSError) as error:
            raise TeardownError(str(error)) from error
