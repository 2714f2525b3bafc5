"""What the tests of specs ask for: a pod and a container with nothing special, to be varied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moorage.engine.oci import (
    ContainerRequest,
    Document,
    Findings,
    HandlerTraits,
    HostFacts,
    Identity,
    ImageDefaults,
    SandboxContext,
    SpecWriter,
)
from moorage.wire.cri import pb

HOST = HostFacts(kernel=(6, 1), machine="x86_64", has_hugetlb=True, has_swap_accounting=True)
V2_HOST = HostFacts(
    kernel=(6, 8),
    machine="x86_64",
    is_cgroup_v2=True,
    has_hugetlb=True,
    has_swap_accounting=True,
)
HANDLER = HandlerTraits(name="crun")
ABLE = HandlerTraits(name="able", has_recursive_read_only=True, has_user_namespaces=True)
ROOT = Identity(0, 0, (0,))
SANDBOX_ID = "5a" * 32
CONTAINER_ID = "c0" * 32


def pod(**linux: Any) -> pb.PodSandboxConfig:
    """A pod; `linux` are fields of its security context."""
    return pb.PodSandboxConfig(
        metadata=pb.PodSandboxMetadata(name="web", uid="u-1", namespace="shop"),
        linux=pb.LinuxPodSandboxConfig(
            cgroup_parent="/kubepods/podu-1",
            security_context=pb.LinuxSandboxSecurityContext(**linux),
        ),
    )


def sandbox(config: pb.PodSandboxConfig | None = None, **changed: Any) -> SandboxContext:
    """A sandbox whose namespaces are pinned."""
    result = {
        "id": SANDBOX_ID,
        "config": config or pod(),
        "hostname": "web",
        "netns": "/run/pins/net",
        "ipcns": "/run/pins/ipc",
        "utsns": "/run/pins/uts",
    }
    return SandboxContext(**{**result, **changed})


def container(**fields: Any) -> pb.ContainerConfig:
    """A container with its own process namespace, as kubelets ask; `security` and `resources` are
    fields of those messages.
    """
    security = fields.pop("security", {})
    resources = fields.pop("resources", {})
    context: dict[str, Any] = {
        "namespace_options": pb.NamespaceOption(pid=pb.CONTAINER),
        **security,
    }
    metadata = {"metadata": pb.ContainerMetadata(name="server"), "command": ["/bin/server"]}
    return pb.ContainerConfig(
        **{**metadata, **fields},
        linux=pb.LinuxContainerConfig(
            security_context=pb.LinuxContainerSecurityContext(**context),
            resources=pb.LinuxContainerResources(**resources),
        ),
    )


def request(config: pb.ContainerConfig | None = None, **changed: Any) -> ContainerRequest:
    result = {
        "id": CONTAINER_ID,
        "config": config or container(),
        "sandbox": sandbox(),
        "image": ImageDefaults(),
        "identity": ROOT,
        "rootfs": Path("/rootfs"),
        "handler": HANDLER,
    }
    return ContainerRequest(**{**result, **changed})


def as_found(config: pb.ContainerConfig, **changed: Any) -> Findings:
    """Findings of a host where every source is what it says, without links."""
    sources = {mount.host_path: mount.host_path for mount in config.mounts}
    return Findings(**{"sources": sources, **changed})


def spec_of(
    config: pb.ContainerConfig | None = None,
    *,
    host: HostFacts = HOST,
    findings: Findings | None = None,
    **changed: Any,
) -> Document:
    """The spec of a container."""
    asked = request(config, **changed)
    return SpecWriter(host).container(asked, findings or as_found(asked.config))
