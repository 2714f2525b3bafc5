"""Scheduler options."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_SCHEDULER = "default-scheduler"
"""Default of a pod's `spec.schedulerName`, and the reporting component of events."""


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """Settings of one scheduler.

    `name` is the `spec.schedulerName` of the pods it schedules. `filters_by_handler` rejects nodes
    that report their runtime handlers and lack the pod's; kube-scheduler has no such filter.
    `workers` is the number of concurrent API calls (bindings, status patches, victims' deletions),
    `event_senders` that of concurrent event requests beside them: fewer, since a binding matters
    more than its event. `longest_volume_wait_s` limits the time from a pod's placement until its
    volumes are bound.
    """

    name: str = DEFAULT_SCHEDULER
    filters_by_handler: bool = True
    workers: int = 16
    event_senders: int = 2
    first_backoff_s: float = 1.0
    longest_backoff_s: float = 10.0
    longest_wait_s: float = 300.0
    longest_volume_wait_s: float = 600.0
