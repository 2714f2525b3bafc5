"""Pod sources: static pods, their mirrors, and critical pods.

Source: kubelet `types/pod_update.go`.
"""

from __future__ import annotations

import msgspec

from moorage.api.pods import MIRROR_ANNOTATION, Pod

# Pod references in messages and logs. Source: kubelet `util/format`.


def format_pod(pod: Pod) -> str:
    """Return `name_namespace(uid)`, the form in which messages name a pod."""
    meta = pod.metadata
    return f"{meta.name}_{meta.namespace}({meta.uid})"


CONFIG_SOURCE = "kubernetes.io/config.source"
CONFIG_HASH = "kubernetes.io/config.hash"
FILE_SOURCE = "file"
_API_SOURCE = "api"

_SYSTEM_CRITICAL_PRIORITY = 2_000_000_000


def from_api(pod: Pod) -> Pod:
    """Return a pod of the API, whose author cannot make it pass for a static one.

    Source: kubelet `config.go`, which sets the source of each pod itself.
    """
    annotations = pod.metadata.annotations
    if CONFIG_SOURCE not in annotations or is_mirror(pod):
        return pod
    meta = msgspec.structs.replace(
        pod.metadata, annotations={**annotations, CONFIG_SOURCE: _API_SOURCE}
    )
    return msgspec.structs.replace(pod, metadata=meta)


def is_static(pod: Pod) -> bool:
    """Return whether the pod comes from a file on this node."""
    return pod.metadata.annotations.get(CONFIG_SOURCE) == FILE_SOURCE


def is_mirror(pod: Pod) -> bool:
    """Return whether the pod is the API's mirror of a static pod."""
    return MIRROR_ANNOTATION in pod.metadata.annotations


def is_critical(pod: Pod) -> bool:
    """Return whether the node never evicts the pod: static, or of a system priority class."""
    priority = pod.spec.priority or 0
    return is_static(pod) or is_mirror(pod) or priority >= _SYSTEM_CRITICAL_PRIORITY
