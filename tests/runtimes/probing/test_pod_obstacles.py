"""Obstacles of probe pods: sentences of conditions, states and warnings, each once."""

from __future__ import annotations

from typing import Any

import msgspec

from moorage.api.events import Event
from moorage.api.pods import Pod
from moorage.runtimes.probing.pod_manifest import obstacles


def an_event(reason: str, at: str, **more: Any) -> Event:
    wire = {
        "type": "Warning", "reason": reason, "message": "m", "lastTimestamp": at,
        "involvedObject": {"name": "p"},
    }  # fmt: skip
    return msgspec.convert(wire | more, Event)


def a_pod(**status: Any) -> Pod:
    return msgspec.convert({"metadata": {"name": "p"}, "status": status}, Pod)


def test_nothing_is_known_of_a_pod_that_is_not_there() -> None:
    assert obstacles("p", None, []) == ""


def test_a_pod_that_starts_has_no_obstacle() -> None:
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    assert obstacles("p", a_pod(containerStatuses=[{"name": "a", "state": waiting}]), []) == ""


def test_all_that_is_known_is_named_once_and_the_last_warning_counts() -> None:
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "no node"}
    waiting = {"waiting": {"reason": "ErrImagePull"}}
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": "m"}}
    states = [{"name": "a", "state": waiting}, {"name": "b", "state": ended}]
    pod = a_pod(conditions=[unscheduled], containerStatuses=states)
    events = [
        an_event("Old", "2026-01-01T00:00:00Z"),
        an_event("Error", "2026-01-01T00:00:05Z"),
        an_event("Other", "2026-01-01T00:00:09Z", involvedObject={"name": "q"}),
        an_event("Normal", "2026-01-01T00:00:09Z", type="Normal"),
    ]
    assert obstacles("p", pod, events) == ": no node; ErrImagePull; Error: m"
