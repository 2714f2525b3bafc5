"""Namespace of the parts, with the pod security level that the runtime agent needs."""

from __future__ import annotations

from moorage.attach.manifests.identity import Obj, metadata
from moorage.attach.values import Values

_LEVELS = ("enforce", "audit", "warn")


def objects(values: Values) -> list[Obj]:
    """Return the namespace; nothing if another program makes it.

    The agent mounts directories of its host, which only the level `privileged` allows. Source:
    "Pod Security Standards".
    """
    if not values.create_namespace:
        return []
    made = metadata(values.namespace)
    made["labels"] |= {f"pod-security.kubernetes.io/{level}": "privileged" for level in _LEVELS}
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": made}]
