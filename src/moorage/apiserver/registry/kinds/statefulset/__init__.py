"""StatefulSets. Source: apps validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

from moorage.api import names
from moorage.apiserver.registry.kind import (
    Kind,
    PartRules,
    Served,
    Strategy,
    get_spec,
    scale_subresource,
    status_subresource,
)
from moorage.apiserver.registry.kinds.statefulset.columns import PRINTER
from moorage.apiserver.registry.kinds.statefulset.defaults import default_stateful_set
from moorage.apiserver.registry.kinds.statefulset.validation import (
    validate_stateful_set,
    validate_stateful_set_status,
    validate_stateful_set_update,
)
from moorage.apiserver.registry.kinds.statefulset.warnings import warn_about_stateful_set
from moorage.apiserver.registry.preparation import dropping_status, keep_spec, keep_status

_TYPES = "io.k8s.api.apps.v1"

STATEFUL_SET = Kind(
    name="StatefulSet",
    plural="statefulsets",
    served=(Served(group="apps", version="v1", type=f"{_TYPES}.StatefulSet"),),
    short_names=("sts",),
    categories=("all",),
    strategy=Strategy(
        default=default_stateful_set,
        prepare_create=dropping_status("replicas", "availableReplicas"),
        prepare_update=keep_status,
        validate=validate_stateful_set,
        validate_update=validate_stateful_set_update,
        parts={"status": PartRules(keep_spec, validate_stateful_set_status)},
        warn=warn_about_stateful_set,
        name_errors=names.dns_label_errors,
        spec_of=get_spec,
    ),
    printer=PRINTER,
    subresources={**status_subresource(), **scale_subresource()},
)
