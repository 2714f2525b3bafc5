"""Container mounts: the kernel's file systems, the pod's files, then the CRI's mounts.

Pure: real source paths and propagation are looked up before. Source: CRI Mount; OCI runtime-spec,
"Mounts" and "Default Filesystems"; KEP-3857 (read-only recursively).
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moorage.engine.errors import InvalidError
from moorage.engine.oci.context import (
    ContainerRequest,
    Document,
    HandlerTraits,
    HostFacts,
    SandboxRequest,
)
from moorage.engine.oci.findings import Findings
from moorage.engine.oci.namespaces import UserNamespace, mapping_fields, mappings, user_namespace
from moorage.engine.oci.propagation import OPTIONS, verify_source
from moorage.wire.cri import pb

_TTY_GROUP = 5
_CONSOLE = "/dev/console"
_SHM = "/dev/shm"
_RESOLV_CONF = "/etc/resolv.conf"
# Older kernels cannot idmap a tmpfs.
_IDMAPPED_TMPFS = (6, 3)
_NEVER_EXECUTED = ("nosuid", "noexec", "nodev")
_POD_FILE_OPTIONS = ("rbind", "rprivate")

_KERNEL: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("/proc", "proc", "proc", _NEVER_EXECUTED),
    ("/dev", "tmpfs", "tmpfs", ("nosuid", "strictatime", "mode=755", "size=65536k")),
    (
        "/dev/pts",
        "devpts",
        "devpts",
        ("nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", f"gid={_TTY_GROUP}"),
    ),
    ("/dev/mqueue", "mqueue", "mqueue", _NEVER_EXECUTED),
    ("/sys", "sysfs", "sysfs", _NEVER_EXECUTED),
    ("/sys/fs/cgroup", "cgroup", "cgroup", (*_NEVER_EXECUTED, "relatime")),
)
"""Destination, type, source and options of the kernel's file systems in every container."""
KERNEL_TREES = ("/proc", "/dev", "/sys")
POD_FILES = ("/etc/hostname", "/etc/hosts", _RESOLV_CONF)
"""The pod's files, which the engine mounts in every container."""
_READ_ONLY_UNLESS_PRIVILEGED = ("/sys", "/sys/fs/cgroup")


def container_mounts(
    request: ContainerRequest, host: HostFacts, findings: Findings
) -> list[Document]:
    """Return the OCI `mounts`, in the order to mount them.

    A CRI mount replaces a default one at its destination; a mount on /dev also those below it.
    Raises InvalidError.
    """
    config = request.config
    security = config.linux.security_context
    users = user_namespace(request.sandbox.options)
    requested = {_destination(mount): mount for mount in config.mounts}
    if config.tty:
        _verify_console(requested)
    kernel = _kernel_mounts(
        is_privileged=security.privileged,
        is_on_host_network=request.sandbox.is_on_host_network,
        users=users,
    )
    defaults = [mount for mount in kernel if not _is_replaced(mount["destination"], requested)]
    files = _pod_files(request, host, users)
    own = [
        *(file for file in files if _has_place(file["destination"], requested)),
        *(_requested_mount(mount, request.handler, findings) for mount in config.mounts),
    ]
    # A mount must come after the one that contains it; equals stay in the requested order.
    own.sort(key=lambda mount: _depth(mount["destination"]))
    return defaults + own


def sandbox_mounts(request: SandboxRequest) -> list[Document]:
    """Return the OCI `mounts` of an infra task."""
    sandbox = request.sandbox
    mounts = _kernel_mounts(
        is_privileged=sandbox.config.linux.security_context.privileged,
        is_on_host_network=sandbox.is_on_host_network,
        users=user_namespace(sandbox.options),
    )
    if (shm := _shm_source(sandbox.options, sandbox.files.shm)) is not None:
        mounts.append(_bind(_SHM, shm, "rw"))
    if (resolv_conf := sandbox.files.resolv_conf) is not None:
        mounts.append(_bind(_RESOLV_CONF, resolv_conf, "ro"))
    return mounts


def _kernel_mounts(
    *, is_privileged: bool, is_on_host_network: bool, users: UserNamespace | None
) -> list[Document]:
    mounts = []
    for destination, kind, source, options in _KERNEL:
        mount_options = list(options)
        if destination in _READ_ONLY_UNLESS_PRIVILEGED:
            mount_options.append("rw" if is_privileged else "ro")
        mounts.append(
            {"destination": destination, "type": kind, "source": source, "options": mount_options}
        )
    if users is not None:
        mounts = [_in_user_namespace(mount, users, is_on_host_network) for mount in mounts]
    return mounts


def _in_user_namespace(mount: Document, users: UserNamespace, is_on_host_network: bool) -> Document:
    if mount["destination"] == "/sys" and is_on_host_network:
        # The user namespace does not own the network namespace, so the kernel refuses a sysfs.
        options = [*_NEVER_EXECUTED, "rbind", "rro"]
        return {"destination": "/sys", "type": "bind", "source": "/sys", "options": options}
    if mount["destination"] == "/dev/pts" and users.gids["size"] <= _TTY_GROUP:
        options_left = [option for option in mount["options"] if not option.startswith("gid=")]
        return mount | {"options": options_left}
    return mount


def _pod_files(
    request: ContainerRequest, host: HostFacts, users: UserNamespace | None
) -> list[Document]:
    sandbox = request.sandbox
    access = "ro" if request.config.linux.security_context.readonly_rootfs else "rw"
    sources = (sandbox.files.hostname, sandbox.files.hosts, sandbox.files.resolv_conf)
    ids = mapping_fields(users) if host.kernel >= _IDMAPPED_TMPFS else {}
    mounts = [
        _bind(destination, source, access) | ids
        for destination, source in zip(POD_FILES, sources, strict=True)
        if source is not None
    ]
    if (shm := _shm_source(sandbox.options, sandbox.files.shm)) is not None:
        mounts.append(_bind(_SHM, shm, "rw"))
    return mounts


def _shm_source(options: pb.NamespaceOption, pods: Path | None) -> Path | None:
    return Path(_SHM) if options.ipc == pb.NODE else pods


def _bind(destination: str, source: Path, access: str) -> Document:
    return {
        "destination": destination,
        "type": "bind",
        "source": str(source),
        "options": [*_POD_FILE_OPTIONS, access],
    }


def _destination(mount: pb.Mount) -> str:
    path = mount.container_path
    if not path.startswith("/"):
        raise InvalidError(f"mounts has container_path {path!r}; it must be an absolute path")
    return absolute(path)


def absolute(path: str) -> str:
    """Return a path from the root on, without `.`, `..` and repeated separators."""
    # A leading `//` is distinct in POSIX, not in Linux.
    return posixpath.normpath("/" + path.lstrip("/"))


def _is_replaced(destination: str, requested: Mapping[str, Any]) -> bool:
    if destination in requested:
        return True
    return destination.startswith("/dev/") and "/dev" in requested


def _has_place(destination: str, requested: Mapping[str, pb.Mount]) -> bool:
    """Return whether a pod's file is to be mounted: not where the CRI mounts something else, and
    not in a bidirectional mount, where it would hide the host's own file.
    """
    return destination not in requested and not any(
        mount.propagation == pb.PROPAGATION_BIDIRECTIONAL
        and destination.startswith(path.rstrip("/") + "/")
        for path, mount in requested.items()
    )


def _verify_console(requested: Mapping[str, pb.Mount]) -> None:
    """Refuse a terminal that the runtime would mount over the host's own console, for good.

    Source: OCI runtime-spec, "Default Devices": with a terminal, /dev/console is a bind mount.
    """
    for path in ("/", posixpath.dirname(_CONSOLE), _CONSOLE):
        if path in requested and requested[path].propagation == pb.PROPAGATION_BIDIRECTIONAL:
            raise InvalidError(
                f"mount {path} is bidirectional, and the container has a terminal, which would "
                f"cover {_CONSOLE} of the host too; use HostToContainer, or no tty"
            )


def _requested_mount(mount: pb.Mount, handler: HandlerTraits, findings: Findings) -> Document:
    destination = _destination(mount)
    if mount.propagation not in OPTIONS:
        raise InvalidError(f"mount {destination}: unknown propagation {mount.propagation}")
    source = findings.sources.get(mount.host_path)
    if source is None:
        raise InvalidError(f"mount {destination} has no host_path; give it an absolute path")
    verify_source(mount.propagation, source, findings.peers)
    document: Document = {
        "destination": destination,
        "type": "bind",
        "source": source,
        "options": ["rbind", OPTIONS[mount.propagation], _access(mount, destination, handler)],
    }
    if mount.uidMappings or mount.gidMappings:
        if not handler.has_user_namespaces:
            raise InvalidError(
                f"mount {destination} has id mappings, which runtime handler {handler.name!r} does "
                "not support; use a handler that does, or leave them out"
            )
        document["uidMappings"] = mappings(mount.uidMappings)
        document["gidMappings"] = mappings(mount.gidMappings)
    return document


def _access(mount: pb.Mount, destination: str, handler: HandlerTraits) -> str:
    is_image = bool(mount.image.image)
    if is_image and not mount.readonly:
        raise InvalidError(f"mount {destination} is an image mount, which requires readonly: true")
    if not mount.recursive_read_only:
        return "ro" if mount.readonly else "rw"
    if not mount.readonly:
        raise InvalidError(f"mount {destination}: recursive_read_only requires readonly: true")
    if mount.propagation != pb.PROPAGATION_PRIVATE:
        raise InvalidError(
            f"mount {destination}: recursive_read_only requires PROPAGATION_PRIVATE, not "
            f"{pb.MountPropagation.Name(mount.propagation)}"
        )
    if not handler.has_recursive_read_only:
        raise InvalidError(
            f"RROUnsupported: mount {destination}: runtime handler {handler.name!r} cannot mount "
            "read-only recursively; use recursiveReadOnly: IfPossible"
        )
    return "rro"


def _depth(destination: str) -> int:
    return destination.rstrip("/").count("/")
