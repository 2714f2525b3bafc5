"""Pod sysctls: the namespace each belongs to, and the file that sets it.

Without an infra process they are written inside the pinned namespaces; an infra process gets them
in its spec. Source: namespaces(7), sysctl(8) for the spelling; containerd 2's defaults for the
network.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from moorage.engine.errors import InvalidError
from moorage.engine.oci.namespaces import user_namespace
from moorage.wire.cri import pb

_EXACT = {
    "kernel/domainname": "uts",
    "kernel/hostname": "uts",
    "kernel/msgmax": "ipc",
    "kernel/msgmnb": "ipc",
    "kernel/msgmni": "ipc",
    "kernel/sem": "ipc",
    "kernel/shmall": "ipc",
    "kernel/shmmax": "ipc",
    "kernel/shmmni": "ipc",
    "kernel/shm_rmid_forced": "ipc",
}
_PREFIXES = (("net/", "network"), ("fs/mqueue/", "ipc"))
_UNPRIVILEGED_PORTS = ("net.ipv4.ip_unprivileged_port_start", "0")
_UNPRIVILEGED_PING = ("net.ipv4.ping_group_range", "0 2147483647")


@dataclass(frozen=True, slots=True)
class Sysctl:
    """A sysctl. `namespace` is the OCI type of the namespace it belongs to; `file` sets it."""

    key: str
    value: str
    namespace: str
    file: Path


def sandbox_sysctls(config: pb.PodSandboxConfig) -> tuple[Sysctl, ...]:
    """Return a pod's sysctls, with the defaults for a pod with its own network.

    Raises InvalidError for one that belongs to the host, or to a namespace the pod shares with it.
    """
    linux = config.linux
    options = linux.security_context.namespace_options
    values = _defaults(options) | dict(linux.sysctls)
    shared = {
        kind
        for kind, is_shared in (
            ("network", options.network == pb.NODE),
            ("uts", options.network == pb.NODE),
            ("ipc", options.ipc == pb.NODE),
        )
        if is_shared
    }
    sysctls = tuple(sysctl(key, value) for key, value in values.items())
    for entry in sysctls:
        if entry.namespace in shared:
            raise InvalidError(
                f"sysctl {entry.key!r} is not allowed: the pod uses the host's "
                f"{entry.namespace} namespace; remove it"
            )
    return sysctls


def sysctl(key: str, value: str) -> Sysctl:
    """Return a sysctl by its name, separated by dots or slashes. Raises InvalidError."""
    path = sysctl_path(key)
    namespace = _EXACT.get(path) or next(
        (kind for prefix, kind in _PREFIXES if path.startswith(prefix)), ""
    )
    if not namespace:
        raise InvalidError(
            f"sysctl {key!r} is not namespaced, so it would change the host; set it on the node"
        )
    return Sysctl(key, value, namespace, Path("/proc/sys", path))


def sysctl_path(key: str) -> str:
    """Return the path below /proc/sys: the first separator determines the form, and the other one
    stands for itself (`net.ipv4.conf.eth0/1.forwarding`). Raises InvalidError.
    """
    first = next((character for character in key if character in "./"), "")
    path = key.translate(str.maketrans("./", "/.")) if first == "." else key
    parts = path.split("/")
    if len(parts) < 2 or any(part in ("", ".", "..") for part in parts):
        raise InvalidError(f"{key!r} is not a sysctl name; use the form net.core.somaxconn")
    return path


def _defaults(options: pb.NamespaceOption) -> dict[str, str]:
    if options.network == pb.NODE:
        return {}
    defaults = dict((_UNPRIVILEGED_PORTS,))
    # The range's groups must all be mapped, which they are not in a user namespace.
    if user_namespace(options) is None:
        defaults.update((_UNPRIVILEGED_PING,))
    return defaults
