"""CSIStorageCapacities. Source: storage validation of Kubernetes 1.36, KEP-1472."""

from __future__ import annotations

from moorage.api import names, quantity
from moorage.api.nodes import DEPRECATED
from moorage.apiserver.registry.columns.volumes import UNSET
from moorage.apiserver.registry.declare.columns import NAME, column, printer
from moorage.apiserver.registry.declare.rules import (
    NOT_NEGATIVE,
    follows,
    immutable,
    satisfies,
    update,
    validator,
)
from moorage.apiserver.registry.kind import Kind, Obj, Served, Strategy
from moorage.apiserver.registry.validation.scheduling import label_selector_errors
from moorage.apiserver.registry.warnings import node_term_warnings

_TYPE = "io.k8s.api.storage.v1.CSIStorageCapacity"
_TOPOLOGY = "nodeTopology"


validate_capacity = validator(
    (_TOPOLOGY, label_selector_errors),
    ("storageClassName", follows(names.dns_subdomain_errors)),
    ("capacity", satisfies(lambda size: quantity.parse(size).nano >= 0, NOT_NEGATIVE)),
)


def warn_capacity(capacity: Obj, old: Obj | None) -> list[str]:
    """Return the warnings about deprecated node labels in the topology."""
    del old
    topology = capacity.get(_TOPOLOGY, {})
    return [
        *node_term_warnings(topology, _TOPOLOGY),
        *(
            f"{_TOPOLOGY}.matchLabels.{label}: {DEPRECATED[label]}"
            for label in topology.get("matchLabels", ())
            if label in DEPRECATED
        ),
    ]


CSI_STORAGE_CAPACITY = Kind(
    name="CSIStorageCapacity",
    plural="csistoragecapacities",
    served=(Served(group="storage.k8s.io", version="v1", type=_TYPE),),
    strategy=Strategy(
        validate=validate_capacity,
        validate_update=update(validate_capacity, after=immutable(_TOPOLOGY, "storageClassName")),
        warn=warn_capacity,
        needs_revision_on_update=True,
    ),
    printer=printer(
        NAME,
        column("StorageClassName", "storageClassName", of=_TYPE),
        column("Capacity", "capacity", of=_TYPE, absent=UNSET),
    ),
)
