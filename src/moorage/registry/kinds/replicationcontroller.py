"""ReplicationControllers. Source: core validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import (
    Kind,
    PartRules,
    SelectableField,
    Served,
    Strategy,
    get_spec,
    scale_subresource,
    status_subresource,
)
from moorage.registry.preparation import drop_status, keep_spec, keep_status

_TYPES = "io.k8s.api.core.v1"

REPLICATION_CONTROLLER = Kind(
    name="ReplicationController",
    plural="replicationcontrollers",
    served=(Served(group="", version="v1", type=f"{_TYPES}.ReplicationController"),),
    short_names=("rc",),
    categories=("all",),
    strategy=Strategy(
        prepare_create=drop_status,
        prepare_update=keep_status,
        parts={"status": PartRules(prepare=keep_spec)},
        spec_of=get_spec,
        default_propagation="Orphan",
    ),
    selectable=(SelectableField("status.replicas", ("status", "replicas")),),
    subresources={**status_subresource(), **scale_subresource()},
)
