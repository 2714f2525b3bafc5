"""ReplicationControllers. Source: core validation and strategy of Kubernetes 1.37."""

from __future__ import annotations

from typing import Any

from moorage.api import labels, names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    age_of,
    container_cells,
    label_text,
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
from moorage.apiserver.registry.preparation import dropping_status, keep_spec, keep_status
from moorage.apiserver.registry.validation.pod_spec import template_errors
from moorage.apiserver.registry.validation.workload import (
    above_replicas,
    always_running_errors,
    count_errors,
    mismatched_labels,
    status_count_errors,
)
from moorage.apiserver.registry.warnings import warn_workload

_TYPES = "io.k8s.api.core.v1"
_COUNTS = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")


def default_replication_controller(controller: Obj) -> None:
    """Set the API defaults; the template's labels are the selector and the object's own labels."""
    spec = controller.setdefault("spec", {})
    if "template" in spec:
        default_pod_template(spec["template"])
    if own := spec.get("template", {}).get("metadata", {}).get("labels"):
        for holder, field in ((spec, "selector"), (controller["metadata"], "labels")):
            if not holder.get(field):
                holder[field] = dict(own)
    spec.setdefault("replicas", 1)


def validate_replication_controller(controller: Obj) -> list[FieldError]:
    """Return the errors of a new ReplicationController."""
    spec = controller["spec"]
    errors = [] if spec.get("selector") else [FieldError.required("spec.selector")]
    errors += _template_errors(spec)
    return errors + count_errors(spec, "replicas") + count_errors(spec, "minReadySeconds")


def validate_replication_controller_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update, which are those of the new ReplicationController."""
    del old
    return validate_replication_controller(new)


def validate_replication_controller_status(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of a status update of a ReplicationController."""
    del old
    status = new.get("status", {})
    errors = status_count_errors(status, ("replicas", *_COUNTS, "observedGeneration"))
    for field in _COUNTS:
        if status.get(field, 0) > status.get("replicas", 0):
            errors.append(above_replicas(field, status))
    available = status.get("availableReplicas", 0)
    if available > status.get("readyReplicas", 0):
        errors.append(
            FieldError.invalid(
                "status.availableReplicas", available, "cannot be greater than readyReplicas"
            )
        )
    return errors


def _template_errors(spec: Obj) -> list[FieldError]:
    template = spec.get("template")
    if template is None:
        return [FieldError.required("spec.template")]
    own = template.get("metadata", {}).get("labels", {})
    is_matched = labels.from_labels(spec.get("selector", {})).matches(own)
    errors = [] if is_matched else [mismatched_labels(own)]
    errors += template_errors(template, "spec.template")
    return errors + always_running_errors(template, "ReplicationController")


def warn_about_replication_controller(controller: Obj, old: Obj | None) -> list[str]:
    """Return the warnings about the name of a new object and about the template."""
    details = names.dns_label_errors(controller["metadata"].get("name", "")) if old is None else []
    warnings = []
    if details:
        warnings.append(
            "metadata.name: this is used in Pod names and hostnames, which can result in "
            f"surprising behavior; a DNS label is recommended: [{' '.join(details)}]"
        )
    return warnings + warn_workload(controller, old)


def _replication_controller_cells(controller: Obj, now: float) -> list[Any]:
    spec, status = controller.get("spec", {}), controller.get("status", {})
    return [
        name_of(controller),
        spec.get("replicas", 0),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        age_of(controller, now),
        *container_cells(spec.get("template", {})),
        label_text(spec.get("selector")),
    ]


_SPEC, _STATUS = f"{_TYPES}.ReplicationControllerSpec", f"{_TYPES}.ReplicationControllerStatus"
_PRINTER = Printer(
    columns=(
        NAME,
        Column("Desired", "integer", documented_by=f"{_SPEC}.replicas"),
        Column("Current", "integer", documented_by=f"{_STATUS}.replicas"),
        Column("Ready", "integer", documented_by=f"{_STATUS}.readyReplicas"),
        AGE,
        CONTAINERS,
        IMAGES,
        Column("Selector", documented_by=f"{_SPEC}.selector", priority=1),
    ),
    cells=_replication_controller_cells,
)

REPLICATION_CONTROLLER = Kind(
    name="ReplicationController",
    plural="replicationcontrollers",
    served=(Served(group="", version="v1", type=f"{_TYPES}.ReplicationController"),),
    short_names=("rc",),
    categories=("all",),
    strategy=Strategy(
        default=default_replication_controller,
        prepare_create=dropping_status("replicas"),
        prepare_update=keep_status,
        validate=validate_replication_controller,
        validate_update=validate_replication_controller_update,
        parts={"status": PartRules(keep_spec, validate_replication_controller_status)},
        warn=warn_about_replication_controller,
        spec_of=get_spec,
        default_propagation="Orphan",
    ),
    printer=_PRINTER,
    selectable=(SelectableField("status.replicas", ("status", "replicas"), "0"),),
    subresources={**status_subresource(), **scale_subresource()},
)
