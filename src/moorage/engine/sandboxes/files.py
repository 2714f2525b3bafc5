"""Sandbox files, mounted into every container of the pod: hostname, hosts, resolv.conf, /dev/shm.

Source: CRI `DNSConfig`, resolv.conf(5); 64 MiB of shared memory, as containerd and CRI-O.
"""

from __future__ import annotations

from pathlib import Path

from moorage.engine.oci import SandboxFiles
from moorage.linux.idmap import IdMappings
from moorage.linux.mounts import NO_EXECUTION, NO_PRIVILEGE, mount, unmount
from moorage.linux.private import make_private_for
from moorage.linux.trees import remove_tree
from moorage.wire.cri import pb

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


def resolver_text(config: pb.PodSandboxConfig) -> str:
    """Return resolv.conf: from the pod's DNS configuration, else the host's own."""
    dns = config.dns_config
    lines = [f"nameserver {server}" for server in dns.servers]
    if dns.searches:
        lines.insert(0, f"search {' '.join(dns.searches)}")
    if dns.options:
        lines.append(f"options {' '.join(dns.options)}")
    if lines:
        return "\n".join(lines) + "\n"
    return _HOST_RESOLV_CONF.read_text() if _HOST_RESOLV_CONF.exists() else ""
