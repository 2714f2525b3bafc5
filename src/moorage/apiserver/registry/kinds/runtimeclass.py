"""RuntimeClasses, in every version they were ever published in.

Validation and warnings are those of `moorage.runtimeclass`, on a typed object. v1alpha1 (Kubernetes
1.14 to 1.23) nests everything but metadata under `spec`; v1beta1 has v1's shape and needs no
conversion.
"""

from __future__ import annotations

import msgspec

from moorage.api.errors import FieldError
from moorage.api.runtime_group import RuntimeClass
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.kind import Kind, Obj, Served, Strategy
from moorage.runtimeclass import class_errors, class_update_errors, class_warnings

_NESTED = ("overhead", "scheduling")
_GROUP = "node.k8s.io"
_TYPES = "io.k8s.api.node"


def validate_runtime_class(obj: Obj) -> list[FieldError]:
    """Return the errors of a new RuntimeClass."""
    return class_errors(_typed_class(obj))


def validate_runtime_class_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of a RuntimeClass."""
    return class_update_errors(_typed_class(new), _typed_class(old))


def _typed_class(obj: Obj) -> RuntimeClass:
    return msgspec.convert(obj, RuntimeClass)


def warn_runtime_class(runtime_class: Obj, old: Obj | None) -> list[str]:
    del old
    return class_warnings(_typed_class(runtime_class))


def from_v1alpha1(obj: Obj) -> Obj:
    spec = obj.get("spec", {})
    flat: Obj = {"metadata": obj["metadata"], "handler": spec.get("runtimeHandler", "")}
    return flat | {field: spec[field] for field in _NESTED if field in spec}


def to_v1alpha1(obj: Obj) -> Obj:
    spec: Obj = {"runtimeHandler": obj["handler"]}
    spec |= {field: obj[field] for field in _NESTED if field in obj}
    return {"metadata": obj["metadata"], "spec": spec}


RUNTIME_CLASS = Kind(
    name="RuntimeClass",
    plural="runtimeclasses",
    served=(
        Served(_GROUP, "v1", f"{_TYPES}.v1.RuntimeClass"),
        Served(
            _GROUP,
            "v1beta1",
            f"{_TYPES}.v1beta1.RuntimeClass",
            warning=(
                "node.k8s.io/v1beta1 RuntimeClass is deprecated in v1.22+, unavailable in v1.25+"
            ),
        ),
        Served(
            _GROUP,
            "v1alpha1",
            f"{_TYPES}.v1alpha1.RuntimeClass",
            to_storage=from_v1alpha1,
            from_storage=to_v1alpha1,
            warning=(
                "node.k8s.io/v1alpha1 RuntimeClass is deprecated in v1.20+, unavailable in v1.24+; "
                "use node.k8s.io/v1 RuntimeClass"
            ),
        ),
    ),
    is_namespaced=False,
    strategy=Strategy(
        validate=validate_runtime_class,
        validate_update=validate_runtime_class_update,
        warn=warn_runtime_class,
        may_create_on_update=True,
        needs_revision_on_update=True,
    ),
    printer=printer(NAME, column("Handler", "handler"), AGE),
)
