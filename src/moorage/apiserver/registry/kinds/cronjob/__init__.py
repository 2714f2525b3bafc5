"""CronJobs. Source: batch validation and strategy of Kubernetes 1.37."""

from __future__ import annotations

from typing import Any

from moorage.api import labels
from moorage.apiserver.registry.columns.ages import age
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
from moorage.apiserver.registry.defaults.job_template import default_job_template_spec
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
from moorage.apiserver.registry.kinds.cronjob.validation import (
    validate_cron_job,
    validate_cron_job_update,
    warn_about_cron_job,
)
from moorage.apiserver.registry.preparation import drop_status, keep_spec, keep_status

_TYPES = "io.k8s.api.batch.v1"


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


def _cron_job_cells(cron_job: Obj, now: float) -> list[Any]:
    spec, status = cron_job.get("spec", {}), cron_job.get("status", {})
    job = spec.get("jobTemplate", {}).get("spec", {})
    last = status.get("lastScheduleTime")
    return [
        name_of(cron_job),
        spec.get("schedule", ""),
        spec.get("timeZone", NONE),
        str(spec["suspend"]) if "suspend" in spec else NONE,
        len(status.get("active", ())),
        age(last, now) if last is not None else NONE,
        age_of(cron_job, now),
        *container_cells(job.get("template", {})),
        str(labels.from_object(job.get("selector"))) or NONE,
    ]


_PRINTER = Printer(
    columns=(
        NAME,
        Column("Schedule", documented_by=f"{_TYPES}.CronJobSpec.schedule"),
        Column("Timezone", documented_by=f"{_TYPES}.CronJobSpec.timeZone"),
        Column("Suspend", "boolean", documented_by=f"{_TYPES}.CronJobSpec.suspend"),
        Column("Active", "integer", documented_by=f"{_TYPES}.CronJobStatus.active"),
        Column("Last Schedule", documented_by=f"{_TYPES}.CronJobStatus.lastScheduleTime"),
        AGE,
        CONTAINERS,
        IMAGES,
        Column("Selector", documented_by=f"{_TYPES}.JobSpec.selector", priority=1),
    ),
    cells=_cron_job_cells,
)

CRON_JOB = Kind(
    name="CronJob",
    plural="cronjobs",
    served=(Served(group="batch", version="v1", type=f"{_TYPES}.CronJob"),),
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
    printer=_PRINTER,
    subresources=status_subresource(),
)
