"""Linux namespace options: those a pod shares with the node, and its containers with each other.

Pure. Source: core/v1 `hostNetwork`, `hostPID`, `hostIPC`, `shareProcessNamespace`, `hostUsers`;
CRI NamespaceOption; KEP-127 (user namespaces).
"""

from __future__ import annotations

from collections.abc import Iterable

from moorage.api.nodes import NodeRuntimeHandler
from moorage.api.pods import PodSpec
from moorage.node.config.errors import ConfigError
from moorage.wire.cri import pb


def namespaces(
    spec: PodSpec, user_namespace: pb.UserNamespace | None, target: str | None = None
) -> pb.NamespaceOption:
    """Return the CRI NamespaceOption.

    `target` is the target container's ID of an ephemeral container.
    """
    option = pb.NamespaceOption(
        network=pb.NODE if spec.host_network else pb.POD,
        ipc=pb.NODE if spec.host_ipc else pb.POD,
        pid=_pid_mode(spec),
        userns_options=user_namespace,
    )
    if target is not None and option.pid == pb.CONTAINER:
        option.pid = pb.TARGET
        option.target_id = target
    return option


def _pid_mode(spec: PodSpec) -> pb.NamespaceMode.ValueType:
    if spec.host_pid:
        return pb.NODE
    return pb.POD if spec.share_process_namespace else pb.CONTAINER


def check_user_namespaces(handler: str, handlers: Iterable[NodeRuntimeHandler]) -> None:
    """Raise ConfigError, with upstream's message, if `hostUsers: false` is not supported."""
    known = {handler_features.name: handler_features for handler_features in handlers}
    refused = "can't set `spec.hostUsers: false`, "
    features = known.get(handler)
    if features is not None and features.features is not None and features.features.user_namespaces:
        return
    if not handler:
        raise ConfigError(f"{refused}runtime does not support user namespaces")
    sentence = f'{refused}RuntimeClass handler "{handler}" does not support user namespaces'
    if known and features is None:
        raise ConfigError(f'{sentence}: the handler "{handler}" is not known')
    raise ConfigError(sentence)


def has_recursive_read_only(handler: str, handlers: Iterable[NodeRuntimeHandler]) -> bool:
    """Return whether the handler supports recursive read-only mounts."""
    for features in handlers:
        if features.name == handler and features.features is not None:
            return bool(features.features.recursive_read_only_mounts)
    return False
