"""Deletion of CustomResourceDefinitions: a finalizer holds one until its instances are deleted."""

from __future__ import annotations

from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.customresourcedefinition.columns import is_established
from moorage.apiserver.registry.kinds.customresourcedefinition.conditions import set_condition

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
"""Finalizer that stands until every instance is deleted."""


def mark_definition_deleted(definition: Obj) -> None:
    """Hold an established definition until its instances are deleted."""
    if not is_established(definition):
        return
    metadata = definition["metadata"]
    finalizers = metadata.setdefault("finalizers", [])
    if CLEANUP not in finalizers:
        finalizers.append(CLEANUP)
    conditions = definition["status"].setdefault("conditions", [])
    set_condition(
        conditions, "Terminating", "True", "InstanceDeletionPending",
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        metadata["deletionTimestamp"],
    )  # fmt: skip


def is_definition_held(definition: Obj) -> bool:
    """Return whether instances may remain: deletion begins by adding the finalizer."""
    return is_established(definition) and "deletionTimestamp" not in definition["metadata"]
