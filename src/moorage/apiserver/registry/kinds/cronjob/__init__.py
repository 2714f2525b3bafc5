"""CronJobs. Source: batch validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

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
from moorage.apiserver.registry.defaults.job_template import default_job_template_spec
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
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


_SPEC, _STATUS = f"{_TYPES}.CronJobSpec", f"{_TYPES}.CronJobStatus"

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
