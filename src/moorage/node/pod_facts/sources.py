"""Pod sources: static pods and their mirrors. Source: kubelet `types/pod_update.go`."""

from __future__ import annotations

from moorage.api.pods import MIRROR_ANNOTATION, Pod

CONFIG_SOURCE = "kubernetes.io/config.source"
FILE_SOURCE = "file"


def is_static(pod: Pod) -> bool:
    """Return whether the pod comes from a file on this node."""
    return pod.metadata.annotations.get(CONFIG_SOURCE) == FILE_SOURCE


def is_mirror(pod: Pod) -> bool:
    """Return whether the pod is the API's mirror of a static pod."""
    return MIRROR_ANNOTATION in pod.metadata.annotations
