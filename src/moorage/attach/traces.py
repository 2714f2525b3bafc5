"""Traces of an attachment on objects of others, and the patches that remove them. Pure.

The parts write labels and conditions on nodes, annotations, conditions and scheduling gates on
pods, annotations on workloads, and RuntimeClasses. What others wrote stays: users' needs, labels
against a default class and checks of classes; what the node agent of `moor up` keeps for itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from moorage.api.claims.local_path import NODE_LABEL
from moorage.api.meta import Raw
from moorage.api.runtime_group import (
    CHECK_ANNOTATION,
    DEFAULT_CLASS_LABEL,
    ENFORCE_LABEL,
    ENFORCED_FOR_ANNOTATION,
    GROUP,
    MANAGED,
    MANAGED_LABEL,
    NEEDS_ANNOTATION,
    PROBE_LABEL,
)
from moorage.attach.manifests.identity import Obj
from moorage.runtimeclass.start_phases import CONDITION as START_PHASES

_OTHERS = frozenset(
    (
        NEEDS_ANNOTATION,
        DEFAULT_CLASS_LABEL,
        CHECK_ANNOTATION,
        ENFORCE_LABEL,
        NODE_LABEL,
        START_PHASES,
    )
)
"""Labels, annotations and conditions of the group that are not of an attachment's parts."""
_PODS_FIELDS = ("annotations",)
_FIELDS = ("labels", "annotations")


def is_ours(key: str) -> bool:
    """Return whether a label, annotation, condition, gate or finalizer is of an attachment."""
    prefix, slash, _ = key.partition("/")
    is_group = bool(slash) and (prefix == GROUP or prefix.endswith(f".{GROUP}"))
    return is_group and key not in _OTHERS


def metadata_patch(obj: Obj) -> Raw | None:
    """Return the merge patch that removes our labels and annotations; None without any."""
    metadata = obj["metadata"]
    # A pod's labels are its owner's.
    fields = _PODS_FIELDS if obj["kind"] == "Pod" else _FIELDS
    patch = {field: nulls for field in fields if (nulls := _nulls(metadata.get(field) or {}))}
    if ENFORCED_FOR_ANNOTATION in patch.get("annotations", {}):
        # The label of a namespace that a controller wrote, not a user.
        patch["labels"] = {**patch.get("labels", {}), ENFORCE_LABEL: None}
    return {"metadata": patch} if patch else None


def _nulls(entries: Mapping[str, str]) -> dict[str, None]:
    return {key: None for key in sorted(entries) if is_ours(key)}


def condition_patch(obj: Obj) -> Raw | None:
    """Return the strategic merge patch of a status that removes our conditions; None without."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    removed = [
        {"$patch": "delete", "type": condition["type"]}
        for condition in conditions
        if is_ours(condition.get("type", ""))
    ]
    return {"status": {"conditions": removed}} if removed else None


def gate_patch(pod: Obj) -> list[Raw] | None:
    """Return the JSON patch that removes our scheduling gates; None without any.

    Each removal tests the gate's name, so that one removed meanwhile fails the patch.
    """
    gates = pod["spec"].get("schedulingGates") or ()
    patch: list[Raw] = []
    for index in reversed(range(len(gates))):
        if is_ours(gates[index]["name"]):
            path = f"/spec/schedulingGates/{index}"
            patch.append({"op": "test", "path": f"{path}/name", "value": gates[index]["name"]})
            patch.append({"op": "remove", "path": path})
    return patch or None


def asks_our_labels(pod: Obj) -> bool:
    """Return whether a pod that has no node yet goes only to nodes with labels of our group."""
    spec = pod["spec"]
    if spec.get("nodeName"):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return any(
        is_ours(expression.get("key", ""))
        for term in required.get("nodeSelectorTerms") or ()
        for expression in term.get("matchExpressions") or ()
    )


def is_managed_class(runtime_class: Obj) -> bool:
    """Return whether our controllers made a RuntimeClass."""
    return (runtime_class["metadata"].get("labels") or {}).get(MANAGED_LABEL) == MANAGED


def is_probe_class(runtime_class: Obj) -> bool:
    """Return whether an agent made a RuntimeClass for its probes, and was stopped meanwhile."""
    return PROBE_LABEL in (runtime_class["metadata"].get("labels") or {})
