"""Deletion of CustomResourceDefinitions: a finalizer holds one until its instances are deleted."""

from __future__ import annotations

from moorage.registry.kind import Obj
from moorage.registry.kinds.customresourcedefinition.columns import is_established

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
"""Finalizer that stands until every instance is deleted."""


def mark_definition_deleted(definition: Obj) -> None:
    """Hold an established definition until its instances are deleted."""
    if not is_established(definition):
        return
    finalizers = definition["metadata"].setdefault("finalizers", [])
    if CLEANUP not in finalizers:
        finalizers.append(CLEANUP)


def is_definition_held(definition: Obj) -> bool:
    """Return whether instances may remain: deletion begins by adding the finalizer."""
    return is_established(definition) and "deletionTimestamp" not in definition["metadata"]
