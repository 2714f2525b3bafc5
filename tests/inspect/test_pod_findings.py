"""Findings about pods: exits, memory, refused probes, slow starts, the choice of the class."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.events import Event
from moorage.api.pods import Pod
from moorage.inspect.pod_findings import (
    CLASS_CHOICE,
    CLASS_CHOICE_REASON,
    choice_words,
    findings_of,
    start_words,
)
from moorage.runtimeclass.start_phases import CONDITION, Measured, duration_words, format_measured

CREATED = "2026-01-01T00:00:00Z"
SEEN = datetime(2026, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)


def a_pod(*conditions: dict[str, str], container: Any = None, **status: Any) -> Pod:
    wire = {
        "metadata": {"name": "web", "namespace": "shop", "creationTimestamp": CREATED},
        "spec": {"containers": [{"name": "app", **(container or {})}]},
        "status": {"conditions": conditions, **status},
    }
    return msgspec.convert(wire, Pod)


def ended(code: int, reason: str = "Error", **more: Any) -> dict[str, Any]:
    return {"exitCode": code, "reason": reason, **more}


def a_status(**fields: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "app", **fields}]}


@pytest.mark.parametrize(
    ("status", "limits", "sentence", "remedy"),
    [
        (a_status(state={"terminated": ended(1)}), {},
         "container app ended with exit code 1",
         "see what it wrote: kubectl logs -n shop web -c app"),
        (a_status(state={"running": {}}, lastState={"terminated": ended(1)}, restartCount=3), {},
         "container app ended with exit code 1, 3 restarts",
         "see what it wrote: kubectl logs --previous -n shop web -c app"),
        (a_status(state={"terminated": ended(137, "OOMKilled")}), {"memory": "16Mi"},
         "container app ended with exit code 137 (SIGKILL), OOMKilled",
         "raise resources.limits.memory (16Mi) of container app, or use less memory"),
        (a_status(state={"terminated": ended(0, "OOMKilled")}), {},
         "container app ended with exit code 0, OOMKilled",
         "raise resources.limits.memory of container app, or use less memory"),
        (a_status(state={"terminated": ended(127)}), {},
         "container app ended with exit code 127",
         "the command was not found: correct command or image of container app"),
        (a_status(state={"terminated": ended(128, "StartError")}), {},
         "container app ended with exit code 128, StartError",
         "correct the command of container app, or its limits"),
        (a_status(state={"terminated": ended(159)}), {},
         "container app ended with exit code 159 (SIGSYS)",
         "the runtime or its seccomp profile refuses a system call of the program: run the command "
         "under other classes with `moor run --class A,B`"),
        (a_status(state={"terminated": ended(2, signal=11)}), {},
         "container app ended with exit code 2 (SIGSEGV)",
         "see what it wrote: kubectl logs -n shop web -c app"),
        # No signal has this number.
        (a_status(state={"terminated": ended(255)}), {},
         "container app ended with exit code 255",
         "see what it wrote: kubectl logs -n shop web -c app"),
    ],
)  # fmt: skip
def test_exits(status: Any, limits: Any, sentence: str, remedy: str) -> None:
    pod = a_pod(container={"resources": {"limits": limits}}, **status)
    (finding,) = findings_of(pod, ())
    assert (finding.sentence, finding.remedy) == (sentence, remedy)


@pytest.mark.parametrize(
    "status",
    [
        a_status(state={"terminated": ended(0, "Completed")}),
        a_status(state={"running": {}}, ready=True),
        a_status(state={"waiting": {"reason": "ContainerCreating"}}),
        {},
    ],
)
def test_nothing_is_found_where_nothing_failed(status: Any) -> None:
    assert findings_of(a_pod(**status), ()) == ()


def an_event(message: str, reason: str = "Unhealthy", path: str = "spec.containers{app}") -> Event:
    wire = {"reason": reason, "message": message, "involvedObject": {"fieldPath": path}}
    return msgspec.convert(wire, Event)


REFUSED = "Readiness probe failed: dial tcp 10.1.0.5:8080: connect: connection refused"


def test_a_refused_probe_names_the_port_and_what_to_do() -> None:
    probe = {"readinessProbe": {"tcpSocket": {"port": 8080}}}
    pod = a_pod(container=probe, **a_status(state={"running": {}}))
    events = [an_event("Readiness probe failed: old"), an_event(REFUSED), an_event("x", "Pulled")]
    (finding,) = findings_of(pod, events)
    assert finding.sentence == f"container app: {REFUSED}"
    assert finding.remedy == (
        "nothing listens on port 8080: let the program listen on all addresses (not 127.0.0.1), "
        "correct the probe's port, or give the program time with a startupProbe"
    )


def test_a_probe_that_passes_by_now_is_not_found() -> None:
    pod = a_pod(**a_status(state={"running": {}}, ready=True))
    assert findings_of(pod, [an_event(REFUSED)]) == ()


def measured(**milliseconds: float) -> dict[str, str]:
    message = format_measured(Measured(SEEN, milliseconds))
    return {"type": CONDITION, "status": "True", "message": message}


def test_the_phases_of_a_start_in_one_line() -> None:
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": CREATED}
    pod = a_pod(scheduled, measured(sandbox=5.2, image=2, start=1240, ready=0, other=0.3))
    assert start_words(pod) == (
        "1.25 s on the node: schedule within 1 s · deliver within 1 s · sandbox 5.2 ms · "
        "image 2.0 ms · start 1.24 s · ready 0 ms"
    )
    assert start_words(a_pod()) == ""
    assert start_words(a_pod(scheduled)) == "within 1 s in all, still starting: schedule within 1 s"


def test_a_slow_start_names_the_phase_that_took_longest() -> None:
    (finding,) = findings_of(a_pod(measured(sandbox=5, image=11_900, start=40)), ())
    assert finding.sentence == "slow start: 12 s on the node, of which image 12 s"
    assert finding.remedy.startswith("load the image beforehand")
    assert findings_of(a_pod(measured(sandbox=5, image=900)), ()) == ()


def test_a_slow_placement_is_known_to_a_second() -> None:
    scheduled = {
        "type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:40Z",
    }  # fmt: skip
    (finding,) = findings_of(a_pod(scheduled), ())
    assert finding.sentence == "slow start: 40 s (± 1 s), of which schedule 40 s (± 1 s)"


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0, "0 ms"),
        (9.94, "9.9 ms"),
        (63.4, "63 ms"),
        (1240, "1.24 s"),
        (95_000, "95 s"),
        (720_000, "12 min"),
    ],
)
def test_durations(ms: float, words: str) -> None:
    assert duration_words(ms) == words


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({}, ""),
        ({CLASS_CHOICE_REASON: "none"}, ""),
        ({CLASS_CHOICE: "gvisor"}, "gvisor was chosen at admission"),
        ({CLASS_CHOICE: "gvisor", CLASS_CHOICE_REASON: "isolation=kernel;\ncheapest"},
         "gvisor was chosen at admission: isolation=kernel; cheapest"),
    ],
)  # fmt: skip
def test_the_choice_of_a_class(annotations: dict[str, str], words: str) -> None:
    assert choice_words(annotations) == words


@given(st.text(), st.text(max_size=3000))
def test_annotations_of_anyone_stay_one_short_line(choice: str, reason: str) -> None:
    words = choice_words({CLASS_CHOICE: choice, CLASS_CHOICE_REASON: reason})
    assert len(words) <= 300
    assert words.isprintable()
