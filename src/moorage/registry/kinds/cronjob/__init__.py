"""CronJobs. Source: batch validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, PartRules, Served, Strategy, get_spec, status_subresource
from moorage.registry.preparation import drop_status, keep_spec, keep_status

_TYPES = "io.k8s.api.batch.v1"

CRON_JOB = Kind(
    name="CronJob",
    plural="cronjobs",
    served=(Served(group="batch", version="v1", type=f"{_TYPES}.CronJob"),),
    short_names=("cj",),
    categories=("all",),
    strategy=Strategy(
        prepare_create=drop_status,
        prepare_update=keep_status,
        parts={"status": PartRules(prepare=keep_spec)},
        spec_of=get_spec,
    ),
    subresources=status_subresource(),
)
