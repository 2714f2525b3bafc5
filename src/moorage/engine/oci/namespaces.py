"""Container namespaces: joined, created, or shared with the host.

Source: CRI NamespaceOption and UserNamespace; OCI runtime-spec, "Namespaces"; KEP-127.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from moorage.engine.errors import InvalidError, PreconditionError
from moorage.engine.oci.context import ContainerRequest, HandlerTraits, HostFacts, SandboxContext
from moorage.linux.idmap import IdMappings, IdRange
from moorage.wire.cri import pb

Mapping = dict[str, int]
"""An OCI id mapping: containerID, hostID, size."""

_MODES = {
    "network": (pb.POD, pb.NODE),
    "pid": (pb.POD, pb.CONTAINER, pb.NODE, pb.TARGET),
    "ipc": (pb.POD, pb.NODE),
}
_ID_SPACE = 2**32


@dataclass(frozen=True, slots=True)
class UserNamespace:
    """The single uid range and the single gid range of a pod's user namespace."""

    uids: Mapping
    gids: Mapping


def user_namespace(
    options: pb.NamespaceOption, handler: HandlerTraits | None = None
) -> UserNamespace | None:
    """Return the pod's user namespace; None when it has the host's. A handler's support is checked.

    Raises InvalidError unless there is one range for users and one for groups, each with id 0.
    """
    userns = options.userns_options
    if not options.HasField("userns_options") or userns.mode == pb.NODE:
        if userns.uids or userns.gids:
            raise InvalidError(
                "userns_options of mode NODE has id mappings; leave them out, or set mode POD"
            )
        return None
    if userns.mode != pb.POD:
        raise InvalidError(
            f"userns_options.mode {pb.NamespaceMode.Name(userns.mode)} is not supported; "
            "use POD or NODE"
        )
    if handler is not None and not handler.has_user_namespaces:
        raise InvalidError(
            f"runtime handler {handler.name!r} does not support user namespaces; "
            "use one that does, or hostUsers: true"
        )
    return UserNamespace(_one_range(userns.uids, "uids"), _one_range(userns.gids, "gids"))


def id_mappings(options: pb.NamespaceOption) -> IdMappings | None:
    """Return the host ids of the pod's users and groups; None without a user namespace of its own.

    Raises InvalidError as `user_namespace` does.
    """
    if user_namespace(options) is None:
        return None
    userns = options.userns_options
    return IdMappings(_id_ranges(userns.uids), _id_ranges(userns.gids))


def verify_sandbox_namespaces(options: pb.NamespaceOption, handler: HandlerTraits) -> None:
    """Raise InvalidError for namespace modes that a pod cannot have."""
    _verify_modes(options)
    if options.pid == pb.TARGET:
        raise InvalidError("namespace_options.pid TARGET is for containers; use POD for a pod")
    has_users = user_namespace(options, handler) is not None
    if has_users and options.network == pb.NODE and options.ipc == pb.NODE:
        # It is created and pinned with one of these two, which it owns.
        raise InvalidError(
            "a pod with a user namespace cannot have both the host's network and its IPC "
            "namespace; use the host's users, or namespace_options.network or ipc POD"
        )


def _id_ranges(mappings: Iterable[pb.IDMapping]) -> tuple[IdRange, ...]:
    return tuple(
        IdRange(mapping.container_id, mapping.host_id, mapping.length) for mapping in mappings
    )


def container_namespaces(request: ContainerRequest, host: HostFacts) -> list[dict[str, str]]:
    """Return the OCI `linux.namespaces` of a container.

    Raises InvalidError for modes that are invalid or differ from the sandbox's; PreconditionError
    when the pod's namespaces are gone.
    """
    security = request.config.linux.security_context
    options, sandbox = security.namespace_options, request.sandbox
    pods = sandbox.options
    _verify_modes(options)
    _verify_agreement(options, pods)
    namespaces = [{"type": "mount"}]
    if pods.network != pb.NODE:
        namespaces.append(_joined("network", sandbox.netns, request))
        namespaces.append(_joined("uts", sandbox.utsns, request))
    if pods.ipc != pb.NODE:
        namespaces.append(_joined("ipc", sandbox.ipcns, request))
    if (pid := _pid(options, request)) is not None:
        namespaces.append(pid)
    if user_namespace(pods, request.handler) is not None:
        namespaces.append(_joined("user", sandbox.userns, request))
    return namespaces + _cgroup(host, is_privileged=security.privileged)


def sandbox_namespaces(sandbox: SandboxContext, host: HostFacts) -> list[dict[str, str]]:
    """Return the OCI `linux.namespaces` of an infra task: pinned ones are joined."""
    options = sandbox.options
    namespaces = [{"type": "mount"}]
    if options.network != pb.NODE:
        namespaces.append(_entry("network", sandbox.netns))
        namespaces.append(_entry("uts", sandbox.utsns))
    if options.ipc != pb.NODE:
        namespaces.append(_entry("ipc", sandbox.ipcns))
    if options.pid != pb.NODE:
        namespaces.append(_entry("pid", ""))
    if user_namespace(options) is not None:
        namespaces.append(_entry("user", sandbox.userns))
    is_privileged = sandbox.config.linux.security_context.privileged
    return namespaces + _cgroup(host, is_privileged=is_privileged)


def mapping_fields(users: UserNamespace | None) -> dict[str, list[Mapping]]:
    """Return the id mappings, for OCI's `linux` object or one of its mounts."""
    if users is None:
        return {}
    return {"uidMappings": [users.uids], "gidMappings": [users.gids]}


def mappings(ranges: Any) -> list[Mapping]:
    """Return CRI IDMappings as OCI's."""
    return [
        {"containerID": id_range.container_id, "hostID": id_range.host_id, "size": id_range.length}
        for id_range in ranges
    ]


def _one_range(ranges: Any, field: str) -> Mapping:
    if len(ranges) != 1:
        raise InvalidError(
            f"userns_options.{field} has {len(ranges)} ranges; exactly one is supported"
        )
    (mapping,) = mappings(ranges)
    if mapping["containerID"] != 0 or mapping["size"] == 0:
        raise InvalidError(
            f"userns_options.{field} does not map container id 0; begin the range there"
        )
    if mapping["hostID"] + mapping["size"] > _ID_SPACE:
        raise InvalidError(f"userns_options.{field} exceeds the id space; shorten the range")
    return mapping


def _verify_modes(options: pb.NamespaceOption) -> None:
    for field, allowed in _MODES.items():
        mode = getattr(options, field)
        if mode not in allowed:
            name = pb.NamespaceMode.Name(mode) if mode in pb.NamespaceMode.values() else mode
            raise InvalidError(
                f"namespace_options.{field} {name} is not supported; use "
                + " or ".join(pb.NamespaceMode.Name(mode) for mode in allowed)
            )


def _verify_agreement(own: pb.NamespaceOption, pods: pb.NamespaceOption) -> None:
    """Refuse a container that shares more with the host than its pod. The default is POD."""
    for field in _MODES:
        if getattr(own, field) == pb.NODE != getattr(pods, field):
            raise InvalidError(
                f"namespace_options.{field} of the container is NODE and its sandbox's is not; "
                "send the same for both"
            )
    if user_namespace(own) != user_namespace(pods):
        raise InvalidError(
            "userns_options of the container differs from its sandbox's; send the same for both"
        )


def _pid(options: pb.NamespaceOption, request: ContainerRequest) -> dict[str, str] | None:
    # POD is the wire's default; a pod that shares no PID namespace has none to join.
    mode = options.pid if options.pid != pb.POD else request.sandbox.options.pid
    if mode == pb.NODE:
        return None
    if mode == pb.CONTAINER:
        return _entry("pid", "")
    if mode == pb.TARGET:
        if request.target_pid is None:
            raise InvalidError(
                f"namespace_options.target_id {options.target_id!r} is not a running container "
                "of this pod"
            )
        return _entry("pid", f"/proc/{request.target_pid}/ns/pid")
    if request.handler.has_processes_joined_unsaid:
        return None
    return _joined("pid", "", request)


def _joined(kind: str, pinned: str, request: ContainerRequest) -> dict[str, str]:
    """Return the pod's namespace: the pinned one, or the infra process's."""
    sandbox = request.sandbox
    if pinned:
        return _entry(kind, pinned)
    if sandbox.infra_pid is not None:
        proc = {"network": "net"}.get(kind, kind)
        return _entry(kind, f"/proc/{sandbox.infra_pid}/ns/{proc}")
    # The pod's namespaces are in the runtime's own kernel, except the network it takes over.
    if request.handler.is_virtualised and kind != "network":
        return _entry(kind, "")
    raise PreconditionError(
        f"sandbox {sandbox.id} has no {kind} namespace any more; stop it and run a new one"
    )


def _cgroup(host: HostFacts, *, is_privileged: bool) -> list[dict[str, str]]:
    """Return a cgroup namespace, which hides the host's tree; not on version 1."""
    return [_entry("cgroup", "")] if host.is_cgroup_v2 and not is_privileged else []


def _entry(kind: str, path: str) -> dict[str, str]:
    return {"type": kind, "path": path} if path else {"type": kind}
