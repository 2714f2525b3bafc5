"""CronJobs. Source: batch validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

import re
from collections.abc import Iterator

from moorage.api import names
from moorage.api.cron import ScheduleError, UnknownTimeZoneError, load_zone, parse_schedule
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import NONE
from moorage.apiserver.registry.declare.columns import (
    AGE,
    NAME,
    age_column,
    column,
    containers_of,
    printer,
    selector_column,
)
from moorage.apiserver.registry.defaults import default_job_template_spec
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    Served,
    Strategy,
    get_spec,
    status_subresource,
)
from moorage.apiserver.registry.preparation import drop_status, keep_spec, keep_status
from moorage.apiserver.registry.validation.jobs import job_spec_errors, job_spec_warnings
from moorage.apiserver.registry.validation.workload import count_errors

_POLICIES = ("Allow", "Forbid", "Replace")
_LONGEST_NAME = 52
"""Longest name: that of a Job, less `-` and the minute that it is scheduled for."""
_TEMPLATE = "spec.jobTemplate.spec"
_TYPES = "io.k8s.api.batch.v1"
_SPEC, _STATUS = f"{_TYPES}.CronJobSpec", f"{_TYPES}.CronJobStatus"
_ZONE_PART = re.compile(r"[A-Za-z.\-_0-9+]{1,14}")


def validate_cron_job(cron_job: Obj) -> list[FieldError]:
    """Return the errors of a new CronJob."""
    errors = list(_spec_errors(cron_job["spec"], None))
    name = cron_job["metadata"].get("name", "")
    if len(name) > _LONGEST_NAME:
        detail = f"must be no more than {_LONGEST_NAME} characters"
        errors.append(FieldError.invalid("metadata.name", name, detail))
    return errors


def validate_cron_job_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update; a zone that has not changed may be unknown meanwhile."""
    return list(_spec_errors(new["spec"], old["spec"]))


def _spec_errors(spec: Obj, was: Obj | None) -> Iterator[FieldError]:
    yield from _schedule_errors(spec, was)
    yield from count_errors(spec, "startingDeadlineSeconds")
    if was is None or spec.get("timeZone") != was.get("timeZone"):
        yield from _zone_errors(spec)
    policy = spec.get("concurrencyPolicy", "")
    if policy not in _POLICIES:
        yield FieldError.not_supported("spec.concurrencyPolicy", policy, _POLICIES)
    yield from _template_errors(spec.get("jobTemplate", {}).get("spec", {}))
    yield from count_errors(spec, "successfulJobsHistoryLimit")
    yield from count_errors(spec, "failedJobsHistoryLimit")


def _schedule_errors(spec: Obj, was: Obj | None) -> Iterator[FieldError]:
    schedule, path = spec.get("schedule", ""), "spec.schedule"
    if not schedule:
        yield FieldError.required(path)
        return
    try:
        parse_schedule(schedule)
    except ScheduleError as error:
        yield FieldError.invalid(path, schedule, str(error))
    if "TZ" not in schedule:
        return
    # Until 1.29 a schedule could name its zone, and stored ones still do.
    if was is None or "TZ" not in was.get("schedule", ""):
        detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        yield FieldError.invalid(path, schedule, detail)
    elif "timeZone" in spec:
        detail = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
        yield FieldError.invalid(path, schedule, detail)


def _zone_errors(spec: Obj) -> Iterator[FieldError]:
    zone, path = spec.get("timeZone"), "spec.timeZone"
    if zone is None:
        return
    if not zone:
        yield FieldError.invalid(path, zone, "timeZone must be nil or non-empty string")
        return
    for part in zone.split("/"):
        is_odd = part in (".", "..") or part.startswith("-") or not _ZONE_PART.fullmatch(part)
        if is_odd:
            yield FieldError.invalid(path, zone, f"unknown time zone {zone}")
            return
    if zone.lower() == "local":
        yield FieldError.invalid(
            path,
            zone,
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
        )
    try:
        load_zone(zone)
    except UnknownTimeZoneError as error:
        yield FieldError.invalid(path, zone, str(error))


def _template_errors(spec: Obj) -> Iterator[FieldError]:
    yield from job_spec_errors(spec, _TEMPLATE)
    if "selector" in spec:
        yield FieldError.invalid(
            f"{_TEMPLATE}.selector", spec["selector"], "`selector` will be auto-generated"
        )
    if spec.get("manualSelector"):
        yield FieldError.not_supported(f"{_TEMPLATE}.manualSelector", True, ("nil", "false"))


def warn_about_cron_job(cron_job: Obj, old: Obj | None) -> list[str]:
    """Return the warnings about the name, the Jobs' template and a zone in the schedule."""
    warnings: list[str] = []
    if old is None and (details := names.dns_label_errors(cron_job["metadata"].get("name", ""))):
        warnings.append(names.label_recommendation(details))
    spec = cron_job["spec"]
    if old is None or spec != old["spec"]:
        was = None if old is None else old["spec"]["jobTemplate"]["spec"]
        warnings += job_spec_warnings(spec["jobTemplate"]["spec"], was, _TEMPLATE)
    if old is not None and "TZ" in spec.get("schedule", ""):
        warnings.append(
            "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see "
            "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
        )
    return warnings


def default_cron_job(cron_job: Obj) -> None:
    """Set the API defaults of a CronJob; those of its Jobs are set when they are created."""
    spec = cron_job.setdefault("spec", {})
    if not spec.get("concurrencyPolicy"):
        spec["concurrencyPolicy"] = "Allow"
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    default_job_template_spec(spec.setdefault("jobTemplate", {}).setdefault("spec", {}))


def prepare_cron_job_create(cron_job: Obj) -> None:
    """Reset the status of a new CronJob."""
    drop_status(cron_job)
    _drop_disabled_fields(cron_job)


def prepare_cron_job_update(new: Obj, old: Obj) -> None:
    """Keep the status of an update."""
    keep_status(new, old)
    _drop_disabled_fields(new)


def _drop_disabled_fields(cron_job: Obj) -> None:
    # The feature gate WorkloadWithJob is alpha.
    cron_job["spec"]["jobTemplate"]["spec"].pop("scheduling", None)


CRON_JOB = Kind(
    name="CronJob",
    plural="cronjobs",
    served=(Served("batch", "v1", f"{_TYPES}.CronJob"),),
    short_names=("cj",),
    categories=("all",),
    strategy=Strategy(
        default=default_cron_job,
        prepare_create=prepare_cron_job_create,
        prepare_update=prepare_cron_job_update,
        validate=validate_cron_job,
        validate_update=validate_cron_job_update,
        parts={"status": PartRules(keep_spec)},
        warn=warn_about_cron_job,
        spec_of=get_spec,
    ),
    printer=printer(
        NAME,
        column("Schedule", "spec.schedule", of=_SPEC),
        column("Timezone", "spec.timeZone", of=_SPEC, absent=NONE),
        column("Suspend", "spec.suspend", "boolean", of=_SPEC, absent=NONE, show=str),
        column("Active", "status.active", "integer", of=_STATUS, show=len),
        age_column("Last Schedule", "status.lastScheduleTime", of=_STATUS, absent=NONE),
        AGE,
        *containers_of("spec.jobTemplate.spec.template"),
        selector_column(f"{_TYPES}.JobSpec", where="spec.jobTemplate.spec.selector"),
    ),
    subresources=status_subresource(),
)
