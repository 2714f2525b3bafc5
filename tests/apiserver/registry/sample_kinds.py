"""Small kinds for tests of the generic path: real declarations, few rules."""

from __future__ import annotations

from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    SelectableField,
    Served,
    Strategy,
    status_subresource,
)


def _pod_like_grace(obj: Obj, asked: int | None) -> int:
    if not obj["spec"].get("nodeName"):
        return 0
    return 30 if asked is None else asked


PLAIN = Kind(
    name="ConfigMap",
    plural="configmaps",
    served=(Served(group="", version="v1", type="io.k8s.api.core.v1.ConfigMap"),),
)

GRACEFUL = Kind(
    name="Pod",
    plural="pods",
    served=(Served(group="", version="v1", type="io.k8s.api.core.v1.Pod"),),
    strategy=Strategy(grace_seconds=_pod_like_grace, spec_of=lambda obj: obj.get("spec")),
    selectable=(
        SelectableField("spec.nodeName", ("spec", "nodeName")),
        SelectableField("spec.hostNetwork", ("spec", "hostNetwork"), "false"),
    ),
    subresources=status_subresource(),
)

HELD = Kind(
    name="Namespace",
    plural="namespaces",
    served=(Served(group="", version="v1", type="io.k8s.api.core.v1.Namespace"),),
    is_namespaced=False,
    strategy=Strategy(
        is_held=lambda obj: bool(obj.get("spec", {}).get("finalizers")),
        mark_deleted=lambda obj: obj.setdefault("status", {}).update(phase="Terminating"),
    ),
)
