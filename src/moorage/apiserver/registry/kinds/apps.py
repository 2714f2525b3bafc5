"""ControllerRevisions, DaemonSets and ReplicaSets. Source: apps validation of Kubernetes 1.36."""

from __future__ import annotations

import re

from moorage.api.errors import BadRequestError, FieldError
from moorage.apiserver.registry.columns.cells import NONE, label_text
from moorage.apiserver.registry.columns.shared import replica_printer
from moorage.apiserver.registry.declare.columns import (
    AGE,
    NAME,
    column,
    containers_of,
    printer,
    selector_column,
)
from moorage.apiserver.registry.declare.defaults import defaults
from moorage.apiserver.registry.declare.rules import (
    always,
    each_field,
    immutable,
    not_above,
    not_negative,
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
from moorage.apiserver.registry.preparation import (
    dropping_status,
    keep_spec,
    keep_spec_and_labels,
    keep_status,
)
from moorage.apiserver.registry.validation.go_shapes import STRATEGY, Shape, go_struct
from moorage.apiserver.registry.validation.pod_spec import template_errors
from moorage.apiserver.registry.validation.scheduling import label_selector_errors
from moorage.apiserver.registry.validation.workload import (
    above_all_errors,
    amount_errors,
    collision_errors,
    immutable_selector_errors,
    never_ending,
    number_of,
    selector_errors,
    template_label_errors,
    workload_template_errors,
)
from moorage.apiserver.registry.warnings import warn_workload

_REVISION_TYPE = "io.k8s.api.apps.v1.ControllerRevision"
_TYPES = "io.k8s.api.apps.v1"
TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
"""Annotation that counts the templates of a DaemonSet, from 1; the server's."""
_STRATEGIES = ("RollingUpdate", "OnDelete")
_ROLLING: Shape = (("maxUnavailable", "MaxUnavailable", 0), ("maxSurge", "MaxSurge", 0))
_STATUS_COUNTS = (
    "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady",
    "observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable",
    "collisionCount",
)  # fmt: skip
_STATUS = f"{_TYPES}.DaemonSetStatus"
_REPLICA_SET = "io.k8s.api.apps.v1.ReplicaSet"
_COUNTS = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")


def _data_errors(data: object, path: str) -> tuple[FieldError, ...]:
    """Report data that is no JSON object.

    Empty data counts as absent, as it does in the canonical form; upstream accepts `{}`.
    """
    if isinstance(data, dict):
        return ()
    problem = "data is mandatory" if data is None else "data must be a valid JSON object"
    return (FieldError.required(path, problem),)


def _controller(controller_revision: Obj) -> str:
    """Return the object's controller as `statefulset.apps/web`."""
    for owner in controller_revision["metadata"].get("ownerReferences", ()):
        if owner.get("controller"):
            group, has_group, _ = owner.get("apiVersion", "").rpartition("/")
            kind = owner.get("kind", "").lower()
            return f"{kind}.{group}/{owner['name']}" if has_group else f"{kind}/{owner['name']}"
    return NONE


_REVISION = ("revision", not_negative)

CONTROLLER_REVISION = Kind(
    name="ControllerRevision",
    plural="controllerrevisions",
    served=(Served("apps", "v1", _REVISION_TYPE),),
    strategy=Strategy(
        validate=validator(_REVISION, ("data", always(_data_errors))),
        validate_update=update(validator(_REVISION), after=immutable("data")),
    ),
    printer=printer(
        NAME,
        column("Controller", _controller, description="Controller of the object"),
        column("Revision", "revision", of=_REVISION_TYPE, absent=0),
        AGE,
    ),
)

_NUMBER = re.compile(r"[+-]?[0-9]+")
_INT64 = range(-(2**63), 2**63)


def default_daemon_set(daemon_set: Obj) -> None:
    """Set the API defaults of a DaemonSet.

    Raises BadRequestError when the annotation with the template's generation is not a number.
    """
    _check_template_generation(daemon_set)
    spec = daemon_set.setdefault("spec", {})
    strategy = spec.setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    spec.setdefault("revisionHistoryLimit", 10)
    default_pod_template(spec.setdefault("template", {}))


def _check_template_generation(daemon_set: Obj) -> None:
    text = daemon_set["metadata"].get("annotations", {}).get(TEMPLATE_GENERATION)
    if text is None:
        return
    problem = ""
    if not _NUMBER.fullmatch(text):
        problem = "invalid syntax"
    elif len(text) > 1000 or int(text) not in _INT64:
        problem = "value out of range"
    if problem:
        raise BadRequestError(
            'DaemonSet in version "v1" cannot be handled as a DaemonSet: '
            f'strconv.ParseInt: parsing "{text}": {problem}'
        )


_reset_status = dropping_status(
    "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"
)


def prepare_daemon_set_create(daemon_set: Obj) -> None:
    """Reset the status; the generation of the template is 1 at least."""
    _reset_status(daemon_set)
    _set_template_generation(daemon_set, max(1, _template_generation(daemon_set)))


def prepare_daemon_set_update(new: Obj, old: Obj) -> None:
    """Keep the status, and count a changed template."""
    keep_status(new, old)
    is_changed = new["spec"].get("template") != old["spec"].get("template")
    _set_template_generation(new, _template_generation(old) + is_changed)


def prepare_daemon_set_status(new: Obj, old: Obj) -> None:
    """Keep the specification, which the generation of the template belongs to."""
    keep_spec(new, old)
    _set_template_generation(new, _template_generation(old))


def _template_generation(daemon_set: Obj) -> int:
    return int(daemon_set["metadata"].get("annotations", {}).get(TEMPLATE_GENERATION, 0))


def _set_template_generation(daemon_set: Obj, generation: int) -> None:
    annotations = daemon_set["metadata"].get("annotations", {})
    daemon_set["metadata"]["annotations"] = {**annotations, TEMPLATE_GENERATION: str(generation)}


def _selector_errors(spec: Obj) -> list[FieldError]:
    selector = spec.get("selector")
    errors = [] if selector is None else label_selector_errors(selector, "spec.selector")
    errors += template_label_errors(spec)
    if selector is not None and not any(selector.values()):
        errors.append(
            FieldError.invalid("spec.selector", selector, "empty selector is invalid for daemonset")
        )
    return errors


def _strategy_errors(strategy: Obj, path: str) -> list[FieldError]:
    kind = strategy["type"]
    if kind == "RollingUpdate":
        return _rolling_errors(strategy["rollingUpdate"], f"{path}.rollingUpdate")
    if kind in _STRATEGIES:
        return []
    shown = go_struct(strategy, STRATEGY)
    if "rollingUpdate" in strategy:
        shown["RollingUpdate"] = go_struct(strategy["rollingUpdate"], _ROLLING)
    return [FieldError.not_supported(path, shown, _STRATEGIES)]


def _rolling_errors(rolling: Obj, path: str) -> list[FieldError]:
    fields = ("maxUnavailable", "maxSurge")
    errors: list[FieldError] = []
    for check in (amount_errors, above_all_errors):
        for field in fields:
            errors += check(rolling[field], f"{path}.{field}")
    has_unavailable, has_surge = (number_of(rolling[field]) != 0 for field in fields)
    if has_unavailable and has_surge:
        errors.append(
            FieldError.invalid(
                f"{path}.maxSurge",
                rolling["maxSurge"],
                "may not be set when maxUnavailable is non-zero",
            )
        )
    elif not has_unavailable and not has_surge:
        errors.append(
            FieldError.required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")
        )
    return errors


validate_daemon_set = validator(
    ("spec", whole(_selector_errors)),
    ("spec.template", template_errors, never_ending("DaemonSet")),
    ("spec.minReadySeconds", not_negative),
    ("spec.updateStrategy", _strategy_errors),
    ("spec.revisionHistoryLimit", not_negative),
)

_validate_daemon_set_status = update(
    validator(*each_field("status", _STATUS_COUNTS, not_negative)), after=collision_errors
)

DAEMON_SET = Kind(
    name="DaemonSet",
    plural="daemonsets",
    served=(Served("apps", "v1", f"{_TYPES}.DaemonSet"),),
    short_names=("ds",),
    categories=("all",),
    strategy=Strategy(
        default=default_daemon_set,
        prepare_create=prepare_daemon_set_create,
        prepare_update=prepare_daemon_set_update,
        validate=validate_daemon_set,
        validate_update=update(validate_daemon_set, before=immutable_selector_errors),
        parts={"status": PartRules(prepare_daemon_set_status, _validate_daemon_set_status)},
        warn=warn_workload,
        spec_of=get_spec,
    ),
    printer=printer(
        NAME,
        column("Desired", "status.desiredNumberScheduled", "integer", of=_STATUS),
        column("Current", "status.currentNumberScheduled", "integer", of=_STATUS),
        column("Ready", "status.numberReady", "integer", of=_STATUS),
        column("Up-to-date", "status.updatedNumberScheduled", "integer", of=_STATUS),
        column("Available", "status.numberAvailable", "integer", of=_STATUS),
        column(
            "Node Selector",
            "spec.template.spec.nodeSelector",
            of="io.k8s.api.core.v1.PodSpec",
            absent=NONE,
            show=label_text,
        ),
        AGE,
        *containers_of(),
        selector_column(f"{_TYPES}.DaemonSetSpec"),
    ),
    subresources=status_subresource(),
)

validate_replica_set = validator(
    ("spec.replicas", not_negative),
    ("spec.minReadySeconds", not_negative),
    ("spec", whole(selector_errors), whole(workload_template_errors)),
)

_validate_replica_set_status = validator(
    *each_field("status", ("replicas", *_COUNTS, "observedGeneration"), not_negative),
    ("status", not_above("replicas", *_COUNTS)),
)

REPLICA_SET = Kind(
    name="ReplicaSet",
    plural="replicasets",
    served=(Served("apps", "v1", _REPLICA_SET),),
    short_names=("rs",),
    categories=("all",),
    strategy=Strategy(
        default=defaults(("spec.replicas", 1), ("spec.template", default_pod_template)),
        prepare_create=dropping_status("replicas"),
        prepare_update=keep_status,
        validate=validate_replica_set,
        validate_update=update(validate_replica_set, after=immutable_selector_errors),
        parts={"status": PartRules(keep_spec_and_labels, update(_validate_replica_set_status))},
        warn=warn_workload,
        spec_of=get_spec,
    ),
    printer=replica_printer(_REPLICA_SET),
    selectable=(SelectableField("status.replicas", ("status", "replicas"), "0"),),
    subresources={**status_subresource(), **scale_subresource()},
)
