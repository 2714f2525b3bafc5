"""Autoscaler controller: sets the replicas of targets by what is measured of their pods.

    autoscaler ─▶ target's scale ─▶ metrics propose ─▶ stabilized, limited ─▶ scale, status, events

Each autoscaler is looked at once in a period, whatever changes. Source: API docs "Horizontal Pod
Autoscaling"; `horizontal.go` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import msgspec

from moorage.api import labels
from moorage.api.autoscaling import (
    Behavior,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerStatus,
    with_condition,
    without_condition,
)
from moorage.api.clock import Clock, format_time
from moorage.api.errors import NotFoundError, StatusError
from moorage.api.labels import Selector
from moorage.api.logs import Log
from moorage.api.meta import Condition, Raw
from moorage.controllers.horizontalpodautoscalers.limits import (
    Bounds,
    Decision,
    History,
    limit,
    limit_by_policies,
    recommended,
    scaled,
    stabilize,
    stabilize_down,
)
from moorage.controllers.horizontalpodautoscalers.metrics import (
    MetricError,
    MetricResult,
    PodsToMeasure,
    evaluate,
    tolerances_of,
)
from moorage.controllers.horizontalpodautoscalers.proposals import Readiness
from moorage.controllers.horizontalpodautoscalers.targets import (
    OtherApis,
    ScaleTargets,
    Target,
    TargetError,
    read_usages,
)
from moorage.controllers.informers import Informers
from moorage.controllers.loop import After, Loop, Queued
from moorage.controllers.options import ControllerOptions
from moorage.controllers.requests import status_patch
from moorage.wire.client.informer import latest, object_key
from moorage.wire.client.recorder import NORMAL, WARNING, EventRecorder, reference
from moorage.wire.client.resources import HORIZONTAL_POD_AUTOSCALERS, PODS
from moorage.wire.client.rest import Client, UnreachableError

_ABLE, _ACTIVE, _LIMITED = "AbleToScale", "ScalingActive", "ScalingLimited"
_ZERO = "ScaledToZero"
_FAILURES = (StatusError, UnreachableError, ValueError)

log = Log(__name__)


class ComputeError(Exception):
    """The metrics call for no number of replicas; the text says why, in upstream's words."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The replicas that metrics or bounds call for; `metric` names what called for most."""

    replicas: int
    metric: str


class AutoscalerController:
    """Watches HorizontalPodAutoscalers. What it recommended and did is in memory only."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        recorder: EventRecorder,
        options: ControllerOptions,
        clock: Clock,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._options = options
        self._clock = clock
        self._readiness = Readiness(
            timedelta(seconds=options.autoscaler_cpu_initialization_s),
            timedelta(seconds=options.autoscaler_initial_readiness_delay_s),
        )
        self._autoscalers = informers.horizontal_pod_autoscalers
        self._targets = ScaleTargets(client, clock)
        self._histories: dict[str, History] = {}
        self._selectors: dict[str, Selector] = {}
        self.run = Loop(
            "autoscalers", self._reconcile, [(self._autoscalers, self._changed)], clock
        ).run

    def _changed(
        self, before: HorizontalPodAutoscaler | None, after: HorizontalPodAutoscaler | None
    ) -> Iterator[Queued[str]]:
        # Not at once: its own status changes come by here too.
        key = object_key(latest(before, after).metadata)
        yield After(key, self._options.autoscaler_period_s)

    async def _reconcile(self, key: str) -> float | None:
        autoscaler = self._autoscalers.get_key(key)
        if autoscaler is None:
            self._histories.pop(key, None)
            self._selectors.pop(key, None)
            return None
        pass_ = _Pass(autoscaler, autoscaler.status)
        try:
            await self._look(key, pass_)
        except _FAILURES as error:
            log.warning("autoscaler not evaluated", key=key, error=error)
        try:
            await self._report(pass_)
        except _FAILURES as error:
            self._record(autoscaler, WARNING, "FailedUpdateStatus", str(error))
        return self._options.autoscaler_period_s

    async def _look(self, key: str, pass_: _Pass) -> None:
        """Read the target, decide, and scale it. The results are in the status of the pass."""
        autoscaler = pass_.autoscaler
        spec, namespace = autoscaler.spec, autoscaler.metadata.namespace
        try:
            target = await self._targets.get(spec.scale_target_ref, namespace)
        except (TargetError, *_FAILURES) as error:
            self._record(autoscaler, WARNING, "FailedGetScale", str(error))
            why = f"the HPA controller was unable to get the target's current scale: {error}"
            self._set(pass_, _ABLE, "False", "FailedGetScale", why)
            return
        message = "the HPA controller was able to get the target's current scale"
        self._set(pass_, _ABLE, "True", "SucceededGetScale", message)
        current = target.scale.spec.replicas
        now_s = self._clock.monotonic()
        self._histories.setdefault(key, recommended(History(), current, now_s, 0))
        bounds = Bounds(1 if spec.min_replicas is None else spec.min_replicas, spec.max_replicas)
        statuses: tuple[Raw, ...] | None = None
        if current == 0:
            why = "scaling is disabled since the replica count of the target is zero"
            self._set(pass_, _ACTIVE, "False", "ScalingDisabled", why)
            pass_.status = without_condition(pass_.status, _ZERO)
            desired, reason = 0, ""
        elif current > bounds.maximum:
            desired = bounds.maximum
            reason = "Current number of replicas above Spec.MaxReplicas"
        elif current < bounds.minimum:
            desired = bounds.minimum
            reason = "Current number of replicas below Spec.MinReplicas"
        else:
            results: list[MetricResult | None] = []
            try:
                wanted = await self._compute(key, pass_, target, results)
            except ComputeError as error:
                shown = tuple(_status(result) for result in results) or None
                self._count(pass_, current, pass_.status.desired_replicas, shown)
                self._record(autoscaler, WARNING, "FailedComputeMetricsReplicas", str(error))
                return
            statuses = tuple(_status(result) for result in results)
            reason = _reason(current, wanted)
            desired = self._normalize(key, pass_, current, wanted.replicas, bounds)
        if desired != current:
            await self._rescale(key, pass_, target, desired, reason, statuses)
        else:
            self._count(pass_, current, desired, statuses)

    async def _compute(
        self, key: str, pass_: _Pass, target: Target, results: list[MetricResult | None]
    ) -> Wanted:
        """Return the most that a metric proposes. Raises ComputeError.

        `results` gets what each metric proposes, None for those that failed.
        """
        autoscaler = pass_.autoscaler
        meta, metrics = autoscaler.metadata, autoscaler.spec.metrics
        current = target.scale.spec.replicas
        selector = self._selector(key, pass_, target.scale.status.selector)
        listed = await self._client.list(
            PODS, meta.namespace, label_selector=target.scale.status.selector
        )
        pods = [pod for pod in listed.items if selector.matches(pod.metadata.labels)]
        self._refuse_shared(key, pass_, target, [pod.metadata.labels for pod in pods])
        measured = PodsToMeasure(
            current,
            target.scale.status.replicas,
            target.scale.status.selector,
            pods,
            OtherApis(self._client, meta.namespace, self._targets.name_resource),
            partial(read_usages, self._client, meta.namespace, target.scale.status.selector),
            self._clock.now(),
            self._readiness,
        )
        tolerances = tolerances_of(autoscaler, self._options.autoscaler_tolerance)
        failures: list[MetricError] = []
        wanted = Wanted(0, "")
        for metric in metrics:
            try:
                result = await evaluate(metric, meta.namespace, measured, tolerances)
            except MetricError as error:
                self._record(autoscaler, WARNING, error.reason, error.cause)
                failures.append(error)
                results.append(None)
                continue
            results.append(result)
            if wanted.replicas == 0 or result.replicas > wanted.replicas:
                wanted = Wanted(result.replicas, result.name)
        # A metric that failed might have called for more, so nothing is taken away without it.
        if failures and (len(failures) == len(metrics) or wanted.replicas < current):
            why = f"the HPA was unable to compute the replica count: {failures[0].cause}"
            self._set(pass_, _ACTIVE, "False", failures[0].reason, why)
            raise ComputeError(
                f"invalid metrics ({len(failures)} invalid out of {len(metrics)}), first error "
                f"is: {failures[0]}"
            )
        message = f"the HPA was able to successfully calculate a replica count from {wanted.metric}"
        self._set(pass_, _ACTIVE, "True", "ValidMetricFound", message)
        return wanted

    def _selector(self, key: str, pass_: _Pass, text: str) -> Selector:
        """Return the selector of the target's pods. Raises ComputeError."""
        if not text:
            why = "the HPA target's scale is missing a selector"
            self._record(pass_.autoscaler, WARNING, "SelectorRequired", "selector is required")
            self._set(pass_, _ACTIVE, "False", "InvalidSelector", why)
            raise ComputeError("selector is required")
        try:
            selector = labels.parse(text)
        except ValueError as error:
            why = (
                f"couldn't convert selector into a corresponding internal selector object: {error}"
            )
            self._record(pass_.autoscaler, WARNING, "InvalidSelector", why)
            self._set(pass_, _ACTIVE, "False", "InvalidSelector", why)
            raise ComputeError(why) from error
        self._selectors[key] = selector
        return selector

    def _refuse_shared(
        self, key: str, pass_: _Pass, target: Target, pods: list[dict[str, str]]
    ) -> None:
        """Raise ComputeError if another autoscaler's target selects one of the pods too."""
        namespace = key.partition("/")[0]
        sharing = sorted(
            other.partition("/")[2]
            for other, selector in self._selectors.items()
            if other.partition("/")[0] == namespace and any(map(selector.matches, pods))
        )
        if len(sharing) > 1:
            shown = " ".join(f"{{{name} {namespace}}}" for name in sharing)
            text = target.scale.status.selector
            why = f"pods by selector {text} are controlled by multiple HPAs: [{shown}]"
            self._record(pass_.autoscaler, WARNING, "AmbiguousSelector", why)
            self._set(pass_, _ACTIVE, "False", "AmbiguousSelector", why)
            raise ComputeError(why)

    def _normalize(self, key: str, pass_: _Pass, current: int, desired: int, bounds: Bounds) -> int:
        """Return the replicas after stabilization and limits, with the conditions of both."""
        history, now_s = self._histories[key], self._clock.monotonic()
        behavior = self._behavior(pass_.autoscaler)
        if behavior is None:
            window_s = self._options.autoscaler_downscale_stabilization_s
            stabilized = stabilize_down(history, desired, window_s, now_s)
            decision = limit(current, stabilized.replicas, bounds)
        else:
            windows = (behavior.scale_up, behavior.scale_down)
            window_s = max(rules.stabilization_window_seconds or 0 for rules in windows)
            stabilized = stabilize(history, behavior, current, desired, now_s)
            decision = limit_by_policies(
                history, behavior, current, stabilized.replicas, bounds, now_s
            )
        self._histories[key] = recommended(history, desired, now_s, window_s)
        if stabilized.replicas == desired:
            ready = Decision(desired, "ReadyForNewScale", "recommended size matches current size")
        else:
            ready = stabilized
        self._set(pass_, _ABLE, "True", ready.reason, ready.message)
        is_limited = "False" if decision.replicas == stabilized.replicas else "True"
        self._set(pass_, _LIMITED, is_limited, decision.reason, decision.message)
        return decision.replicas

    def _behavior(self, autoscaler: HorizontalPodAutoscaler) -> Behavior | None:
        """Return the behavior, with the default of the one field that the API leaves out."""
        behavior = autoscaler.spec.behavior
        if behavior is None or behavior.scale_down.stabilization_window_seconds is not None:
            return behavior
        down = msgspec.structs.replace(
            behavior.scale_down,
            stabilization_window_seconds=int(self._options.autoscaler_downscale_stabilization_s),
        )
        return msgspec.structs.replace(behavior, scale_down=down)

    async def _rescale(
        self,
        key: str,
        pass_: _Pass,
        target: Target,
        desired: int,
        reason: str,
        statuses: tuple[Raw, ...] | None,
    ) -> None:
        autoscaler, current = pass_.autoscaler, target.scale.spec.replicas
        try:
            await self._targets.put(target, desired)
        except _FAILURES as error:
            text = f"New size: {desired}; reason: {reason}; error: {error}"
            self._record(autoscaler, WARNING, "FailedRescale", text)
            why = f"the HPA controller was unable to update the target scale: {error}"
            self._set(pass_, _ABLE, "False", "FailedUpdateScale", why)
            self._count(pass_, current, pass_.status.desired_replicas, statuses)
            return
        message = f"the HPA controller was able to update the target scale to {desired}"
        self._set(pass_, _ABLE, "True", "SucceededRescale", message)
        text = f"New size: {desired}; reason: {reason}"
        self._record(autoscaler, NORMAL, "SuccessfulRescale", text)
        behavior = autoscaler.spec.behavior
        if behavior is not None:
            now_s = self._clock.monotonic()
            self._histories[key] = scaled(self._histories[key], behavior, current, desired, now_s)
        pass_.status = without_condition(pass_.status, _ZERO)
        self._count(pass_, current, desired, statuses)
        now = format_time(self._clock.now())
        pass_.status = msgspec.structs.replace(pass_.status, last_scale_time=now)

    def _count(
        self, pass_: _Pass, current: int, desired: int, statuses: tuple[Raw, ...] | None
    ) -> None:
        pass_.status = msgspec.structs.replace(
            pass_.status,
            current_replicas=current,
            desired_replicas=desired,
            current_metrics=statuses,
        )

    def _set(self, pass_: _Pass, type_: str, status: str, reason: str, message: str) -> None:
        condition = Condition(
            type=type_,
            status=status,
            reason=reason,
            message=message,
            last_transition_time=format_time(self._clock.now()),
        )
        pass_.status = with_condition(pass_.status, condition)

    async def _report(self, pass_: _Pass) -> None:
        autoscaler = pass_.autoscaler
        if pass_.status == autoscaler.status:
            return
        meta = autoscaler.metadata
        patch = status_patch(meta, autoscaler.status, pass_.status)
        try:
            await self._client.patch(
                HORIZONTAL_POD_AUTOSCALERS, meta.name, patch, meta.namespace, subresource="status"
            )
        except NotFoundError:
            return  # It was deleted meanwhile: there is nothing to report on.

    def _record(
        self, autoscaler: HorizontalPodAutoscaler, type_: str, reason: str, message: str
    ) -> None:
        about = reference(HORIZONTAL_POD_AUTOSCALERS, autoscaler)
        self._recorder.record(about, type_, reason, message)


@dataclass(slots=True)
class _Pass:
    """One look at an autoscaler, and the status that comes of it."""

    autoscaler: HorizontalPodAutoscaler
    status: HorizontalPodAutoscalerStatus


def _status(result: MetricResult | None) -> Raw:
    return {"type": ""} if result is None else result.status


def _reason(current: int, wanted: Wanted) -> str:
    if wanted.replicas > current:
        return f"{wanted.metric} above target"
    return "All metrics below target" if wanted.replicas < current else ""
