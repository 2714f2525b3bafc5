"""Pods of a Job: what is read from one, and the body of a new one.

Source: API docs "Indexed completion mode", "Pod backoff failure policy"; KEP-3850 for failures
counted per index.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from moorage.api.clock import parse_time
from moorage.api.jobs import (
    COMPLETION_INDEX,
    INDEX_FAILURES,
    INDEX_IGNORED_FAILURES,
    TRACKING_FINALIZER,
    Job,
    JobSpec,
)
from moorage.api.meta import Raw
from moorage.controllers.jobs.failure_policy import match_failure_policy
from moorage.controllers.objects import ContainerStatus, Pod
from moorage.controllers.pods import is_deleting, pod_of, ready_condition
from moorage.wire.client.resources import JOBS

_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
_NUMBER = re.compile("[0-9]{1,10}")
_MAX_INT32 = 2**31 - 1
# Room for the suffix that the server appends to a generated name.
_LONGEST_PREFIX = 58


def is_tracked(pod: Pod) -> bool:
    """Return whether the pod has the tracking finalizer: it is not counted yet."""
    return TRACKING_FINALIZER in pod.metadata.finalizers


def has_failed(pod: Pod, spec: JobSpec) -> bool:
    """Return whether the pod counts as failed.

    A pod that is being deleted does, unless only failed pods are replaced: a pod that was removed
    by force never reaches the phase Failed.
    """
    if pod.status.phase == "Failed":
        return True
    if spec.replaces_failed_only:
        return False
    return is_deleting(pod) and pod.status.phase != "Succeeded"


def completion_index(pod: Pod) -> int | None:
    """Return the completion index; None without a valid annotation."""
    return _number(pod, COMPLETION_INDEX)


def has_valid_index(pod: Pod, spec: JobSpec) -> bool:
    """Return whether the pod's completion index is below the Job's completions."""
    index = completion_index(pod)
    return index is not None and index < (spec.completions or 0)


def index_failures(pod: Pod) -> int:
    """Return the counted failures of the pod's index before this pod."""
    return _number(pod, INDEX_FAILURES) or 0


def all_index_failures(pod: Pod) -> int:
    """Return the failures of the pod's index before this pod, ignored ones included."""
    return index_failures(pod) + (_number(pod, INDEX_IGNORED_FAILURES) or 0)


def _number(pod: Pod, annotation: str) -> int | None:
    text = pod.metadata.annotations.get(annotation, "")
    if not _NUMBER.fullmatch(text) or int(text) > _MAX_INT32:
        return None
    return int(text)


def finish_time(pod: Pod) -> datetime:
    """Return when the pod ended.

    The latest end of its containers; else when it became unready; else when its deletion was
    requested; else its creation.
    """
    finished = _containers_finish_time(pod)
    if finished is not None:
        return finished
    condition = ready_condition(pod)
    if condition is not None and condition.status == "False" and condition.last_transition_time:
        return parse_time(condition.last_transition_time)
    meta = pod.metadata
    if meta.deletion_timestamp is not None:
        grace = timedelta(seconds=meta.deletion_grace_period_seconds or 0)
        return parse_time(meta.deletion_timestamp) - grace
    assert meta.creation_timestamp is not None, "every stored object has one"
    return parse_time(meta.creation_timestamp)


def _containers_finish_time(pod: Pod) -> datetime | None:
    sidecars = {
        container.name
        for container in pod.spec.init_containers
        if container.restart_policy == "Always"
    }
    statuses = [
        *pod.status.container_statuses,
        *(status for status in pod.status.init_container_statuses if status.name in sidecars),
    ]
    times = [_finished_at(status) for status in statuses]
    known = [parse_time(time) for time in times if time]
    return max(known) if known and len(known) == len(times) else None


def _finished_at(status: ContainerStatus) -> str | None:
    terminated = status.state.terminated
    return terminated.finished_at if terminated is not None else None


def restarts(pods: Iterable[Pod]) -> int:
    """Return the sum of the container restarts of pods that run or wait to."""
    return sum(
        status.restart_count
        for pod in pods
        if pod.status.phase in ("Running", "Pending")
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
    )


def job_pod(job: Job, index: int | None, replaced: Pod | None) -> dict[str, Any]:
    """Return a new pod of the Job, as JSON.

    `index`: its completion index in an Indexed Job. `replaced`: the failed pod of that index.
    """
    body = pod_of(JOBS, job.metadata, job.spec.template)
    meta = body["metadata"]
    finalizers = meta.get("finalizers", [])
    if TRACKING_FINALIZER not in finalizers:
        meta["finalizers"] = [*finalizers, TRACKING_FINALIZER]
    if index is None:
        return body
    own = {COMPLETION_INDEX: str(index)}
    meta["labels"] = {**meta.get("labels", {}), **own}
    if job.spec.backoff_limit_per_index is not None:
        own |= _failure_annotations(job.spec, replaced)
    meta["annotations"] = {**meta.get("annotations", {}), **own}
    meta["generateName"] = _name_prefix(job.metadata.name, index)
    body["spec"] = _indexed_spec(body["spec"]) | {"hostname": f"{job.metadata.name}-{index}"}
    return body


def _name_prefix(name: str, index: int) -> str:
    suffix = f"-{index}-"
    return f"{name[: _LONGEST_PREFIX - len(suffix)]}{suffix}"


def _failure_annotations(spec: JobSpec, replaced: Pod | None) -> dict[str, str]:
    counted = ignored = 0
    if replaced is not None:
        counted = index_failures(replaced)
        ignored = all_index_failures(replaced) - counted
        if match_failure_policy(spec.pod_failure_policy, replaced).is_counted:
            counted += 1
        else:
            ignored += 1
    annotations = {INDEX_FAILURES: str(counted)}
    return {**annotations, INDEX_IGNORED_FAILURES: str(ignored)} if ignored else annotations


def _indexed_spec(spec: Raw) -> dict[str, Any]:
    """Return the pod specification with the index as an environment variable of each container."""
    return {
        **spec,
        **{
            field: [_with_index_variable(container) for container in spec[field]]
            for field in ("initContainers", "containers")
            if spec.get(field)
        },
    }


def _with_index_variable(container: Raw) -> Raw:
    variables = container.get("env") or []
    if any(variable.get("name") == _INDEX_VARIABLE for variable in variables):
        return container
    reference = {"fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}
    variable = {"name": _INDEX_VARIABLE, "valueFrom": {"fieldRef": reference}}
    return {**container, "env": [*variables, variable]}
