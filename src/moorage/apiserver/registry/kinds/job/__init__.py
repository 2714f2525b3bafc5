"""Jobs. Source: batch validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

from moorage.apiserver.registry.kind import (
    Kind,
    PartRules,
    SelectableField,
    Served,
    Strategy,
    get_spec,
    status_subresource,
)
from moorage.apiserver.registry.kinds.job.columns import PRINTER
from moorage.apiserver.registry.kinds.job.preparation import (
    default_job,
    prepare_job_create,
    prepare_job_update,
)
from moorage.apiserver.registry.kinds.job.status import validate_job_status
from moorage.apiserver.registry.kinds.job.validation import (
    validate_job,
    validate_job_update,
    warn_about_job,
)
from moorage.apiserver.registry.preparation import keep_spec

_TYPES = "io.k8s.api.batch.v1"

JOB = Kind(
    name="Job",
    plural="jobs",
    served=(Served(group="batch", version="v1", type=f"{_TYPES}.Job"),),
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
