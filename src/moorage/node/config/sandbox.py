"""Pod sandbox configuration for CRI RunPodSandbox.

Pure. Also sent with every container of the pod. Source: CRI PodSandboxConfig, kubelet
`generatePodSandboxConfig`; KEP-2371 for resources and overhead.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from moorage.api.pods import Pod
from moorage.node.config.container import overhead_resources, sandbox_resources
from moorage.node.config.dns import Resolver
from moorage.node.config.namespaces import namespaces
from moorage.node.config.security import hostname_of, kernel_hostname, sandbox_security
from moorage.node.pod_facts.containers import sidecars
from moorage.node.pod_facts.labels import sandbox_annotations, sandbox_labels
from moorage.wire.cri import pb


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSetting:
    """Node-side inputs of a sandbox configuration. `owner` is this agent's, as labels.owner_of."""

    owner: str
    handler: str
    log_directory: Path
    cgroup_parent: str
    cluster_domain: str
    resolver: Resolver
    user_namespace: pb.UserNamespace | None = None


def sandbox_config(pod: Pod, attempt: int, setting: SandboxSetting) -> pb.PodSandboxConfig:
    """Return the CRI PodSandboxConfig. Raises ConfigError."""
    meta, spec = pod.metadata, pod.spec
    config = pb.PodSandboxConfig(
        metadata=pb.PodSandboxMetadata(
            name=meta.name, namespace=meta.namespace, uid=meta.uid, attempt=attempt
        ),
        log_directory=str(setting.log_directory),
        dns_config=setting.resolver.to_cri(),
        labels=sandbox_labels(pod, setting.owner),
        annotations=sandbox_annotations(pod, setting.handler),
        port_mappings=_port_mappings(pod),
        linux=_linux(pod, setting),
    )
    if not spec.host_network:
        config.hostname = kernel_hostname(pod, hostname_of(pod, setting.cluster_domain))
    return config


def _linux(pod: Pod, setting: SandboxSetting) -> pb.LinuxPodSandboxConfig:
    security = sandbox_security(pod)
    security.namespace_options.CopyFrom(namespaces(pod.spec, setting.user_namespace))
    context = pod.spec.security_context
    return pb.LinuxPodSandboxConfig(
        cgroup_parent=setting.cgroup_parent,
        security_context=security,
        sysctls={dotted(sysctl.name): sysctl.value for sysctl in context.sysctls}
        if context is not None
        else {},
        overhead=overhead_resources(pod),
        resources=sandbox_resources(pod),
    )


def dotted(sysctl: str) -> str:
    """Return a sysctl's name with dots as separators, as runtimes expect for namespaced sysctls.

    In a name written with slashes, dots are part of the components (sysctl.d(5)).
    """
    if "/" not in sysctl or ("." in sysctl and sysctl.index(".") < sysctl.index("/")):
        return sysctl
    return sysctl.translate(_SWAPPED)


_SWAPPED = str.maketrans("./", "/.")


def _port_mappings(pod: Pod) -> list[pb.PortMapping]:
    # Without plain init containers: neither scheduler nor admission reserves their host ports.
    every = (*pod.spec.containers, *sidecars(pod.spec))
    return [
        pb.PortMapping(
            protocol=pb.Protocol.Value(port.protocol or "TCP"),
            container_port=port.container_port,
            host_port=port.host_port,
            host_ip=port.host_ip,
        )
        for container in every
        for port in container.ports
    ]
