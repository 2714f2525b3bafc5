"""Bindings: orders to assign a pod to a node, posted and carried out, never kept.

Source: core/v1 `Binding`; `bindings` of a namespace is the older path of `pods/binding`.
"""

from __future__ import annotations

from moorage.apiserver.registry.kind import Kind, Served

BINDING = Kind(
    name="Binding",
    plural="bindings",
    served=(Served(group="", version="v1", type="io.k8s.api.core.v1.Binding"),),
    verbs=("create",),
    is_stored=False,
)
