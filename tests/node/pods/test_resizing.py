"""Resize decisions: updates, restarts, their order, and limits below what is used."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from moorage.api.pods import Pod
from moorage.node.cgroups.values import UNLIMITED, CgroupValues
from moorage.node.pod_facts.labels import Given
from moorage.node.pod_facts.resources import allocation_of, given_by
from moorage.node.pods.allocations import (
    AllocationRecord,
    Change,
    Resize,
    ResizeInputs,
    Update,
    change_of,
    grown,
    lowers_memory,
    memory_complaints,
    shrinking,
    summary,
    updates,
    urgency,
)
from moorage.node.pods.plan import Kill, Plan, Probed, Reason, Start, decide
from moorage.node.pods.resizer import PodResizer
from tests.clocks import FakeClock
from tests.node.objects import a_container, a_pod, a_view, engine_has, exited, wire_container

MI = 1 << 20


def resources(cpu: str = "", memory: str = "", *, limits: Any = None) -> dict[str, Any]:
    requests = {name: text for name, text in (("cpu", cpu), ("memory", memory)) if text}
    return {"requests": requests, "limits": limits or {}}


def given(cpu: str = "", memory: str = "", *, limit: str = "", whole: Any = None) -> Given:
    limits = {"memory": limit} if limit else {}
    own = {"requests": resources(cpu, memory)["requests"], "limits": limits}
    return msgspec.convert({"resources": own, "pod": whole}, Given)


RESTARTS = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]


@pytest.mark.parametrize(
    ("had", "wants", "policy", "change"),
    [
        (given("1"), resources("1"), (), Change.NONE),
        (given("1"), resources("1000m"), (), Change.NONE),
        (given("1"), resources("2"), (), Change.UPDATE),
        (given("1"), resources("1", limits={"cpu": "2"}), (), Change.UPDATE),
        (given("1", "1Gi"), resources("2", "1Gi"), RESTARTS, Change.UPDATE),
        (given("1", "1Gi"), resources("1", "2Gi"), RESTARTS, Change.RESTART),
        (given("1", "1Gi", limit="2Gi"), resources("1", "1Gi"), RESTARTS, Change.RESTART),
        (None, resources("2"), (), Change.NONE),
    ],
)
def test_what_a_container_needs(had: Given, wants: Any, policy: Any, change: Change) -> None:
    container = a_container(resources=wants, resizePolicy=policy)
    assert change_of(a_pod(), container, had) is change


def test_a_pod_level_limit_counts_for_a_container_without_one() -> None:
    pod = a_pod(resources={"limits": {"memory": "2Gi"}})
    (container,) = pod.spec.containers
    assert change_of(pod, container, given(whole={"limits": {"memory": "1Gi"}})) is Change.UPDATE
    own = a_container(resources=resources(memory="1Gi"))
    had = Given(own.resources, given(whole={"limits": {"memory": "3Gi"}}).pod)
    assert change_of(pod, own, had) is Change.UPDATE


def two(first: Any, second: Any, **more: Any) -> Pod:
    return a_pod(
        wire_container("a", resources=first, **more), wire_container("b", resources=second)
    )


SMALL = resources("1", "1Gi", limits={"memory": "1Gi"})
LARGE = resources("1", "2Gi", limits={"memory": "2Gi"})
VIEW = a_view(engine_has("a"), engine_has("b"))


def plan(
    pod: Pod, view: Any = VIEW, busy: str = "", resizer: PodResizer | None = None, **inputs: Any
) -> Plan:
    resizing = resizer.inputs(holds_starts=False) if resizer else ResizeInputs(**inputs)
    return decide(pod, view, Probed(), frozenset(busy.split()), resizing)


def test_those_that_get_less_memory_come_first() -> None:
    had = {"a-0": given("1", "1Gi", limit="1Gi"), "b-0": given("1", "2Gi", limit="2Gi")}
    found = updates(two(LARGE, SMALL), VIEW, ResizeInputs(given=had))
    assert [update.container.name for update in found] == ["b", "a"]


def test_a_container_whose_resize_did_not_end_is_resized_whatever_it_is_said_to_have() -> None:
    had = {"a-0": given("1", "2Gi", limit="2Gi"), "b-0": given("1", "1Gi", limit="1Gi")}
    pod = two(LARGE, SMALL)
    assert updates(pod, VIEW, ResizeInputs(given=had)) == ()
    (update,) = updates(pod, VIEW, ResizeInputs(given=had, unsure=frozenset({"a-0"})))
    assert (update.container.name, update.after) == ("a", had["a-0"])
    assert shrinking(Resize((update,))) == [update]


def test_a_resize_taken_back_after_the_agent_was_killed_in_it_is_taken_back() -> None:
    before, wanted = two(SMALL, SMALL), two(LARGE, SMALL)
    events: Any = Mock()
    had = {f"{one.name}-0": given_by(before, one) for one in before.spec.containers}
    record = AllocationRecord(allocation_of(before), had)
    resizer = PodResizer(before, events, FakeClock(), record)
    resizer.update(wanted)
    resizer.grant()
    resizer.observe(VIEW, is_live=True)
    resize = plan(resizer.pod, resizer=resizer).resize
    assert resize is not None
    resizer.begins(resize)
    # Here the record is written, the engine updates the container, and the agent is killed.
    later = PodResizer(before, events, FakeClock(), resizer.record())
    later.grant()
    later.observe(VIEW, is_live=True)
    again = plan(later.pod, resizer=later).resize
    assert again is not None
    assert [update.container.name for update in again.updates] == ["a"]
    later.begins(again)
    later.updated(again.updates[0])
    assert later.record().unsure == frozenset()


def test_a_resize_waits_for_what_is_under_way() -> None:
    pod, had = two(LARGE, SMALL), {"a-0": given("1")}
    assert plan(pod, given=had, is_due=True).resize is not None
    assert plan(pod, busy="b", given=had, is_due=True).resize is None
    assert plan(pod, given={}, is_due=False).resize is None
    assert plan(pod, given={}, is_due=True).resize == Resize()


def test_what_must_restart_is_stopped_before_the_pod_is_resized() -> None:
    pod = two(LARGE, SMALL, resizePolicy=RESTARTS)
    decided = plan(pod, given={"a-0": given("1", "1Gi", limit="1Gi")}, is_due=True,
                   holds_starts=True)  # fmt: skip
    assert decided.resize is None
    (kill,) = decided.kill
    assert (kill.message, kill.reason) == (
        "Container a resize requires restart", Reason.RESIZE,
    )  # fmt: skip
    view = a_view(exited("a", 0), engine_has("b"))
    after = plan(pod, view, stopped=frozenset({"a-0"}), is_due=True, holds_starts=True)
    assert (after.start, after.resize) == ((), Resize())


@pytest.mark.parametrize("policy", ["Always", "OnFailure"])
def test_what_was_stopped_for_a_resize_starts_again(policy: str) -> None:
    pod = a_pod(restartPolicy=policy)
    view = a_view(exited("app", 0))
    decided = decide(pod, view, Probed(), frozenset(), ResizeInputs(stopped=frozenset({"app-0"})))
    assert [start.name for start in decided.start if isinstance(start, Start)] == ["app"]


def test_a_container_is_killed_for_one_reason_at_a_time() -> None:
    pod = two(LARGE, SMALL, resizePolicy=RESTARTS)
    view = a_view(engine_has("a", image="old:1"), engine_has("b"))
    decided = plan(pod, view, given={"a-0": given("1", "1Gi")})
    assert [kill.reason for kill in decided.kill if isinstance(kill, Kill)] == [Reason.CHANGED]


def values(memory: int | None = None, quota: int | None = None) -> CgroupValues:
    return CgroupValues(memory_bytes=memory, quota_us=quota)


@pytest.mark.parametrize(
    ("current", "wanted", "first"),
    [
        (values(1, 10), values(2, 20), values(2, 20)),
        (values(2, 20), values(1, 10), values()),
        (values(1, 20), values(2, 10), values(2)),
        (values(UNLIMITED, UNLIMITED), values(2, 10), values()),
        (values(1, 10), values(UNLIMITED, None), values(UNLIMITED)),
        (values(), values(1, 1), values()),
    ],
)
def test_the_pods_cgroup_grows_before_its_containers(
    current: CgroupValues, wanted: CgroupValues, first: CgroupValues
) -> None:
    assert grown(current, wanted) == first


def update(before: Given, after: Given) -> Update:
    return Update(engine_has("app"), before, after)


def test_a_limit_below_what_is_used_is_refused() -> None:
    smaller = Resize((update(given(limit="10Mi"), given(limit="5Mi")),))
    larger = Resize((update(given(limit="5Mi"), given(limit="10Mi")),))
    current, wanted = values(10 * MI), values(5 * MI)
    assert lowers_memory(current, wanted, Resize())
    assert lowers_memory(wanted, current, smaller)
    assert not lowers_memory(wanted, current, larger)
    assert memory_complaints(current, wanted, Resize(), 4 * MI, {}) == []
    assert memory_complaints(current, wanted, Resize(), 5 * MI, {}) == [
        "attempting to set pod memory limit (5242880) below current usage (5242880)"
    ]
    assert memory_complaints(current, wanted, Resize(), None, {}) == ["missing pod memory usage"]
    used = {"app-0": 6 * MI}
    assert memory_complaints(wanted, current, smaller, 6 * MI, used) == [
        'attempting to set container "app" memory limit (5242880) below current usage (6291456)'
    ]
    assert memory_complaints(wanted, current, smaller, 6 * MI, {}) == [
        'missing container "app" memory usage'
    ]


def test_smaller_important_and_patient_resizes_come_first() -> None:
    def asks(cpu: str, priority: int = 0, limits: Any = None) -> Pod:
        own = resources(cpu, "1Gi", limits=limits)
        return a_pod(wire_container(resources=own), priority=priority)

    had = allocation_of(asks("1"))
    full = {"cpu": "2", "memory": "1Gi"}
    keys = [
        urgency(asks("500m"), had, ""),
        urgency(asks("2", 5), had, "2026-01-02"),
        urgency(asks("2", limits=full), had, "2026-01-02"),
        urgency(asks("2"), had, "2026-01-01"),
        urgency(asks("2"), had, "2026-01-02"),
        urgency(asks("2"), had, ""),
    ]
    assert keys == sorted(keys)


def test_an_event_lists_what_was_asked_for() -> None:
    sidecar = wire_container("s", restartPolicy="Always")
    pod = a_pod(wire_container(resources=resources("1", limits={"memory": "2Gi", "cpu": "1"})),
                initContainers=[sidecar])  # fmt: skip
    assert summary("Pod resize started", pod, 3) == (
        'Pod resize started: {"initContainers":[{"name":"s","resources":{}}],"containers":[{"name":'
        '"app","resources":{"limits":{"cpu":"1","memory":"2Gi"},"requests":{"cpu":"1"}}}],'
        '"generation":3}'
    )
    assert summary("x", a_pod(), 1, "why").endswith('"generation":1,"error":"why"}')
