"""Columns of Jobs."""

from __future__ import annotations

from moorage.api.clock import parse_time
from moorage.apiserver.registry.columns.ages import duration_text
from moorage.apiserver.registry.declare.columns import (
    AGE,
    NAME,
    Shown,
    column,
    containers_of,
    printer,
    selector_column,
)
from moorage.apiserver.registry.kind import Column, Obj
from moorage.apiserver.registry.kinds.job.status import has_condition

_TYPES = "io.k8s.api.batch.v1"


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
