"""Columns of Jobs."""

from __future__ import annotations

from typing import Any

from moorage.api import labels
from moorage.api.clock import parse_time
from moorage.apiserver.registry.columns.ages import duration_text
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
from moorage.apiserver.registry.kind import Column, Obj, Printer
from moorage.apiserver.registry.kinds.job.status import has_condition

_TYPES = "io.k8s.api.batch.v1"


def _job_cells(job: Obj, now: float) -> list[Any]:
    spec = job.get("spec", {})
    return [
        name_of(job),
        _state(job),
        _completions(job),
        _duration(job.get("status", {}), now),
        age_of(job, now),
        *container_cells(spec.get("template", {})),
        str(labels.from_object(spec.get("selector"))) or NONE,
    ]


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


def _duration(status: Obj, now: float) -> str:
    if "startTime" not in status:
        return ""
    end = parse_time(status["completionTime"]).timestamp() if "completionTime" in status else now
    return duration_text(end - parse_time(status["startTime"]).timestamp())


PRINTER = Printer(
    columns=(
        NAME,
        Column("Status", description="Status of the job."),
        Column("Completions", documented_by=f"{_TYPES}.JobStatus.succeeded"),
        Column("Duration", description="Time required to complete the job."),
        AGE,
        CONTAINERS,
        IMAGES,
        Column("Selector", documented_by=f"{_TYPES}.JobSpec.selector", priority=1),
    ),
    cells=_job_cells,
)
