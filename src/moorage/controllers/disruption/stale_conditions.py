"""Stale disruption conditions: that of a pod that was not disrupted after all becomes False.

The condition DisruptionTarget becomes False when the pod is not being deleted two minutes later.
Source: KEP-3329.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from moorage.api.clock import Clock, format_time, parse_time
from moorage.api.disruptions import DISRUPTION_TARGET
from moorage.api.errors import NotFoundError
from moorage.controllers.informers import Informers, wait_synced
from moorage.controllers.objects import PODS, Pod
from moorage.controllers.patches import locked
from moorage.controllers.pods import is_deleting, is_ended
from moorage.wire.client.informer import object_key
from moorage.wire.client.queue import WorkQueue
from moorage.wire.client.rest import Client, PatchType

STALE_AFTER = timedelta(minutes=2)
_BY_NODE_AGENT = "TerminationByKubelet"


class StaleDisruptionController:
    """Watches pods and resets their stale conditions."""

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._pods = informers.pods
        self._clock = clock
        self._queue: WorkQueue[str] = WorkQueue("stale disruptions", clock=clock)
        self._pods.add_handler(self._pod_changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await wait_synced(self._pods)
        await self._queue.run(self._reconcile)

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        del before
        if after is not None and self._seconds_left(after) is not None:
            self._queue.add(object_key(after.metadata))

    async def _reconcile(self, key: str) -> float | None:
        pod = self._pods.get_key(key)
        left_s = None if pod is None else self._seconds_left(pod)
        if pod is None or left_s is None or left_s > 0:
            return left_s
        meta = pod.metadata
        condition: dict[str, Any] = {
            "type": DISRUPTION_TARGET,
            "status": "False",
            "lastTransitionTime": format_time(self._clock.now()),
            "observedGeneration": meta.generation or None,
            "reason": None,
            "message": None,
        }
        patch = {"metadata": locked(meta), "status": {"conditions": [condition]}}
        try:
            await self._client.patch(
                PODS, meta.name, patch, meta.namespace,
                kind=PatchType.STRATEGIC, subresource="status",
            )  # fmt: skip
        except NotFoundError:
            return None  # It is gone, as was announced.
        return None

    def _seconds_left(self, pod: Pod) -> float | None:
        """Return the seconds until a pod's condition is stale; None without one that can be."""
        if is_deleting(pod) or is_ended(pod):
            return None
        for condition in pod.status.conditions:
            if condition.type != DISRUPTION_TARGET or condition.status != "True":
                continue
            if condition.reason == _BY_NODE_AGENT or not condition.last_transition_time:
                return None
            stale_at = parse_time(condition.last_transition_time) + STALE_AFTER
            return max(0.0, (stale_at - self._clock.now()).total_seconds())
        return None
