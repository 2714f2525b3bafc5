"""Sandbox namespaces: created and pinned for RunPodSandbox, released by StopPodSandbox.

With a pod network they come attached from the network pool. On the host's network only an IPC
namespace is created, if the pod wants its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from moorage.api.quantity import parse as parse_quantity
from moorage.engine.context import EngineContext
from moorage.engine.errors import FailedError, InvalidError
from moorage.engine.inventory import Sandbox
from moorage.engine.networks import CniResult, ConflistError, RuntimeConf
from moorage.engine.oci import SandboxFiles, sandbox_sysctls
from moorage.linux import pinned
from moorage.linux.atomic_file import replace_file
from moorage.linux.idmap import IdMappings
from moorage.linux.mounts import NO_EXECUTION, NO_PRIVILEGE, mount, unmount
from moorage.linux.trees import remove_tree
from moorage.linux.trust import make_private, make_private_for
from moorage.wire.cri import pb

# Sandbox files, mounted into every container of the pod: hostname, hosts, resolv.conf, /dev/shm.
#
# Source: CRI `DNSConfig`, resolv.conf(5); 64 MiB of shared memory, as containerd and CRI-O.

SHARED_MEMORY_BYTES = 64 * 1024 * 1024
_HOST_RESOLV_CONF = Path("/etc/resolv.conf")
_HOST_HOSTS = Path("/etc/hosts")
_HOSTS = """127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::\tip6-localnet
ff00::\tip6-mcastprefix
ff02::1\tip6-allnodes
ff02::2\tip6-allrouters
"""


def write_files(
    directory: Path,
    config: pb.PodSandboxConfig,
    hostname: str,
    addresses: tuple[str, ...],
    mappings: IdMappings | None = None,
    mount: Callable[[str, Path, str, str, int], None] = mount,
) -> SandboxFiles:
    """Write a sandbox's files and mount its shared memory. Returns their paths. Raises OSError.

    With mappings, root of that user namespace owns the shared memory and can reach the files.
    """
    options = config.linux.security_context.namespace_options
    make_private_for(directory, mappings)
    files = SandboxFiles.of(directory, config)
    for path, text in (
        (files.hostname, f"{hostname}\n"),
        (files.hosts, hosts_text(hostname, addresses, is_on_host=options.network == pb.NODE)),
        (files.resolv_conf, resolver_text(config)),
    ):
        if path is not None:
            path.write_text(text)
            path.chmod(0o644)
    if files.shm is not None:
        files.shm.mkdir(exist_ok=True)
        uid, gid = mappings.root if mappings is not None else (0, 0)
        limits = f"mode=1777,size={SHARED_MEMORY_BYTES},uid={uid},gid={gid}"
        mount("shm", files.shm, "tmpfs", limits, NO_PRIVILEGE | NO_EXECUTION)
    return files


def remove_files(directory: Path) -> None:
    """Unmount the shared memory and remove the directory; absent is no error. Raises OSError."""
    unmount_shared_memory(directory)
    remove_tree(directory)


def unmount_shared_memory(directory: Path) -> None:
    """Unmount the shared memory, if it is mounted. Raises OSError."""
    shm = directory / "shm"
    if shm.is_mount():
        unmount(shm)


def hosts_text(hostname: str, addresses: tuple[str, ...], *, is_on_host: bool) -> str:
    """Return the hosts file: the host's own for a pod on its network."""
    if is_on_host:
        return _HOST_HOSTS.read_text() if _HOST_HOSTS.exists() else _HOSTS
    own = "".join(f"{address}\t{hostname}\n" for address in addresses if hostname)
    return _HOSTS + own


def resolver_text(config: pb.PodSandboxConfig, host_file: Path = _HOST_RESOLV_CONF) -> str:
    """Return resolv.conf: from the pod's DNS configuration, else the host's own."""
    dns = config.dns_config
    lines = [f"nameserver {server}" for server in dns.servers]
    if dns.searches:
        lines.insert(0, f"search {' '.join(dns.searches)}")
    if dns.options:
        lines.append(f"options {' '.join(dns.options)}")
    if lines:
        return "\n".join(lines) + "\n"
    return host_file.read_text() if host_file.exists() else ""


# Pod cgroup: created before the sandbox if the CRI client has not created it, removed with it.
#
# A kubelet creates and sizes the pod's cgroup before RunPodSandbox, and removes it later. Other
# clients only name one; a runtime would create it then, and nothing would remove it. The list of
# cgroups to create is written beside the sandbox's files first, so that a new engine can remove
# them.

_CREATED_FILE = "cgroups"


async def create_pod_cgroup(context: EngineContext, sandbox: Sandbox) -> None:
    """Create the cgroup that a sandbox names, if it is missing. Raises EngineError, OSError."""
    driver = sandbox.cgroup_driver
    cgroup = sandbox.cgroup
    if cgroup.is_parent_shared:
        return
    missing = await context.cgroups.missing(driver, cgroup.parent)
    if missing:
        directory = context.paths.sandbox_files(sandbox.id)
        make_private(directory)
        # Atomically: a truncated path would name another cgroup.
        replace_file(directory / _CREATED_FILE, "\n".join(missing).encode())
        await context.cgroups.create_parent(driver, cgroup.parent)


async def remove_pod_cgroup(context: EngineContext, sandbox_id: str) -> None:
    """Remove the cgroups created for a sandbox, unless others use them. Raises EngineError."""
    try:
        created = (context.paths.sandbox_files(sandbox_id) / _CREATED_FILE).read_text()
    except FileNotFoundError:
        return
    await context.cgroups.remove_if_empty(tuple(filter(None, created.split("\n"))))


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
# A burst is a second's worth: the largest that plugins take would let 256 MiB pass first. The least
# has room for a packet of segmentation offload, 64 KiB.
_LEAST_BURST_BITS, _MOST_BURST_BITS = 1 << 20, (1 << 31) - 1
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
    burst = min(max(bits, _LEAST_BURST_BITS), _MOST_BURST_BITS)
    return {f"{direction}Rate": bits, f"{direction}Burst": burst}
