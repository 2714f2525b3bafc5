"""Pod sandbox creation under the handler of the pod's RuntimeClass.

A failure here blocks the pod before any container runs, so every error names the class, the handler
and the node, and the remedy. Source: kubelet `createPodSandbox`; KEP-585.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.api.nodes import NodeRuntimeHandler
from moorage.api.pods import Pod
from moorage.engine.handlers.runtimes import KNOWN_RUNTIMES
from moorage.linux.cgroups import (
    GUEST_REMEDY,
    KATA_CONFIGURATION,
    Cgroups,
    guests_outside,
    outside_cgroup,
)
from moorage.node.config.dns import PodDns, Resolver, parse_resolv_conf, pod_dns
from moorage.node.config.errors import ConfigError
from moorage.node.config.namespaces import check_user_namespaces
from moorage.node.config.sandbox import SandboxSetting, sandbox_config
from moorage.node.metrics import Metrics
from moorage.node.options import NodeOptions
from moorage.node.paths import NodePaths
from moorage.node.pod_facts.errors import SyncError
from moorage.node.pod_facts.events import PodEvents
from moorage.node.pod_facts.sources import format_pod
from moorage.node.pods.handler_choice import CLASS_NOT_FOUND, HandlerError, RuntimeClasses
from moorage.node.pods.user_namespaces import UserNamespaces
from moorage.node.runtime.engine import Engine
from moorage.node.runtime.observer import Observer
from moorage.node.runtime.views import PodView, SandboxView
from moorage.wire.client.recorder import WARNING
from moorage.wire.cri import CriError, pb

log = Log(__name__)

_FAILED = "Failed to create pod sandbox: "


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxMaker:
    """Creates sandboxes on this node. `handlers` returns the engine's current handlers."""

    engine: Engine
    observer: Observer
    classes: RuntimeClasses
    handlers: Callable[[], Sequence[NodeRuntimeHandler]]
    user_namespaces: UserNamespaces
    events: PodEvents
    metrics: Metrics
    clock: Clock
    options: NodeOptions
    paths: NodePaths
    cgroup_parent: Callable[[Pod], str]
    cgroups: Cgroups

    async def create(self, pod: Pod, view: PodView, attempt: int) -> SandboxView:
        """Create and start a sandbox; return the engine's view of it. Raises SyncError."""
        self.metrics.started_pods.count()
        handler = await self._handler(pod, view)
        try:
            config = await self.config(pod, attempt, handler)
        except (ConfigError, OSError) as error:
            self.metrics.started_pods_errors.count()
            raise SyncError("SandboxConfigError", f"{_FAILED}{error}") from error
        sandbox_id = await self._run(pod, config, handler)
        try:
            sandbox = await self.observer.refresh_sandbox(sandbox_id)
        except CriError as error:
            message = f"Unable to get pod sandbox status: {error}"
            self.events.pod(pod, WARNING, "FailedPodSandBoxStatus", message)
            raise SyncError("SandboxStatusError", message) from error
        if sandbox is None:
            raise SyncError("SandboxStatusError", f"{_FAILED}the engine lost sandbox {sandbox_id}")
        if handler and sandbox.handler != handler:
            await self._stop_wrong_sandbox(sandbox, handler)
        await self._warn_of_guest(pod, sandbox_id, handler)
        return sandbox

    async def _warn_of_guest(self, pod: Pod, sandbox_id: str, handler: str) -> None:
        """Write an event if the pod's virtual machine runs outside the pod's cgroup."""
        if sandbox_id not in await asyncio.to_thread(guests_outside, self.cgroups):
            return
        unbound = "; the pod's limits do not bind it" if _has_limits(pod) else ""
        self.events.pod(
            pod,
            WARNING,
            "GuestOutsidePodCgroup",
            f"The virtual machine of handler {handler!r} runs in {outside_cgroup(sandbox_id)}, "
            f"outside the pod's cgroup{unbound}. Set {GUEST_REMEDY} in "
            f"{_configuration_of(handler)} on node {self.options.name}",
        )

    async def _stop_wrong_sandbox(self, sandbox: SandboxView, handler: str) -> None:
        """Stop a sandbox that the engine reports under another handler.

        Raises SyncError in any case.
        """
        message = (
            f'{_FAILED}the engine was asked for handler "{handler}" and made sandbox {sandbox.id} '
            f'under "{sandbox.handler}"; it was stopped'
        )
        try:
            await self.engine.stop_sandbox(sandbox.id)
            await self.observer.refresh_sandbox(sandbox.id)
        except CriError as error:
            message += f", which failed: {error}"
        self.metrics.started_pods_errors.count()
        raise SyncError("WrongRuntimeHandler", message)

    async def config(self, pod: Pod, attempt: int, handler: str) -> pb.PodSandboxConfig:
        """Return the configuration of a pod's sandbox. Raises ConfigError, OSError."""
        user_namespace = None
        if pod.spec.host_users is False:
            check_user_namespaces(handler, self.handlers())
            user_namespace = await self.user_namespaces.of(pod)
        meta = pod.metadata
        setting = SandboxSetting(
            owner=self.options.owner,
            handler=handler,
            log_directory=self.paths.pod_logs(meta.namespace, meta.name, meta.uid),
            cgroup_parent=self.cgroup_parent(pod),
            cluster_domain=self.options.cluster_domain,
            resolver=self._dns(pod).resolver,
            user_namespace=user_namespace,
        )
        return sandbox_config(pod, attempt, setting)

    async def _handler(self, pod: Pod, view: PodView) -> str:
        name = pod.spec.runtime_class_name
        try:
            return await self.classes.handler(pod, view)
        except HandlerError as error:
            self.metrics.started_pods_errors.count()
            advice = ""
            if error.reason == CLASS_NOT_FOUND:
                advice = (
                    f" (the pod waits on node {self.options.name} for RuntimeClass "
                    f'"{name}": create it, or delete the pod)'
                )
            raise SyncError(error.reason, f"{_FAILED}{error}{advice}") from error
        except OSError as error:
            self.metrics.started_pods_errors.count()
            raise SyncError(
                "RuntimeHandlerNotRecorded",
                f"{_FAILED}the pod's runtime handler cannot be recorded: {error}",
            ) from error

    async def _run(self, pod: Pod, config: pb.PodSandboxConfig, handler: str) -> str:
        begun_s = self.clock.monotonic()
        try:
            return await self.engine.run_sandbox(config, handler)
        except CriError as error:
            self.metrics.run_sandbox_errors.count(runtime_handler=handler)
            self.metrics.started_pods_errors.count()
            raise SyncError("SandboxRefused", self._refusal(pod, handler, error)) from error
        finally:
            spent_s = self.clock.monotonic() - begun_s
            self.metrics.run_sandbox.observe(spent_s, runtime_handler=handler)

    def _refusal(self, pod: Pod, handler: str, error: CriError) -> str:
        """Return the engine's message; for a pod with a class also the class, handler and node."""
        name = self.classes.named_by(pod)
        if name is None:
            return f"{_FAILED}{error}"
        offered = [handler.name for handler in self.handlers() if handler.name]
        advice = ""
        if offered and handler not in offered:
            advice = f"; the engine offers {', '.join(offered)}: configure {handler}, or {_ELSE}"
        asks = f'RuntimeClass "{name}" asks for handler "{handler}"'
        if self.classes.is_gone(pod) or self.classes.replacing_handler(pod, handler) is not None:
            asks = f'the pod was admitted under handler "{handler}" of RuntimeClass "{name}"'
            advice += "; the class has changed since: delete the pod to use what it names now"
        return f"{_FAILED}{error} ({asks} on node {self.options.name}{advice})"

    def _dns(self, pod: Pod) -> PodDns:
        dns = pod_dns(
            pod, self._node_resolver(), self.options.cluster_dns, self.options.cluster_domain
        )
        for complaint in dns.complaints:
            self.events.pod(pod, WARNING, "DNSConfigForming", complaint)
        if dns.lacks_cluster_dns:
            log.debug("no cluster DNS, using the node's", pod=format_pod(pod))
        return dns

    def _node_resolver(self) -> Resolver:
        path = self.options.resolv_conf
        if path is None:
            return Resolver()
        return parse_resolv_conf(path.read_text())


def _has_limits(pod: Pod) -> bool:
    spec = pod.spec
    limited = [container.resources for container in (*spec.init_containers, *spec.containers)]
    return any(one is not None and one.limits for one in (*limited, spec.resources))


def _configuration_of(handler: str) -> str:
    """Return the configuration file of a handler by its usual name, as text if there is none."""
    files = (
        file
        for runtime in KNOWN_RUNTIMES
        if handler in runtime.handlers
        for file in runtime.configurations
    )
    return next((str(file) for file in files if file.is_file()), KATA_CONFIGURATION)


_ELSE = "use a class this node can run"
