"""ReplicaSets. Source: apps validation of Kubernetes 1.36."""

from __future__ import annotations

from moorage.apiserver.registry.columns.replicas import replica_printer
from moorage.apiserver.registry.declare.defaults import defaults
from moorage.apiserver.registry.declare.rules import (
    each_field,
    not_above,
    not_negative,
    update,
    validator,
    whole,
)
from moorage.apiserver.registry.defaults.pod_template import default_pod_template
from moorage.apiserver.registry.kind import (
    Kind,
    PartRules,
    SelectableField,
    Served,
    Strategy,
    get_spec,
    scale_subresource,
    status_subresource,
)
from moorage.apiserver.registry.preparation import (
    dropping_status,
    keep_spec_and_labels,
    keep_status,
)
from moorage.apiserver.registry.validation.workload import (
    immutable_selector_errors,
    selector_errors,
    workload_template_errors,
)
from moorage.apiserver.registry.warnings import warn_workload

_TYPE = "io.k8s.api.apps.v1.ReplicaSet"
_COUNTS = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")

validate_replica_set = validator(
    ("spec.replicas", not_negative),
    ("spec.minReadySeconds", not_negative),
    ("spec", whole(selector_errors), whole(workload_template_errors)),
)
_validate_status = validator(
    *each_field("status", ("replicas", *_COUNTS, "observedGeneration"), not_negative),
    ("status", not_above("replicas", *_COUNTS)),
)

REPLICA_SET = Kind(
    name="ReplicaSet",
    plural="replicasets",
    served=(Served(group="apps", version="v1", type=_TYPE),),
    short_names=("rs",),
    categories=("all",),
    strategy=Strategy(
        default=defaults(("spec.replicas", 1), ("spec.template", default_pod_template)),
        prepare_create=dropping_status("replicas"),
        prepare_update=keep_status,
        validate=validate_replica_set,
        validate_update=update(validate_replica_set, after=immutable_selector_errors),
        parts={"status": PartRules(keep_spec_and_labels, update(_validate_status))},
        warn=warn_workload,
        spec_of=get_spec,
    ),
    printer=replica_printer(_TYPE),
    selectable=(SelectableField("status.replicas", ("status", "replicas"), "0"),),
    subresources={**status_subresource(), **scale_subresource()},
)
