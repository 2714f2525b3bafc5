"""Updates by the garbage collector, which needs no rights to what the object stands for.

Source: registry `rbac.IsOnlyMutatingGCFields` of Kubernetes 1.36.
"""

from __future__ import annotations

from moorage.apiserver.admission.chain import UPDATE
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.request import Attributes

# Written by the garbage collector to finish a deletion; grants no permission, so needs none.
_FIELDS = ("ownerReferences", "finalizers", "managedFields", "resourceVersion")


def is_for_collector(attributes: Attributes) -> bool:
    """Return whether the update changes only fields that the garbage collector changes."""
    new, old = attributes.obj, attributes.old
    if attributes.operation != UPDATE or new is None or old is None:
        return False
    return _without_collector_fields(new) == _without_collector_fields(old)


def _without_collector_fields(obj: Obj) -> Obj:
    metadata = {field: value for field, value in obj["metadata"].items() if field not in _FIELDS}
    return {**obj, "metadata": metadata}
