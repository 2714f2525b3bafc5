"""The scheduling group: priority classes."""

from __future__ import annotations

from moorage.registry import columns, defaults, validation
from moorage.registry.kind import Kind, Obj, Served, Strategy


def _without_metadata(obj: Obj) -> object:
    return {key: value for key, value in obj.items() if key != "metadata"}


PRIORITY_CLASS = Kind(
    name="PriorityClass",
    plural="priorityclasses",
    served=(
        Served(
            group="scheduling.k8s.io",
            version="v1",
            type="io.k8s.api.scheduling.v1.PriorityClass",
        ),
    ),
    is_namespaced=False,
    short_names=("pc",),
    strategy=Strategy(
        default=defaults.default_priority_class,
        validate=validation.validate_priority_class,
        validate_update=validation.validate_priority_class_update,
        spec_of=_without_metadata,
    ),
    printer=columns.PRIORITY_CLASSES,
)
