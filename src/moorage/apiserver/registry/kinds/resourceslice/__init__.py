"""ResourceSlices. Source: resource validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    SelectableField,
    Served,
    Strategy,
    get_spec,
)
from moorage.apiserver.registry.kinds.resourceslice.preparation import (
    prepare_resource_slice,
    prepare_resource_slice_update,
)
from moorage.apiserver.registry.kinds.resourceslice.validation import (
    validate_resource_slice,
    validate_resource_slice_update,
)

_TYPES = "io.k8s.api.resource.v1"


def warn_resource_slice(new: Obj, old: Obj | None) -> list[str]:
    """Warn about a driver's name that is not in lower case."""
    del old
    driver = new.get("spec", {}).get("driver", "")
    if driver == driver.lower():
        return []
    return [
        f'spec.driver: driver names should be lowercase; "{driver}" contains uppercase characters'
    ]


RESOURCE_SLICE = Kind(
    name="ResourceSlice",
    plural="resourceslices",
    served=(Served(group="resource.k8s.io", version="v1", type=f"{_TYPES}.ResourceSlice"),),
    is_namespaced=False,
    strategy=Strategy(
        prepare_create=prepare_resource_slice,
        prepare_update=prepare_resource_slice_update,
        validate=validate_resource_slice,
        validate_update=validate_resource_slice_update,
        warn=warn_resource_slice,
        spec_of=get_spec,
        returns_deleted=True,
    ),
    printer=printer(
        NAME,
        column("Node", "spec.nodeName", of=f"{_TYPES}.ResourceSliceSpec"),
        column("Driver", "spec.driver", of=f"{_TYPES}.ResourceSliceSpec"),
        column("Pool", "spec.pool.name", of=f"{_TYPES}.ResourcePool"),
        AGE,
    ),
    selectable=(
        SelectableField("spec.nodeName", ("spec", "nodeName")),
        SelectableField("spec.driver", ("spec", "driver")),
        SelectableField("spec.pool.name", ("spec", "pool", "name")),
    ),
)
