"""Status of a DaemonSet. Source: apps/v1 `DaemonSetStatus`."""

from __future__ import annotations

from collections.abc import Mapping

from moorage.api.workloads import DaemonSetStatus
from moorage.controllers.daemonsets.placement import Fit
from moorage.controllers.daemonsets.planning import PodsByNode, View, by_age
from moorage.controllers.pods import is_ready


def observed_status(
    view: View, fits: Mapping[str, Fit], pods: PodsByNode, collisions: int, *, is_handled: bool
) -> DaemonSetStatus:
    """Compute the status from nodes and pods; on each node the oldest pod counts.

    `is_handled` is whether the present specification has been acted on.
    """
    daemon_set = view.daemon_set
    wanted = [node for node, fit in fits.items() if fit.gets_pod]
    first = [by_age(pods[node])[0] for node in wanted if pods.get(node)]
    ready = [pod for pod in first if is_ready(pod)]
    available = sum(map(view.is_available, ready))
    generation = daemon_set.metadata.generation
    return DaemonSetStatus(
        current_number_scheduled=len(first),
        number_misscheduled=sum(
            bool(pods.get(node)) for node, fit in fits.items() if not fit.gets_pod
        ),
        desired_number_scheduled=len(wanted),
        number_ready=len(ready),
        observed_generation=generation if is_handled else daemon_set.status.observed_generation,
        updated_number_scheduled=sum(map(view.is_new, first)),
        number_available=available,
        number_unavailable=len(wanted) - available,
        collision_count=collisions or daemon_set.status.collision_count,
        conditions=daemon_set.status.conditions,
    )
