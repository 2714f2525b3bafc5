"""Start phases: the meter under any order of events, and what is read from pods of any kind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.pods import Pod
from moorage.runtimeclass.start_phases import (
    CONDITION,
    CONTAINERS,
    CREATE,
    DELIVER,
    IMAGE,
    INIT,
    MEASURED_RESOLUTION_MS,
    NODE_PHASES,
    OTHER,
    READY,
    SANDBOX,
    SCHEDULE,
    START,
    VOLUMES,
    Measured,
    PhaseMeter,
    StartPhases,
    format_measured,
    parse_measured,
    percentile,
    phases_of,
)

SEEN = datetime(2026, 1, 1, 0, 0, 2, 250_000, tzinfo=UTC)


def at(second: int) -> str:
    return f"2026-01-01T00:00:{second:02d}Z"


def true(type_: str, second: int, **more: str) -> dict[str, str]:
    return {"type": type_, "status": "True", "lastTransitionTime": at(second), **more}


def a_pod(*conditions: dict[str, str], started: int | None = None, **more: Any) -> Pod:
    status: dict[str, Any] = {"conditions": conditions, **more.pop("status", {})}
    if started is not None:
        running = {"name": "app", "state": {"running": {"startedAt": at(started)}}}
        status["containerStatuses"] = [running | more.pop("container", {})]
    wire = {
        "metadata": {"creationTimestamp": at(0), **more.pop("metadata", {})},
        "spec": {"containers": [{"name": "app"}], **more},
        "status": status,
    }
    return msgspec.convert(wire, Pod)


def shown(phases: StartPhases | None) -> dict[str, float] | None:
    return None if phases is None else {phase.name: phase.ms for phase in phases.phases}


def test_of_steps_at_once_the_first_in_the_order_counts() -> None:
    meter = PhaseMeter(100.0)
    meter.begin(SANDBOX, 100.5)
    meter.begin(VOLUMES, 100.5)
    meter.end(SANDBOX, 101.0)
    meter.end(VOLUMES, 101.25)
    meter.begin(IMAGE, 101.25, "slow")
    meter.begin(START, 101.25, "fast")
    meter.end(START, 101.5, "fast")
    meter.end(IMAGE, 102.25, "slow")
    assert meter.milliseconds(102.5) == {
        SANDBOX: 500.0, VOLUMES: 250.0, IMAGE: 1000.0, START: 0.0, OTHER: 750.0,
    }  # fmt: skip


def test_a_step_that_fails_lasts_until_it_succeeds() -> None:
    meter = PhaseMeter(0.0)
    meter.begin(IMAGE, 0.0, "app")
    # It failed, and is repeated after a pause.
    meter.begin(IMAGE, 10.0, "app")
    meter.end(IMAGE, 11.0, "app")
    meter.begin(READY, 11.0)
    assert meter.milliseconds(12.0) == {IMAGE: 11000.0, READY: 1000.0, OTHER: 0.0}


_EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "end", "end_all"]),
        st.sampled_from(NODE_PHASES),
        st.floats(-1e6, 1e6),
        st.sampled_from(["", "app", "side"]),
    ),
    max_size=60,
)


@given(begun_s=st.floats(-1e6, 1e6), events=_EVENTS, end_s=st.floats(-1e6, 1e6))
def test_phases_are_never_negative_and_sum_up_to_the_time_that_passed(
    begun_s: float, events: list[tuple[str, str, float, str]], end_s: float
) -> None:
    """Clocks may go back: that time counts as none."""
    meter = PhaseMeter(begun_s)
    latest_s = begun_s
    for kind, phase, now_s, about in events:
        latest_s = max(latest_s, now_s)
        if kind == "end_all":
            meter.end_all(phase, now_s)
        else:
            getattr(meter, kind)(phase, now_s, about)
    latest_s = max(latest_s, end_s)
    milliseconds = meter.milliseconds(end_s)
    assert all(ms >= 0 for ms in milliseconds.values())
    # Each phase is rounded to a tenth of a millisecond.
    total_ms = 1000 * (latest_s - begun_s)
    assert sum(milliseconds.values()) == pytest.approx(total_ms, abs=0.05 * len(NODE_PHASES) + 1e-3)
    # Nothing but what began is there, and the result can be written and read.
    assert set(milliseconds) <= {phase for kind, phase, *_ in events if kind == "begin"} | {OTHER}


@given(
    st.dictionaries(st.sampled_from(NODE_PHASES), st.floats(0, 1e9), min_size=1),
    st.integers(0, 10**15).map(lambda passed: SEEN + timedelta(microseconds=passed)),
)
def test_what_is_written_can_be_read(milliseconds: dict[str, float], seen: datetime) -> None:
    rounded = {phase: round(ms, 1) for phase, ms in milliseconds.items()}
    message = format_measured(Measured(seen, milliseconds))
    assert len(message) < 512
    assert parse_measured(message) == Measured(seen, rounded)


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda data: data.decode("latin-1")))
def test_any_text_can_be_read(text: str) -> None:
    parse_measured(text)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "null",
        "[]",
        "{}",
        "sandbox 5 ms",
        '{"seen":"2026-01-01T00:00:00Z"}',
        '{"sandbox":5}',
        '{"seen":5,"sandbox":5}',
        '{"seen":"yesterday","sandbox":5}',
        '{"seen":"2026-01-01T00:00:00","sandbox":5}',
        '{"seen":"2026-01-01T00:00:00Z","sandbox":-1}',
        '{"seen":"2026-01-01T00:00:00Z","sandbox":1e300}',
        '{"seen":"2026-01-01T00:00:00Z","sandbox":1e999}',
        '{"seen":"2026-01-01T00:00:00Z","sandbox":NaN}',
        '{"seen":"2026-01-01T00:00:00Z","sandbox":"5"}',
        '{"seen":"2026-01-01T00:00:00Z","sandbox":true}',
        '{"seen":"2026-01-01T00:00:00Z","sandbox":{"ms":5}}',
        '{"seen":"2026-01-01T00:00:00Z","sandbox":5,"launch":1}',
        '{"seen":"2026-01-01T00:00:00Z","sandbox":5}' + " " * 2000,
        "[" * 1000,
    ],
)
def test_a_message_that_no_agent_writes_counts_as_absent(message: str) -> None:
    assert parse_measured(message) is None
    pod = a_pod(true("PodScheduled", 1), true(CONDITION, 2, message=message))
    assert shown(phases_of(pod)) == {SCHEDULE: 1000.0}


def measured(status: str = "True", **milliseconds: float) -> dict[str, str]:
    message = format_measured(Measured(SEEN, milliseconds))
    return true(CONDITION, 3, message=message) | {"status": status}


def test_measured_phases_are_exact_and_those_before_the_node_are_not() -> None:
    pod = a_pod(
        true("PodScheduled", 1), measured(sandbox=5.5, image=2, create=4, start=40, other=8.5)
    )
    phases = phases_of(pod)
    assert shown(phases) == {
        SCHEDULE: 1000.0, DELIVER: 1250.0, SANDBOX: 5.5, IMAGE: 2.0, CREATE: 4.0, START: 40.0,
        OTHER: 8.5,
    }  # fmt: skip
    assert phases is not None
    assert (phases.total_ms, phases.on_node_ms, phases.is_over) == (2310.0, 60.0, True)
    assert (phases.latency_ms, phases.is_measured) == (60.0, True)
    exact = [phase.name for phase in phases.phases if phase.resolution_ms == MEASURED_RESOLUTION_MS]
    assert exact == [SANDBOX, IMAGE, CREATE, START, OTHER]
    assert phases.longest is not None
    assert phases.longest.name == DELIVER


def test_a_start_that_goes_on_is_not_over() -> None:
    phases = phases_of(a_pod(true("PodScheduled", 1), measured("False", sandbox=5)))
    assert phases is not None
    assert not phases.is_over


@pytest.mark.parametrize("scheduled", [0, 3, 59])
@pytest.mark.parametrize("created", [0, 2, 3, 59])
def test_clocks_that_differ_make_no_negative_phase(created: int, scheduled: int) -> None:
    pod = a_pod(
        true("PodScheduled", scheduled),
        measured(sandbox=5),
        metadata={"creationTimestamp": at(created)},
    )
    phases = phases_of(pod)
    assert phases is not None
    assert all(phase.ms >= 0 for phase in phases.phases)
    assert sum(phase.ms for phase in phases.phases) == phases.total_ms


SCHEDULED = true("PodScheduled", 1)


@pytest.mark.parametrize(
    ("pod", "expected", "is_over"),
    [
        (a_pod(), None, None),
        (a_pod(SCHEDULED, metadata={"creationTimestamp": None}), None, None),
        (a_pod(SCHEDULED, metadata={"creationTimestamp": "now"}), None, None),
        (a_pod({**SCHEDULED, "status": "False"}), None, None),
        (a_pod({**SCHEDULED, "lastTransitionTime": "?"}), None, None),
        (a_pod(SCHEDULED), {SCHEDULE: 1000}, False),
        (a_pod(SCHEDULED, true("PodReadyToStartContainers", 3)),
         {SCHEDULE: 1000, SANDBOX: 2000}, False),
        (a_pod(SCHEDULED, true("PodReadyToStartContainers", 3), true("Ready", 9), started=5),
         {SCHEDULE: 1000, SANDBOX: 2000, CONTAINERS: 2000, READY: 4000}, True),
        # Without the condition, as before Kubernetes 1.29, the sandbox is part of the containers.
        (a_pod(SCHEDULED, true("Ready", 9), started=5),
         {SCHEDULE: 1000, CONTAINERS: 4000, READY: 4000}, True),
        # Initialized says something only where there are init containers.
        (a_pod(SCHEDULED, true("Initialized", 4), true("Ready", 9), started=5),
         {SCHEDULE: 1000, CONTAINERS: 4000, READY: 4000}, True),
        (a_pod(SCHEDULED, true("Initialized", 4), true("Ready", 9), started=5,
               initContainers=[{"name": "setup"}]),
         {SCHEDULE: 1000, INIT: 3000, CONTAINERS: 1000, READY: 4000}, True),
        # A sandbox that was replaced later has the time of its successor.
        (a_pod(SCHEDULED, true("PodReadyToStartContainers", 50), true("Ready", 9), started=5),
         {SCHEDULE: 1000, SANDBOX: 4000, CONTAINERS: 0, READY: 4000}, True),
        # Restarted: when it was started first is not known.
        (a_pod(SCHEDULED, true("Ready", 9), started=5, container={"restartCount": 1}),
         {SCHEDULE: 1000, READY: 8000}, True),
        (a_pod(SCHEDULED, started=5, status={"phase": "Succeeded"}),
         {SCHEDULE: 1000, CONTAINERS: 4000}, True),
        # The times of the API's server and the node's differ.
        (a_pod(true("PodScheduled", 9), true("Ready", 3), started=5),
         {SCHEDULE: 3000, CONTAINERS: 0, READY: 0}, True),
        (a_pod(SCHEDULED, metadata={"creationTimestamp": at(30)}), {SCHEDULE: 0}, False),
    ],
)  # fmt: skip
def test_phases_from_conditions_alone(
    pod: Pod, expected: dict[str, float] | None, is_over: bool | None
) -> None:
    phases = phases_of(pod)
    assert shown(phases) == expected
    if phases is not None:
        assert phases.is_over == is_over
        assert not phases.is_measured
        assert phases.total_ms == sum(phase.ms for phase in phases.phases)


def test_an_annotation_of_the_pods_author_counts_for_nothing() -> None:
    message = format_measured(Measured(SEEN, {SANDBOX: 99999.0}))
    names = (CONDITION, "runtime.moorage.dev/start-phases")
    pod = a_pod(SCHEDULED, metadata={"annotations": dict.fromkeys(names, message)})
    assert shown(phases_of(pod)) == {SCHEDULE: 1000}


_SECONDS = st.integers(0, 59)


@given(
    created=_SECONDS,
    moments=st.dictionaries(
        st.sampled_from(
            ["PodScheduled", "PodReadyToStartContainers", "Initialized", "Ready", CONDITION]
        ),
        _SECONDS,
    ),
    started=st.none() | _SECONDS,
    has_init=st.booleans(),
    message=st.sampled_from(["", format_measured(Measured(SEEN, {SANDBOX: 7.0, OTHER: 1.0}))]),
)
def test_whatever_the_conditions_say_the_phases_sum_up(
    created: int, moments: dict[str, int], started: int | None, has_init: bool, message: str
) -> None:
    more = {"initContainers": [{"name": "setup"}]} if has_init else {}
    conditions = [true(type_, second, message=message) for type_, second in moments.items()]
    pod = a_pod(*conditions, started=started, metadata={"creationTimestamp": at(created)}, **more)
    phases = phases_of(pod)
    if phases is None:
        return
    assert all(phase.ms >= 0 for phase in phases.phases)
    assert sum(phase.ms for phase in phases.phases) == phases.total_ms
    assert len({phase.name for phase in phases.phases}) == len(phases.phases)


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.5, None), ([3], 0.9, 3), ([3, 1, 2], 0.5, 2), ([1, 2, 3, 4, 5], 1, 5),
     ([float("nan"), 1], 0.5, 1)],
)  # fmt: skip
def test_percentiles(values: list[float], share: float, expected: float | None) -> None:
    assert percentile(values, share) == expected
