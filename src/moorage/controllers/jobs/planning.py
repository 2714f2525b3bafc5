"""Pods to create and to delete, so that a Job has as many active pods as it should."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from moorage.api.completion_indexes import merged
from moorage.controllers.deletion_ranking import pods_to_delete
from moorage.controllers.jobs.backoff import index_seconds_left
from moorage.controllers.jobs.job_pods import completion_index
from moorage.controllers.jobs.view import View
from moorage.controllers.objects import Pod

_BURST = 500


@dataclass(frozen=True, slots=True)
class Plan:
    """Pods to delete, or the completion indexes of pods to create (None: without an index).

    `wait_s`: the seconds until back-off permits the next creation, if that is what is missing.
    """

    deletions: tuple[Pod, ...] = ()
    creations: tuple[int | None, ...] = ()
    wait_s: float | None = None


def make_plan(view: View) -> Plan:
    """Return the changes of an unfinished Job's pods. Deletions come before creations."""
    if view.is_suspended:
        return Plan(deletions=view.active)
    wanted = _wanted(view)
    deletions = _surplus(view, max(0, len(view.active) - wanted))
    if deletions:
        return Plan(deletions=deletions[:_BURST])
    held = len(view.terminating) if view.spec.replaces_failed_only else 0
    missing = min(wanted - held - len(view.active), _BURST)
    if missing <= 0:
        return Plan()
    if view.failed_indexes is not None:
        return _indexes_to_retry(view, missing)
    wait_s = view.failures.seconds_left(view.now)
    if wait_s:
        return Plan(wait_s=wait_s)
    if view.spec.is_indexed:
        return Plan(creations=_pending_indexes(view, missing))
    return Plan(creations=(None,) * missing)


def _wanted(view: View) -> int:
    """Return how many pods are to be active."""
    parallelism = view.spec.parallelism or 0
    if view.spec.completions is None:
        # After a first success, a work queue only drains.
        return len(view.active) if view.succeeded else parallelism
    return max(0, min(parallelism, view.completions - view.succeeded))


def _surplus(view: View, least: int) -> tuple[Pod, ...]:
    """Return at least so many pods to delete; of an Indexed Job, all that no index needs."""
    if not view.spec.is_indexed:
        return tuple(pods_to_delete(view.active, (), least, view.now)) if least else ()
    invalid, by_index = _by_index(view)
    superfluous = list(invalid)
    left: list[Pod] = []
    for pods in by_index.values():
        doubles = pods_to_delete(pods, (), len(pods) - 1, view.now)
        superfluous += doubles
        left += [pod for pod in pods if pod not in doubles]
    if len(superfluous) < least:
        superfluous += pods_to_delete(left, (), least - len(superfluous), view.now)
    return tuple(superfluous)


def _by_index(view: View) -> tuple[list[Pod], dict[int, list[Pod]]]:
    """Return the active pods without a valid index, and the others by index."""
    invalid: list[Pod] = []
    valid: dict[int, list[Pod]] = defaultdict(list)
    for pod in view.active:
        index = completion_index(pod)
        if index is None or index >= view.completions:
            invalid.append(pod)
        else:
            valid[index].append(pod)
    return invalid, valid


def _indexes_to_retry(view: View, missing: int) -> Plan:
    """Return the indexes that back-off permits now, or the wait for the first one."""
    waits = {
        index: index_seconds_left(view.replaceable.get(index), view.now)
        for index in _pending_indexes(view, missing)
    }
    due = tuple(index for index, wait_s in waits.items() if not wait_s)
    return Plan(creations=due) if due or not waits else Plan(wait_s=min(waits.values()))


def _pending_indexes(view: View, limit: int) -> tuple[int, ...]:
    """Return the lowest indexes that neither have a pod nor have ended."""
    taken = view.active
    if view.spec.replaces_failed_only:
        taken += view.terminating
    occupied = merged(chain(view.succeeded_indexes, view.failed_indexes or ()), _indexes(taken))
    pending: list[int] = []
    candidate = 0
    for first, last in (*occupied, (view.completions, view.completions)):
        pending += range(candidate, min(first, candidate + limit - len(pending)))
        candidate = last + 1
        if len(pending) >= limit:
            break
    return tuple(pending)


def _indexes(pods: Iterable[Pod]) -> Iterable[int]:
    return (index for index in map(completion_index, pods) if index is not None)
