"""Pod references in messages and logs. Source: kubelet `util/format`."""

from __future__ import annotations

from moorage.api.pods import Pod


def format_pod(pod: Pod) -> str:
    """Return `name_namespace(uid)`, the form in which messages name a pod."""
    meta = pod.metadata
    return f"{meta.name}_{meta.namespace}({meta.uid})"
