"""Sandbox namespaces: created and pinned for RunPodSandbox, released by StopPodSandbox.

With a pod network they come attached from the network pool. On the host's network only an IPC
namespace is created, if the pod wants its own.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from moorage.api.quantity import parse as parse_quantity
from moorage.engine.context import EngineContext
from moorage.engine.errors import FailedError, InvalidError
from moorage.engine.inventory import Sandbox
from moorage.engine.networks import CniResult, ConflistError, RuntimeConf
from moorage.engine.oci import sandbox_sysctls
from moorage.engine.sandboxes.files import unmount_shared_memory
from moorage.linux import pinned
from moorage.wire.cri import pb


async def create_namespaces(
    context: EngineContext, sandbox: Sandbox, cleanup: AsyncExitStack
) -> CniResult | None:
    """Create a sandbox's namespaces. Returns the CNI result, None on the host's network.

    Pushes their release on `cleanup`. Raises EngineError, OSError.
    """
    if not sandbox.is_on_host_network:
        cni_result = await _attach_network(context, sandbox)
        cleanup.push_async_callback(release_namespaces, context, sandbox, cni_result)
        return cni_result
    if sandbox.namespace_options.ipc != pb.NODE:
        cleanup.push_async_callback(release_namespaces, context, sandbox, None)
        await asyncio.to_thread(
            pinned.create,
            context.paths.namespaces / sandbox.id,
            (pinned.IPC,),
            sysctls=_sysctls(sandbox),
            mappings=sandbox.id_mappings,
        )
    return None


async def release_namespaces(
    context: EngineContext, sandbox: Sandbox, cni_result: CniResult | None
) -> None:
    """Unmount the shared memory, detach the network and remove the namespaces.

    Absent ones are no error. Raises CniError, OSError.
    """
    paths = context.paths
    unmount_shared_memory(paths.sandbox_files(sandbox.id))
    await context.networks.release(paths.namespaces / sandbox.id, cni_result)


async def _attach_network(context: EngineContext, sandbox: Sandbox) -> CniResult:
    config = sandbox.config
    try:
        _, cni_result = await context.networks.acquire(
            sandbox.id,
            config.hostname,
            _sysctls(sandbox),
            cni_runtime_conf(sandbox.id, config),
            sandbox.id_mappings,
        )
    except (ConflistError, OSError) as error:
        raise FailedError(f"no network for sandbox {sandbox.id}: {error}") from error
    return cni_result


def _sysctls(sandbox: Sandbox) -> dict[Path, str]:
    """Return the sysctl files to write in the sandbox's namespaces, with their values."""
    return {sysctl.file: sysctl.value for sysctl in sandbox_sysctls(sandbox.config)}


# CNI runtime configuration of a pod: capability arguments and CNI_ARGS.
#
# Source: CNI conventions (capability arguments, CNI_ARGS), as containerd and CRI-O pass them; the
# bandwidth annotations are Kubernetes'.

_INGRESS = "kubernetes.io/ingress-bandwidth"
_EGRESS = "kubernetes.io/egress-bandwidth"
_BURST_BITS = (1 << 31) - 1
_PROTOCOLS = {pb.TCP: "tcp", pb.UDP: "udp", pb.SCTP: "sctp"}


def cni_runtime_conf(sandbox_id: str, config: pb.PodSandboxConfig) -> RuntimeConf:
    """Return a pod's runtime configuration. Raises InvalidError for an invalid bandwidth."""
    metadata = config.metadata
    return RuntimeConf(
        container_id=sandbox_id,
        netns=Path(),
        capability_args=capability_args(config),
        args={
            "IgnoreUnknown": "1",
            "K8S_POD_NAMESPACE": metadata.namespace,
            "K8S_POD_NAME": metadata.name,
            "K8S_POD_INFRA_CONTAINER_ID": sandbox_id,
            "K8S_POD_UID": metadata.uid,
        },
    )


def capability_args(config: pb.PodSandboxConfig) -> dict[str, Any]:
    """Return `portMappings` and `bandwidth`, each only if the pod has some.

    Raises InvalidError for a bandwidth that is not a quantity.
    """
    args: dict[str, Any] = {}
    ports = [_port_mapping(mapping) for mapping in config.port_mappings if mapping.host_port > 0]
    if ports:
        args["portMappings"] = ports
    bandwidth = {
        **_rate(config.annotations, _INGRESS, "ingress"),
        **_rate(config.annotations, _EGRESS, "egress"),
    }
    if bandwidth:
        args["bandwidth"] = bandwidth
    return args


def _port_mapping(mapping: pb.PortMapping) -> dict[str, Any]:
    port = {
        "hostPort": mapping.host_port,
        "containerPort": mapping.container_port,
        "protocol": _PROTOCOLS[mapping.protocol],
    }
    return {**port, "hostIP": mapping.host_ip} if mapping.host_ip else port


def _rate(annotations: Any, name: str, direction: str) -> dict[str, int]:
    text = annotations.get(name, "")
    if not text:
        return {}
    try:
        bits = parse_quantity(text).value
    except ValueError as error:
        raise InvalidError(f"annotation {name}: {text!r} is not a quantity, such as 10M") from error
    return {f"{direction}Rate": bits, f"{direction}Burst": _BURST_BITS}
