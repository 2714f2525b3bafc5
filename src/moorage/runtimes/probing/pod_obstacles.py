"""Obstacles of probe pods: why one does not start or end, as far as the API says. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from moorage.api.events import Event
from moorage.api.pods import Pod

_STARTING = frozenset({"", "ContainerCreating", "PodInitializing"})


def obstacles(name: str, pod: Pod | None, events: Iterable[Event]) -> str:
    """Return where a pod waits, how its containers ended, and its last warning.

    `pod` is None where it is not known, `events` are those of its namespace. Returns the sentences
    after a colon and a space, to be put behind another sentence; empty without any.
    """
    reasons = [] if pod is None else list(_of_pod(pod))
    warnings = [
        event for event in events if event.type == "Warning" and event.involved_object.name == name
    ]
    if warnings:
        last = max(warnings, key=lambda event: event.last_timestamp or "")
        reasons.append(f"{last.reason}: {last.message}")
    return f": {'; '.join(dict.fromkeys(reasons))}" if reasons else ""


def _of_pod(pod: Pod) -> Iterator[str]:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            yield condition.message
    for status in pod.status.container_statuses:
        state = status.state.waiting or status.state.terminated
        if state is not None and state.reason not in _STARTING:
            yield f"{state.reason}: {state.message}".removesuffix(": ")
