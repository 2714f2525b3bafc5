"""Exempt pods: those that run outside of what policies can rule.

    mirror of a static pod   its node runs it whatever the API says; only node agents can write one
    host-network system pod  in kube-system, with hostNetwork and a system priority class: the
                             cluster's network and node daemons, without which no other pod starts

Neither gets a class by policy, nor is it refused by a floor, an allow-list or a check. Who may
create the second kind can already take over any node, so no policy is weakened by it; all other
pods of kube-system are under policies like those of any namespace. Source: KEP-585 "Defaulting",
API docs "Static Pods", "Guaranteed scheduling for critical add-on pods".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from moorage.api.pods import MIRROR_ANNOTATION

NODES_GROUP = "system:nodes"
_SYSTEM_NAMESPACE = "kube-system"
_SYSTEM_PRIORITIES = ("system-node-critical", "system-cluster-critical")


def is_exempt(
    namespace: str,
    metadata: Mapping[str, Any],
    spec: Mapping[str, Any],
    groups: Collection[str] = (),
) -> bool:
    """Return whether no policy applies to a pod. `groups` are those of the user who creates it."""
    if NODES_GROUP in groups and MIRROR_ANNOTATION in (metadata.get("annotations") or {}):
        return True
    return (
        namespace == _SYSTEM_NAMESPACE
        and spec.get("hostNetwork") is True
        and spec.get("priorityClassName") in _SYSTEM_PRIORITIES
    )
