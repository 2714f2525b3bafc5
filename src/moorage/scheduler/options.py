"""Scheduler options."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_SCHEDULER = "default-scheduler"
"""The name a pod carries when its author chose no scheduler, and the events' component."""


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """Settings of one scheduler.

    `name` is the `spec.schedulerName` it answers to. `filters_by_handler` keeps pods off nodes that
    say which runtime handlers they have and lack the pod's; off is what Kubernetes does. `workers`
    is how many API calls (bindings, status patches, victims' deletions) may be under way at once,
    `event_senders` how many events beside them: fewer, since a binding matters more than its event.
    """

    name: str = DEFAULT_SCHEDULER
    filters_by_handler: bool = True
    workers: int = 16
    event_senders: int = 2
    first_backoff_s: float = 1.0
    longest_backoff_s: float = 10.0
    longest_wait_s: float = 300.0
