"""Namespaces: each carries its name as a label, so that selectors can name it."""

from __future__ import annotations

from moorage.registry.kind import Obj

NAME_LABEL = "kubernetes.io/metadata.name"
FINALIZER = "kubernetes"


def default_namespace(namespace: Obj) -> None:
    metadata = namespace["metadata"]
    if metadata.get("name"):
        metadata["labels"] = {**metadata.get("labels", {}), NAME_LABEL: metadata["name"]}
    namespace.setdefault("status", {}).setdefault("phase", "Active")
