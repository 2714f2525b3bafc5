"""ReplicaSets. Source: apps validation of Kubernetes 1.36."""

from __future__ import annotations

from typing import Any

from moorage.api import labels
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    NONE,
    age_of,
    container_cells,
    name_of,
)
from moorage.apiserver.registry.defaults.pod_template import default_pod_template
from moorage.apiserver.registry.kind import (
    Column,
    Kind,
    Obj,
    PartRules,
    Printer,
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
    above_replicas,
    count_errors,
    immutable_selector_errors,
    selector_errors,
    status_count_errors,
    workload_template_errors,
)
from moorage.apiserver.registry.warnings import warn_workload

_TYPES = "io.k8s.api.apps.v1"


def default_replica_set(replica_set: Obj) -> None:
    """Set the API defaults of a ReplicaSet."""
    spec = replica_set.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    default_pod_template(spec.setdefault("template", {}))


def validate_replica_set(replica_set: Obj) -> list[FieldError]:
    """Return the errors of a new ReplicaSet."""
    spec = replica_set["spec"]
    errors = count_errors(spec, "replicas")
    errors += count_errors(spec, "minReadySeconds")
    return errors + selector_errors(spec) + workload_template_errors(spec)


def validate_replica_set_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of a ReplicaSet."""
    return validate_replica_set(new) + immutable_selector_errors(new, old)


def validate_replica_set_status(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of a status update of a ReplicaSet."""
    del old
    status = new.get("status", {})
    errors = status_count_errors(
        status,
        ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas",
         "observedGeneration"),
    )  # fmt: skip
    for field in ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"):
        if status.get(field, 0) > status.get("replicas", 0):
            errors.append(above_replicas(field, status))
    return errors


def _replica_set_cells(replica_set: Obj, now: float) -> list[Any]:
    spec, status = replica_set.get("spec", {}), replica_set.get("status", {})
    return [
        name_of(replica_set),
        spec.get("replicas", 0),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        age_of(replica_set, now),
        *container_cells(spec.get("template", {})),
        str(labels.from_object(spec.get("selector"))) or NONE,
    ]


_PRINTER = Printer(
    columns=(
        NAME,
        Column("Desired", "integer", documented_by=f"{_TYPES}.ReplicaSetSpec.replicas"),
        Column("Current", "integer", documented_by=f"{_TYPES}.ReplicaSetStatus.replicas"),
        Column("Ready", "integer", documented_by=f"{_TYPES}.ReplicaSetStatus.readyReplicas"),
        AGE,
        CONTAINERS,
        IMAGES,
        Column("Selector", documented_by=f"{_TYPES}.ReplicaSetSpec.selector", priority=1),
    ),
    cells=_replica_set_cells,
)

REPLICA_SET = Kind(
    name="ReplicaSet",
    plural="replicasets",
    served=(Served(group="apps", version="v1", type=f"{_TYPES}.ReplicaSet"),),
    short_names=("rs",),
    categories=("all",),
    strategy=Strategy(
        default=default_replica_set,
        prepare_create=dropping_status("replicas"),
        prepare_update=keep_status,
        validate=validate_replica_set,
        validate_update=validate_replica_set_update,
        parts={"status": PartRules(keep_spec_and_labels, validate_replica_set_status)},
        warn=warn_workload,
        spec_of=get_spec,
    ),
    printer=_PRINTER,
    selectable=(SelectableField("status.replicas", ("status", "replicas"), "0"),),
    subresources={**status_subresource(), **scale_subresource()},
)
