"""Validation of Jobs. Source: batch validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from moorage.api import labels, names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.job.preparation import (
    LEGACY_NAME_LABEL,
    LEGACY_UID_LABEL,
    NAME_LABEL,
    UID_LABEL,
)
from moorage.apiserver.registry.kinds.job.status import has_condition
from moorage.apiserver.registry.validation.jobs import (
    is_indexed,
    job_spec_errors,
    job_spec_warnings,
)
from moorage.apiserver.registry.validation.scheduling import label_selector_errors
from moorage.apiserver.registry.validation.workload import template_label_errors

_IMMUTABLE = (
    "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy",
)  # fmt: skip
_FIELD_IS_IMMUTABLE = "field is immutable"
_SCHEDULING_DIRECTIVES = ("nodeSelector", "tolerations", "schedulingGates")


def validate_job(job: Obj) -> list[FieldError]:
    """Return the errors of a new Job."""
    spec = job["spec"]
    return [
        *_generated_selector_errors(job),
        *_spec_errors(spec),
        *_host_name_errors(job),
    ]


def validate_job_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update; most of the specification is immutable.

    The completions of an Indexed Job change with its parallelism. While a Job is suspended and has
    no active pods, scheduling directives and resources of its template may change.
    """
    spec, was = new["spec"], old["spec"]
    errors = [*_spec_errors(spec), *_completions_errors(spec, was)]
    errors += _immutable_errors(spec, was, "selector")
    errors += _template_errors(new, old)
    for field in _IMMUTABLE:
        errors += _immutable_errors(spec, was, field)
    return errors + list(_host_name_errors(new))


def _spec_errors(spec: Obj) -> list[FieldError]:
    errors = list(job_spec_errors(spec, "spec"))
    selector = spec.get("selector")
    if selector is None:
        errors.append(FieldError.required("spec.selector"))
    else:
        errors += label_selector_errors(selector, "spec.selector")
    return errors + template_label_errors(spec)


def _generated_selector_errors(job: Obj) -> Iterator[FieldError]:
    """Report labels and a selector that conflict with the generated ones."""
    spec, meta = job["spec"], job["metadata"]
    if spec["manualSelector"] or spec.get("selector") is None:
        return
    own = spec["template"].get("metadata", {}).get("labels", {})
    expected = {
        LEGACY_UID_LABEL: meta["uid"],
        LEGACY_NAME_LABEL: meta.get("name", ""),
        UID_LABEL: meta["uid"],
        NAME_LABEL: meta.get("name", ""),
    }
    for label, value in expected.items():
        if own.get(label) != value:
            yield FieldError.invalid(
                f"spec.template.metadata.labels[{label}]", own, f"must be '{value}'"
            )
    try:
        selector = labels.from_object(spec["selector"])
    except ValueError:
        return  # Reported by the validation of the selector.
    if not selector.matches(expected):
        yield FieldError.invalid("spec.selector", spec["selector"], "`selector` not auto-generated")


def _host_name_errors(job: Obj) -> Iterator[FieldError]:
    """Report a name that is no host name once the highest completion index is appended."""
    spec, name = job["spec"], job["metadata"].get("name", "")
    if not is_indexed(spec) or spec.get("completions", 0) <= 0:
        return
    host_name = f"{name}-{spec['completions'] - 1}"
    if names.dns_label_errors(host_name):
        yield FieldError.invalid(
            "metadata.name",
            name,
            f"will not able to create pod with invalid DNS label: {host_name}",
        )


def _completions_errors(spec: Obj, was: Obj) -> list[FieldError]:
    if not is_indexed(spec):
        return _immutable_errors(spec, was, "completions")
    completions = spec.get("completions")
    changed = completions is not None and completions != was.get("completions")
    if not changed or completions == spec["parallelism"]:
        return []
    detail = "can only be modified in tandem with spec.parallelism"
    return [FieldError.invalid("spec.completions", completions, detail)]


def _immutable_errors(spec: Obj, was: Obj, field: str) -> list[FieldError]:
    if spec.get(field) == was.get(field):
        return []
    return [FieldError.invalid(f"spec.{field}", spec.get(field), _FIELD_IS_IMMUTABLE)]


def _template_errors(new: Obj, old: Obj) -> list[FieldError]:
    template, was = new["spec"]["template"], old["spec"]["template"]
    if template == was:
        return []
    allowed = copy.deepcopy(was)
    if _may_change_template(old):
        _take_scheduling_directives(allowed, template)
        _take_resources(allowed["spec"], template["spec"])
    if allowed == template:
        return []
    path, shown = "spec.template", template
    if old["spec"]["suspend"] and _may_change_template(old):
        path, shown = "spec.template.spec", template["spec"]
    return [FieldError.invalid(path, shown, _FIELD_IS_IMMUTABLE)]


def _may_change_template(job: Obj) -> bool:
    """Return whether the Job is suspended and has no pods that the old template made."""
    status = job.get("status", {})
    is_idle = "startTime" not in status or has_condition(status, "Suspended")
    return job["spec"]["suspend"] and is_idle and not status.get("active")


def _take_scheduling_directives(allowed: Obj, template: Obj) -> None:
    """Copy what a suspended Job's template may change: where its pods run, labels, annotations."""
    for field in ("labels", "annotations"):
        _take(allowed.setdefault("metadata", {}), template.get("metadata", {}), field)
    if not allowed["metadata"] and "metadata" not in template:
        del allowed["metadata"]
    for field in _SCHEDULING_DIRECTIVES:
        _take(allowed["spec"], template["spec"], field)
    affinity = allowed["spec"].setdefault("affinity", {})
    _take(affinity, template["spec"].get("affinity", {}), "nodeAffinity")
    if not affinity and "affinity" not in template["spec"]:
        del allowed["spec"]["affinity"]


def _take_resources(allowed: Obj, spec: Obj) -> None:
    """Copy the resources of containers that have kept their place and name."""
    for field in ("containers", "initContainers"):
        mine, theirs = allowed.get(field, []), spec.get(field, [])
        if len(mine) != len(theirs):
            continue
        for container, changed in zip(mine, theirs, strict=True):
            if container["name"] == changed["name"]:
                _take(container, changed, "resources")


def _take(target: Obj, source: Obj, field: str) -> None:
    if field in source:
        target[field] = source[field]
    else:
        target.pop(field, None)


def warn_about_job(job: Obj, old: Obj | None) -> list[str]:
    """Return the warnings about the name, the numbers and the template."""
    warnings: list[str] = []
    if old is None and (details := names.dns_label_errors(job["metadata"].get("name", ""))):
        warnings.append(names.label_recommendation(details))
    if old is not None and job["spec"] == old["spec"]:
        return warnings
    was = None if old is None else old["spec"]
    return warnings + job_spec_warnings(job["spec"], was, "spec")
