"""Stale disruption conditions: that of a pod that was not disrupted after all becomes False.

The condition DisruptionTarget becomes False when the pod is not being deleted two minutes later.
Source: KEP-3329.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from moorage.api.clock import Clock, format_time, parse_time
from moorage.api.disruptions import DISRUPTION_TARGET
from moorage.api.errors import NotFoundError
from moorage.controllers.informers import Informers
from moorage.controllers.loop import Loop
from moorage.controllers.objects import PODS, Pod
from moorage.controllers.patches import locked
from moorage.controllers.pods import is_deleting, is_ended
from moorage.wire.client.informer import object_key
from moorage.wire.client.rest import Client, PatchType

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
