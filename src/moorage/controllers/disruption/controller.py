"""Disruption controller: writes into each budget's status how many pods may be disrupted.

Evictions read that and count it down; this counts it again. Where it cannot be known, nothing may
be disrupted. Source: API docs "Pod Disruption Budgets", KEP-85.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from moorage.api import labels
from moorage.api.clock import Clock, format_time, parse_time
from moorage.api.disruptions import (
    DISRUPTION_ALLOWED,
    DISRUPTION_TARGET,
    SYNC_FAILED,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    with_condition,
    with_permission,
)
from moorage.api.errors import ConflictError, NotFoundError, StatusError
from moorage.api.meta import Condition
from moorage.controllers.disruption.scale import ScaleError, ScaleFinder
from moorage.controllers.informers import NAMESPACE, Informers
from moorage.controllers.loop import Loop, key_if_present
from moorage.controllers.objects import PODS, Pod
from moorage.controllers.pods import is_deleting, is_ended, is_ready
from moorage.controllers.requests import locked, status_patch
from moorage.controllers.templates import scaled
from moorage.wire.client.informer import object_key
from moorage.wire.client.recorder import NORMAL, WARNING, EventRecorder, reference
from moorage.wire.client.resources import POD_DISRUPTION_BUDGETS
from moorage.wire.client.rest import Client, PatchType, UnreachableError

# Stale disruption conditions: that of a pod that was not disrupted after all becomes False.
#
# The condition DisruptionTarget becomes False when the pod is not being deleted two minutes later.
# Source: KEP-3329.

STALE_AFTER = timedelta(minutes=2)
_BY_NODE_AGENT = "TerminationByKubelet"


def stale_disruptions(client: Client, informers: Informers, clock: Clock) -> Loop[str]:
    """Return the loop that resets the stale conditions of pods."""
    pods = informers.pods

    def announced(before: Pod | None, after: Pod | None) -> Iterator[str]:
        del before
        if after is not None and stale_time(after) is not None:
            yield object_key(after.metadata)

    async def reconcile(key: str) -> float | None:
        pod = pods.get_key(key)
        stale_at = None if pod is None else stale_time(pod)
        if pod is None or stale_at is None:
            return None
        left_s = (stale_at - clock.now()).total_seconds()
        if left_s > 0:
            return left_s
        meta = pod.metadata
        condition: dict[str, Any] = {
            "type": DISRUPTION_TARGET,
            "status": "False",
            "lastTransitionTime": format_time(clock.now()),
            "observedGeneration": meta.generation or None,
            "reason": None,
            "message": None,
        }
        patch = {"metadata": locked(meta), "status": {"conditions": [condition]}}
        with suppress(NotFoundError):  # The pod was deleted after all.
            await client.patch(
                PODS, meta.name, patch, meta.namespace,
                kind=PatchType.STRATEGIC, subresource="status",
            )  # fmt: skip
        return None

    return Loop("stale disruptions", reconcile, [(pods, announced)], clock)


def stale_time(pod: Pod) -> datetime | None:
    """Return when a pod's condition is stale; None without one that can be."""
    if is_deleting(pod) or is_ended(pod):
        return None
    for condition in pod.status.conditions:
        if condition.type != DISRUPTION_TARGET or condition.status != "True":
            continue
        if condition.reason == _BY_NODE_AGENT or not condition.last_transition_time:
            return None
        return parse_time(condition.last_transition_time) + STALE_AFTER
    return None


class DisruptionController:
    """Watches PodDisruptionBudgets and pods."""

    def __init__(
        self, client: Client, informers: Informers, recorder: EventRecorder, clock: Clock
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._clock = clock
        self._pods = informers.pods
        self._budgets = informers.disruption_budgets
        self._scales = ScaleFinder(client, informers)
        self.run = Loop(
            "disruption",
            self._reconcile,
            [
                (self._budgets, key_if_present),
                (self._pods, self._pod_changed),
                (informers.replica_sets, None),
                (informers.deployments, None),
                (informers.stateful_sets, None),
            ],
            clock,
        ).run

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> Iterator[str]:
        """Yield the budgets that select the pod, or selected it before it changed."""
        changed: dict[str, None] = {}
        for pod in (before, after):
            if pod is not None:
                changed |= dict.fromkeys(self._selecting(pod))
        yield from changed
        if after is not None and before is None and len(changed) > 1:
            self._warn_of_several(after, list(changed))

    def _selecting(self, pod: Pod) -> Iterator[str]:
        """Yield the keys of the budgets that select a pod."""
        for budget in self._budgets.by_index(NAMESPACE, pod.metadata.namespace):
            try:
                selector = labels.from_object(budget.spec.selector)
            except ValueError:
                continue  # Its own reconcile reports it.
            if selector.matches(pod.metadata.labels):
                yield object_key(budget.metadata)

    def _warn_of_several(self, pod: Pod, keys: list[str]) -> None:
        meta = pod.metadata
        names = ", ".join(sorted(key.partition("/")[2] for key in keys))
        self._recorder.record(
            reference(PODS, pod),
            WARNING,
            "MultiplePodDisruptionBudgets",
            f'Pod "{meta.namespace}"/"{meta.name}" matches multiple PodDisruptionBudgets: {names}. '
            "Its eviction is refused.",
        )

    async def _reconcile(self, key: str) -> float | None:
        budget = self._budgets.get_key(key)
        if budget is None:
            return None
        try:
            return await self._observe(budget)
        except ConflictError:
            raise
        except (ScaleError, StatusError, UnreachableError, ValueError) as error:
            await self._fail_safe(budget, str(error))
            return None

    async def _observe(self, budget: PodDisruptionBudget) -> float | None:
        """Count and report. Returns the seconds until an eviction counts as not carried out."""
        pods = self._selected(budget)
        if not pods:
            self._record(budget, NORMAL, "NoPods", "No matching pods found")
        expected = await self._expected(budget, pods)
        disrupted = awaited_deletions(pods, budget.status.disrupted_pods, self._clock.now())
        for pod in disrupted.overdue:
            meta = budget.metadata
            message = f"Pod was expected by PDB {meta.namespace}/{meta.name} to be deleted but it "
            self._recorder.record(reference(PODS, pod), WARNING, "NotDeleted", f"{message}wasn't")
        healthy = count_healthy(pods, disrupted.pods)
        status = PodDisruptionBudgetStatus(
            observed_generation=budget.metadata.generation,
            disrupted_pods=dict(disrupted.pods),
            disruptions_allowed=allowed_disruptions(healthy, expected),
            current_healthy=healthy,
            desired_healthy=expected.healthy,
            expected_pods=expected.count,
            conditions=budget.status.conditions,
        )
        await self._report(budget, with_permission(status, self._now()))
        return disrupted.recheck_s

    def _selected(self, budget: PodDisruptionBudget) -> list[Pod]:
        try:
            selector = labels.from_object(budget.spec.selector)
        except ValueError as error:
            self._record(budget, WARNING, "NoPods", f"Failed to get pods: {error}")
            raise
        return [
            pod
            for pod in self._pods.by_index(NAMESPACE, budget.metadata.namespace)
            if selector.matches(pod.metadata.labels)
        ]

    async def _expected(self, budget: PodDisruptionBudget, pods: list[Pod]) -> Expected:
        spec = budget.spec
        if not needs_scale(spec):
            return expected_pods(spec, len(pods))
        try:
            scale = await self._scales.expected(pods)
            expected = expected_pods(spec, scale.count)
        except (ScaleError, StatusError, UnreachableError, ValueError) as error:
            message = f"Failed to calculate the number of expected pods: {error}"
            self._record(budget, WARNING, "CalculateExpectedPodCountFailed", message)
            raise
        if scale.unmanaged:
            selector = json.dumps(spec.selector, separators=(",", ":"))
            self._record(
                budget,
                WARNING,
                "UnmanagedPods",
                f"Pods selected by this PodDisruptionBudget (selector: {selector}) were found to "
                "be unmanaged. As a result, the status of the PDB cannot be calculated correctly, "
                "which may result in undefined behavior. To account for these pods please set "
                '".spec.minAvailable" field of the PDB to an integer value.',
            )
        return expected

    async def _fail_safe(self, budget: PodDisruptionBudget, why: str) -> None:
        """Permit no disruption, and say why."""
        status = msgspec.structs.replace(budget.status, disruptions_allowed=0)
        condition = Condition(
            type=DISRUPTION_ALLOWED,
            status="False",
            reason=SYNC_FAILED,
            message=why,
            observed_generation=status.observed_generation,
            last_transition_time=self._now(),
        )
        await self._report(budget, with_condition(status, condition))

    async def _report(self, budget: PodDisruptionBudget, status: PodDisruptionBudgetStatus) -> None:
        if status == budget.status:
            return
        meta = budget.metadata
        try:
            await self._client.patch(
                POD_DISRUPTION_BUDGETS,
                meta.name,
                status_patch(meta, budget.status, status),
                meta.namespace,
                subresource="status",
            )
        except NotFoundError:
            return  # It was deleted meanwhile: there is nothing to report on.

    def _record(self, budget: PodDisruptionBudget, type_: str, reason: str, message: str) -> None:
        self._recorder.record(reference(POD_DISRUPTION_BUDGETS, budget), type_, reason, message)

    def _now(self) -> str:
        return format_time(self._clock.now())


# Planning: how many pods of a budget are healthy, must be, and may be disrupted.
#
# Source: kube-controller-manager `disruption`.

DELETION_TIMEOUT = timedelta(minutes=2)
"""After this time, an evicted pod that is not being deleted counts as healthy again."""


@dataclass(frozen=True, slots=True)
class Disrupted:
    """Evicted pods whose deletion is awaited, with the time of the eviction.

    `overdue` were expected to be deleted and were not; `recheck_s` is when the next becomes so.
    """

    pods: Mapping[str, str]
    overdue: Sequence[Pod] = ()
    recheck_s: float | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """How many pods a budget expects, and how many of them must be healthy."""

    count: int
    healthy: int


def awaited_deletions(
    pods: Iterable[Pod], disrupted: Mapping[str, str], now: datetime
) -> Disrupted:
    """Return which of the evicted pods of a status are still to be deleted."""
    awaited: dict[str, str] = {}
    overdue: list[Pod] = []
    waits: list[float] = []
    for pod in pods:
        name = pod.metadata.name
        if is_deleting(pod) or name not in disrupted:
            continue
        left = parse_time(disrupted[name]) + DELETION_TIMEOUT - now
        if left < timedelta():
            overdue.append(pod)
            continue
        awaited[name] = disrupted[name]
        waits.append(left.total_seconds())
    return Disrupted(awaited, overdue, min(waits, default=None))


def count_healthy(pods: Iterable[Pod], disrupted: Mapping[str, str]) -> int:
    """Return how many pods are ready and neither deleted nor about to be."""
    return sum(
        is_ready(pod) and not is_deleting(pod) and pod.metadata.name not in disrupted
        for pod in pods
    )


def needs_scale(spec: PodDisruptionBudgetSpec) -> bool:
    """Return whether the expected pods are those that the pods' controllers want."""
    return spec.max_unavailable is not None or isinstance(spec.min_available, str)


def expected_pods(spec: PodDisruptionBudgetSpec, count: int) -> Expected:
    """Return how many of `count` pods a budget expects. Raises ValueError."""
    if spec.max_unavailable is not None:
        unavailable = scaled(spec.max_unavailable, count, rounds_up=True)
        return Expected(count, max(0, count - unavailable))
    if spec.min_available is not None:
        return Expected(count, scaled(spec.min_available, count, rounds_up=True))
    return Expected(0, 0)


def allowed_disruptions(healthy: int, expected: Expected) -> int:
    """Return how many pods may be disrupted now."""
    return max(0, healthy - expected.healthy) if expected.count > 0 else 0
