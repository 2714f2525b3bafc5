"""DaemonSets. Source: apps validation and strategy of Kubernetes 1.37."""

from __future__ import annotations

import re
from typing import Any

from moorage.api import labels
from moorage.api.errors import BadRequestError, FieldError
from moorage.apiserver.registry.columns.cells import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    NONE,
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
    Served,
    Strategy,
    get_spec,
    status_subresource,
)
from moorage.apiserver.registry.preparation import dropping_status, keep_spec, keep_status
from moorage.apiserver.registry.validation.go_shapes import STRATEGY, Shape, go_struct
from moorage.apiserver.registry.validation.pod_spec import template_errors
from moorage.apiserver.registry.validation.rollout import above_all_errors, amount_errors, number_of
from moorage.apiserver.registry.validation.scheduling import label_selector_errors
from moorage.apiserver.registry.validation.workload import (
    always_running_errors,
    collision_errors,
    count_errors,
    immutable_selector_errors,
    status_count_errors,
    template_label_errors,
)
from moorage.apiserver.registry.warnings import warn_workload

_TYPES = "io.k8s.api.apps.v1"
TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
"""Annotation that counts the templates of a DaemonSet, from 1; the server's."""

_NUMBER = re.compile(r"[+-]?[0-9]+")
_INT64 = range(-(2**63), 2**63)
_STRATEGIES = ("RollingUpdate", "OnDelete")
_ROLLING: Shape = (("maxUnavailable", "MaxUnavailable", 0), ("maxSurge", "MaxSurge", 0))
_STATUS_COUNTS = (
    "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady",
    "observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable",
    "collisionCount",
)  # fmt: skip


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


def validate_daemon_set(daemon_set: Obj) -> list[FieldError]:
    """Return the errors of a new DaemonSet."""
    spec = daemon_set["spec"]
    selector, template = spec.get("selector"), spec["template"]
    errors = [] if selector is None else label_selector_errors(selector, "spec.selector")
    errors += template_label_errors(spec)
    if selector is not None and not any(selector.values()):
        errors.append(
            FieldError.invalid("spec.selector", selector, "empty selector is invalid for daemonset")
        )
    errors += template_errors(template, "spec.template")
    errors += always_running_errors(template, "DaemonSet")
    errors += count_errors(spec, "minReadySeconds")
    errors += _strategy_errors(spec["updateStrategy"], "spec.updateStrategy")
    return errors + count_errors(spec, "revisionHistoryLimit")


def validate_daemon_set_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of a DaemonSet."""
    return immutable_selector_errors(new, old) + validate_daemon_set(new)


def validate_daemon_set_status(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of a status update of a DaemonSet."""
    errors = status_count_errors(new.get("status", {}), _STATUS_COUNTS)
    return errors + collision_errors(new, old)


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


def _daemon_set_cells(daemon_set: Obj, now: float) -> list[Any]:
    spec, status = daemon_set.get("spec", {}), daemon_set.get("status", {})
    template = spec.get("template", {})
    return [
        name_of(daemon_set),
        status.get("desiredNumberScheduled", 0),
        status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0),
        status.get("updatedNumberScheduled", 0),
        status.get("numberAvailable", 0),
        label_text(template.get("spec", {}).get("nodeSelector")),
        age_of(daemon_set, now),
        *container_cells(template),
        str(labels.from_object(spec.get("selector"))) or NONE,
    ]


_STATUS = f"{_TYPES}.DaemonSetStatus"
_PRINTER = Printer(
    columns=(
        NAME,
        Column("Desired", "integer", documented_by=f"{_STATUS}.desiredNumberScheduled"),
        Column("Current", "integer", documented_by=f"{_STATUS}.currentNumberScheduled"),
        Column("Ready", "integer", documented_by=f"{_STATUS}.numberReady"),
        Column("Up-to-date", "integer", documented_by=f"{_STATUS}.updatedNumberScheduled"),
        Column("Available", "integer", documented_by=f"{_STATUS}.numberAvailable"),
        Column("Node Selector", documented_by="io.k8s.api.core.v1.PodSpec.nodeSelector"),
        AGE,
        CONTAINERS,
        IMAGES,
        Column("Selector", documented_by=f"{_TYPES}.DaemonSetSpec.selector", priority=1),
    ),
    cells=_daemon_set_cells,
)

DAEMON_SET = Kind(
    name="DaemonSet",
    plural="daemonsets",
    served=(Served(group="apps", version="v1", type=f"{_TYPES}.DaemonSet"),),
    short_names=("ds",),
    categories=("all",),
    strategy=Strategy(
        default=default_daemon_set,
        prepare_create=prepare_daemon_set_create,
        prepare_update=prepare_daemon_set_update,
        validate=validate_daemon_set,
        validate_update=validate_daemon_set_update,
        parts={"status": PartRules(prepare_daemon_set_status, validate_daemon_set_status)},
        warn=warn_workload,
        spec_of=get_spec,
    ),
    printer=_PRINTER,
    subresources=status_subresource(),
)
