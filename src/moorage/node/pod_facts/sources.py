"""Pod sources: static pods and their mirrors. Source: kubelet `types/pod_update.go`."""

from __future__ import annotations

from moorage.api.pods import Pod

CONFIG_SOURCE = "kubernetes.io/config.source"
CONFIG_MIRROR = "kubernetes.io/config.mirror"
FILE_SOURCE = "file"


def is_static(pod: Pod) -> bool:
    """Return whether the pod comes from a file on this node."""
    return pod.metadata.annotations.get(CONFIG_SOURCE) == FILE_SOURCE


def is_mirror(pod: Pod) -> bool:
    """Return whether the pod is the API's mirror of a static pod."""
    return CONFIG_MIRROR in pod.metadata.annotations
