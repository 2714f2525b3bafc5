"""Defaults of a Job, and the selector that the server generates for it."""

from __future__ import annotations

from moorage.apiserver.registry.defaults.job_template import default_job_template_spec
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.preparation import drop_status, keep_status

LEGACY_UID_LABEL = "controller-uid"
LEGACY_NAME_LABEL = "job-name"
UID_LABEL = "batch.kubernetes.io/controller-uid"
NAME_LABEL = "batch.kubernetes.io/job-name"
_MAX_INT32 = 2**31 - 1


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
