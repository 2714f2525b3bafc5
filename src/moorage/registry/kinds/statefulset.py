"""StatefulSets. Source: apps validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import (
    Kind,
    PartRules,
    Served,
    Strategy,
    get_spec,
    scale_subresource,
    status_subresource,
)
from moorage.registry.preparation import drop_status, keep_spec, keep_status

_TYPES = "io.k8s.api.apps.v1"

STATEFUL_SET = Kind(
    name="StatefulSet",
    plural="statefulsets",
    served=(Served(group="apps", version="v1", type=f"{_TYPES}.StatefulSet"),),
    short_names=("sts",),
    categories=("all",),
    strategy=Strategy(
        prepare_create=drop_status,
        prepare_update=keep_status,
        parts={"status": PartRules(prepare=keep_spec)},
        spec_of=get_spec,
    ),
    subresources={**status_subresource(), **scale_subresource()},
)
