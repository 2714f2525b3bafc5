"""The node group: RuntimeClass, in every version it was ever published in."""

from __future__ import annotations

from moorage.registry import columns, validation, warnings
from moorage.registry.conversion import runtime_classes
from moorage.registry.kind import Kind, Served, Strategy

_GROUP = "node.k8s.io"
_TYPES = "io.k8s.api.node"

RUNTIME_CLASS = Kind(
    name="RuntimeClass",
    plural="runtimeclasses",
    served=(
        Served(group=_GROUP, version="v1", type=f"{_TYPES}.v1.RuntimeClass"),
        Served(
            group=_GROUP,
            version="v1beta1",
            type=f"{_TYPES}.v1beta1.RuntimeClass",
            warning=(
                "node.k8s.io/v1beta1 RuntimeClass is deprecated in v1.22+, unavailable in v1.25+"
            ),
        ),
        Served(
            group=_GROUP,
            version="v1alpha1",
            type=f"{_TYPES}.v1alpha1.RuntimeClass",
            to_storage=runtime_classes.from_v1alpha1,
            from_storage=runtime_classes.to_v1alpha1,
            warning=(
                "node.k8s.io/v1alpha1 RuntimeClass is deprecated in v1.20+, unavailable in v1.24+; "
                "use node.k8s.io/v1 RuntimeClass"
            ),
        ),
    ),
    is_namespaced=False,
    strategy=Strategy(
        validate=validation.validate_runtime_class,
        validate_update=validation.validate_runtime_class_update,
        warn=warnings.warn_runtime_class,
        may_create_on_update=True,
        needs_revision_on_update=True,
    ),
    printer=columns.RUNTIME_CLASSES,
)
