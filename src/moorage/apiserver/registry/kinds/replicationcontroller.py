"""ReplicationControllers. Source: core validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

from moorage.api import labels, names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import label_text
from moorage.apiserver.registry.columns.shared import replica_printer
from moorage.apiserver.registry.declare.rules import (
    each_field,
    not_above,
    not_negative,
    required,
    update,
    validator,
    whole,
)
from moorage.apiserver.registry.defaults import default_pod_template
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    SelectableField,
    Served,
    Strategy,
    get_spec,
    scale_subresource,
    status_subresource,
)
from moorage.apiserver.registry.preparation import dropping_status, keep_spec, keep_status
from moorage.apiserver.registry.validation.pod_spec import template_errors
from moorage.apiserver.registry.validation.workload import always_running_errors, mismatched_labels
from moorage.apiserver.registry.warnings import warn_workload

_TYPE = "io.k8s.api.core.v1.ReplicationController"
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


validate_replication_controller = validator(
    ("spec.selector", required),
    ("spec", whole(_template_errors)),
    ("spec.replicas", not_negative),
    ("spec.minReadySeconds", not_negative),
)
_validate_status = validator(
    *each_field("status", ("replicas", *_COUNTS, "observedGeneration"), not_negative),
    ("status", not_above("replicas", *_COUNTS)),
    ("status", not_above("readyReplicas", "availableReplicas", shown="readyReplicas")),
)

REPLICATION_CONTROLLER = Kind(
    name="ReplicationController",
    plural="replicationcontrollers",
    served=(Served("", "v1", _TYPE),),
    short_names=("rc",),
    categories=("all",),
    strategy=Strategy(
        default=default_replication_controller,
        prepare_create=dropping_status("replicas"),
        prepare_update=keep_status,
        validate=validate_replication_controller,
        validate_update=update(validate_replication_controller),
        parts={"status": PartRules(keep_spec, update(_validate_status))},
        warn=warn_about_replication_controller,
        spec_of=get_spec,
        default_propagation="Orphan",
    ),
    printer=replica_printer(_TYPE, label_text),
    selectable=(SelectableField("status.replicas", ("status", "replicas"), "0"),),
    subresources={**status_subresource(), **scale_subresource()},
)
