"""Jobs. Source: batch validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from moorage.api import labels, names
from moorage.api.clock import parse_time
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import duration_text
from moorage.apiserver.registry.declare.columns import (
    AGE,
    NAME,
    Shown,
    column,
    containers_of,
    printer,
    selector_column,
)
from moorage.apiserver.registry.defaults import default_job_template_spec
from moorage.apiserver.registry.kind import (
    Column,
    Kind,
    Obj,
    PartRules,
    SelectableField,
    Served,
    Strategy,
    get_spec,
    status_subresource,
)
from moorage.apiserver.registry.kinds.job.status import has_condition, validate_job_status
from moorage.apiserver.registry.preparation import drop_status, keep_spec, keep_status
from moorage.apiserver.registry.validation.jobs import (
    is_indexed,
    job_spec_errors,
    job_spec_warnings,
)
from moorage.apiserver.registry.validation.scheduling import label_selector_errors
from moorage.apiserver.registry.validation.workload import template_label_errors

LEGACY_UID_LABEL = "controller-uid"
LEGACY_NAME_LABEL = "job-name"
UID_LABEL = "batch.kubernetes.io/controller-uid"
NAME_LABEL = "batch.kubernetes.io/job-name"
_MAX_INT32 = 2**31 - 1
_TYPES = "io.k8s.api.batch.v1"
_IMMUTABLE = (
    "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy",
)  # fmt: skip
_FIELD_IS_IMMUTABLE = "field is immutable"
_SCHEDULING_DIRECTIVES = ("nodeSelector", "tolerations", "schedulingGates")


def default_job(job: Obj) -> None:
    """Set the API defaults of a Job; the template's labels become its own if it has none."""
    spec = job.setdefault("spec", {})
    if "parallelism" not in spec:
        spec["parallelism"] = 1
        spec.setdefault("completions", 1)
    if "backoffLimit" not in spec:
        spec["backoffLimit"] = _MAX_INT32 if "backoffLimitPerIndex" in spec else 6
    default_job_template_spec(spec)
    own = spec["template"].get("metadata", {}).get("labels")
    if own and not job["metadata"].get("labels"):
        job["metadata"]["labels"] = dict(own)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    replacement = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    spec.setdefault("podReplacementPolicy", replacement)
    spec.setdefault("manualSelector", False)


def prepare_job_create(job: Obj) -> None:
    """Reset the status; generate the selector and the labels of the pods unless asked not to.

    Labels and selectors that the user wrote stay: validation refuses those that conflict.
    """
    drop_status(job)
    spec = job["spec"]
    _drop_disabled_fields(spec)
    if not spec["manualSelector"]:
        _generate_selector(job)


def prepare_job_update(new: Obj, old: Obj) -> None:
    """Keep the status of an update."""
    keep_status(new, old)
    _drop_disabled_fields(new["spec"])


def _drop_disabled_fields(spec: Obj) -> None:
    # The feature gate WorkloadWithJob is alpha.
    spec.pop("scheduling", None)


def _generate_selector(job: Obj) -> None:
    spec, meta = job["spec"], job["metadata"]
    labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
    for label in (LEGACY_NAME_LABEL, NAME_LABEL):
        labels.setdefault(label, meta.get("name", ""))
    for label in (LEGACY_UID_LABEL, UID_LABEL):
        labels.setdefault(label, meta["uid"])
    matched = spec.setdefault("selector", {}).setdefault("matchLabels", {})
    matched.setdefault(UID_LABEL, meta["uid"])


def _state(job: Obj) -> str:
    status = job.get("status", {})
    for condition in ("Complete", "Failed"):
        if has_condition(status, condition):
            return condition
    if "deletionTimestamp" in job["metadata"]:
        return "Terminating"
    for condition in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if has_condition(status, condition):
            return condition
    return "Running"


def _completions(job: Obj) -> str:
    spec, succeeded = job.get("spec", {}), job.get("status", {}).get("succeeded", 0)
    if "completions" in spec:
        return f"{succeeded}/{spec['completions']}"
    parallelism = spec.get("parallelism", 0)
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _duration(job: Obj, now: float) -> str:
    status = job.get("status", {})
    if "startTime" not in status:
        return ""
    end = parse_time(status["completionTime"]).timestamp() if "completionTime" in status else now
    return duration_text(end - parse_time(status["startTime"]).timestamp())


PRINTER = printer(
    NAME,
    column("Status", _state, description="Status of the job."),
    column("Completions", _completions, documented_by=f"{_TYPES}.JobStatus.succeeded"),
    Shown(Column("Duration", description="Time required to complete the job."), _duration),
    AGE,
    *containers_of(),
    selector_column(f"{_TYPES}.JobSpec"),
)


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


JOB = Kind(
    name="Job",
    plural="jobs",
    served=(Served("batch", "v1", f"{_TYPES}.Job"),),
    categories=("all",),
    strategy=Strategy(
        default=default_job,
        prepare_create=prepare_job_create,
        prepare_update=prepare_job_update,
        validate=validate_job,
        validate_update=validate_job_update,
        parts={"status": PartRules(keep_spec, validate_job_status)},
        warn=warn_about_job,
        spec_of=get_spec,
        default_propagation="Orphan",
    ),
    printer=PRINTER,
    selectable=(SelectableField("status.successful", ("status", "succeeded"), default="0"),),
    subresources=status_subresource(),
)
