"""What each event does to the state, and whom it wakes: one event at a time, no server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from moorage.api.meta import ObjectMeta
from moorage.api.names import Namespace
from moorage.api.nodes import Node
from moorage.api.pods import Pod
from moorage.api.runtime_group import RuntimeClass
from moorage.scheduler.loop import Scheduler
from moorage.scheduler.options import SchedulerOptions
from moorage.scheduler.preemption import Preemption
from moorage.scheduler.queue import Place
from moorage.scheduler.volume_binding import VolumeBinder
from tests.clocks import FakeClock, settle
from tests.scheduler.objects import a_class, a_node, a_pod, anti_affinity, pod_affinity


class Hand:
    """Actions that are kept, with what is to be called when they fail."""

    def __init__(self) -> None:
        self.bound: list[tuple[str, str, Callable[[str], None]]] = []
        self.failures: list[tuple[str, str]] = []
        self.patches: list[tuple[str, dict[str, Any]]] = []
        self.evicted: list[tuple[str, Preemption, Callable[[Pod], None]]] = []

    def bind(self, pod: Pod, node_name: str, on_failure: Callable[[str], None]) -> None:
        self.bound.append((pod.metadata.name, node_name, on_failure))

    def report_failure(self, pod: Pod, message: str) -> None:
        self.failures.append((pod.metadata.name, message))

    def report_unknown_handler(self, pod: Pod, handler: str) -> None:
        self.failures.append((pod.metadata.name, handler))

    def patch_status(self, pod: Pod, patch: dict[str, Any]) -> None:
        self.patches.append((pod.metadata.name, patch))

    def evict(self, pod: Pod, preemption: Preemption, on_failure: Callable[[Pod], None]) -> None:
        self.evicted.append((pod.metadata.name, preemption, on_failure))


INFORMERS = (
    "namespaces", "runtime_classes", "disruption_budgets", "storage_classes", "volumes", "claims",
    "nodes", "pods",
)  # fmt: skip
INFORMER_OF: dict[type[Any], str] = {
    Namespace: "namespaces",
    RuntimeClass: "runtime_classes",
    Node: "nodes",
    Pod: "pods",
}


async def room() -> None: ...


class FakeInformer:
    """An informer that shows what the test has it show."""

    def __init__(self) -> None:
        self.notify: Callable[[Any, Any], None] = lambda *_: None

    def get(self, _name: str) -> None:
        return None

    def add_handler(self, handler: Callable[[Any, Any], None]) -> None:
        self.notify = handler

    async def wait_synced(self) -> None: ...


class Bench:
    """A scheduler that does nothing by itself."""

    def __init__(self, *objects: Any) -> None:
        self.hand = Hand()
        self.clock = FakeClock()
        self.informers = SimpleNamespace(all=(), **{name: FakeInformer() for name in INFORMERS})
        informers: Any = self.informers
        hand: Any = self.hand
        calls: Any = SimpleNamespace(room=room)
        binder = VolumeBinder(calls, self.clock, longest_wait_s=600.0)
        self.scheduler = Scheduler(informers, hand, binder, calls, SchedulerOptions(), self.clock)
        self.state = self.scheduler.state
        self.queue = self.scheduler.queue
        self.scheduler.follow()
        for obj in objects:
            self.put(obj)

    def put(self, obj: Any, before: Any = None) -> None:
        informer = INFORMER_OF[type(obj or before)]
        getattr(self.informers, informer).notify(before, obj)

    def attempt(self) -> None:
        """Try every pod that is active."""
        while self.scheduler.schedule_one(cast("asyncio.TaskGroup", None)):
            pass

    def place(self, name: str) -> Place | None:
        entry = self.queue.get(f"default/{name}")
        return entry.place if entry is not None else None

    @property
    def homes(self) -> dict[str, str]:
        return {name: node for name, node, _ in self.hand.bound}


def changed(pod: Pod, **meta: Any) -> Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, **meta))


NEAR = pod_affinity({"app": "db"})
APART = anti_affinity({"app": "db"})


def test_a_placed_pods_other_changes_wake_no_one() -> None:
    other = a_pod("other", node="n1")
    bench = Bench(a_node("n1"), other, a_pod("near", affinity=NEAR))
    bench.attempt()
    assert bench.place("near") is Place.PARKED
    annotated = changed(other, annotations={"a": "b"})
    bench.put(annotated, other)
    assert bench.place("near") is Place.PARKED
    bench.put(changed(annotated, labels={"app": "x"}), annotated)
    assert bench.place("near") is Place.BACKOFF


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("is_bound", [True, False])
def test_a_pod_that_has_ended_is_not_counted_and_does_not_wait(phase: str, is_bound: bool) -> None:
    bench = Bench(a_node("n1", cpu="1"))
    node = "n1" if is_bound else ""
    ended = a_pod("a", cpu="1", node=node, phase=phase)
    bench.put(a_pod("a", cpu="1", node=node))
    bench.put(ended, a_pod("a", cpu="1", node=node))
    assert bench.state.home_of("default/a") is None
    assert bench.state.nodes["n1"].used.get("cpu", 0) == 0
    assert len(bench.queue) == 0
    bench.put(ended)
    assert len(bench.queue) == 0


@pytest.mark.parametrize(
    ("event", "is_woken"),
    [("node gone", False), ("pod gone", True), ("pod smaller", True), ("node grows", True),
     ("node heartbeat", False), ("class", False), ("pod placed", False)],
)  # fmt: skip
def test_a_pod_without_room_is_woken_by_room(event: str, is_woken: bool) -> None:
    node, hog = a_node("n1", cpu="2"), a_pod("hog", cpu="2", node="n1")
    bench = Bench(node, a_node("n2", cpu="1"), hog, a_pod("a", cpu="2"))
    bench.attempt()
    assert bench.place("a") is Place.PARKED
    if event == "node gone":
        bench.put(None, a_node("n2", cpu="1"))
        assert "n2" not in bench.state.nodes
    elif event == "pod gone":
        bench.put(None, hog)
    elif event == "pod smaller":
        bench.put(a_pod("hog", cpu="0", node="n1"), hog)
    elif event == "node grows":
        bench.put(a_node("n1", cpu="4"), node)
    elif event == "node heartbeat":
        bench.put(a_node("n1", cpu="2"), node)
    elif event == "class":
        bench.put(a_class("kata"))
    else:
        bench.put(a_pod("new", node="n2"))
    assert bench.place("a") is (Place.BACKOFF if is_woken else Place.PARKED)


@pytest.mark.parametrize(
    ("before", "after", "is_woken"),
    [
        (None, a_class("kata"), True),
        (a_class("kata", "one"), a_class("kata", "two"), True),
        (a_class("kata", "one"), a_class("kata", "one"), False),
        (None, a_class("other"), False),
        (a_class("kata"), None, False),
    ],
)
def test_classes_wake_their_pods(before: Any, after: Any, is_woken: bool) -> None:
    bench = Bench(a_node("n1"), a_pod("a", runtimeClassName="kata"))
    bench.attempt()
    bench.put(after, before)
    assert bench.place("a") is (Place.BACKOFF if is_woken else Place.PARKED)


def test_namespaces_wake_those_that_look_at_their_labels() -> None:
    bench = Bench(a_node("n1"), a_pod("a", affinity=NEAR), a_pod("b", cpu="99"))
    bench.attempt()
    space = Namespace(metadata=ObjectMeta(name="x", labels={"a": "b"}))
    bench.put(space)
    assert (bench.place("a"), bench.place("b")) == (Place.BACKOFF, Place.PARKED)
    assert bench.state.namespace_labels("x") == {"a": "b"}
    bench.attempt()
    bench.put(space, space)
    assert bench.place("a") is Place.PARKED
    bench.put(None, space)
    assert bench.place("a") is Place.BACKOFF
    assert bench.state.namespace_labels("x") == {}


@pytest.mark.parametrize(
    ("after", "place"),
    [
        (a_pod("a", cpu="99"), Place.PARKED),
        (changed(a_pod("a", cpu="99"), annotations={"a": "b"}), Place.PARKED),
        (a_pod("a", cpu="99", labels={"a": "b"}), Place.ACTIVE),
        (a_pod("a", cpu="98"), Place.ACTIVE),
        (a_pod("a", cpu="99", schedulerName="other"), None),
        (changed(a_pod("a", cpu="99"), deletion_timestamp="2026-01-01T00:00:00Z"), None),
        (a_pod("a", cpu="99", phase="Failed"), None),
        (None, None),
    ],
)
def test_changes_of_a_waiting_pod(after: Pod | None, place: Place | None) -> None:
    before = a_pod("a", cpu="99")
    bench = Bench(a_node("n1"), before)
    bench.attempt()
    bench.put(after, before)
    assert bench.place("a") is place
    if place is not None:
        entry = bench.queue.get("default/a")
        assert entry is not None
        assert entry.pod is after


def test_a_pod_of_the_same_name_is_another_one() -> None:
    first, second = a_pod("a", cpu="99"), a_pod("a", cpu="1", uid="second")
    bench = Bench(a_node("n1"), first)
    bench.attempt()
    bench.put(second, first)
    entry = bench.queue.get("default/a")
    assert entry is not None
    assert (entry.pod, entry.attempts, entry.place) == (second, 0, Place.ACTIVE)
    bench.attempt()
    assert bench.homes == {"a": "n1"}


def test_a_pod_that_is_being_bound_is_left_to_its_binding() -> None:
    pod = a_pod("a", cpu="1")
    bench = Bench(a_node("n1", cpu="1"), pod)
    bench.attempt()
    leaving = changed(pod, deletion_timestamp="2026-01-01T00:00:00Z")
    bench.put(leaving, pod)
    assert bench.state.is_assumed("default/a")
    # The server refused: it is deleted, so it no longer waits, and its room is free.
    bench.hand.bound[0][2]("refused")
    assert len(bench.queue) == 0
    assert bench.state.nodes["n1"].used.get("cpu", 0) == 0
    assert bench.hand.failures == []


def test_a_refused_binding_is_reported_and_tried_after_a_pause() -> None:
    bench = Bench(a_node("n1", cpu="1"), a_pod("a", cpu="1"))
    bench.attempt()
    bench.put(a_pod("b", cpu="1"))
    bench.attempt()
    assert bench.place("b") is Place.PARKED
    bench.hand.bound[0][2]("refused")
    assert bench.place("a") is Place.BACKOFF
    assert bench.place("b") is Place.BACKOFF, "the room is free again"
    assert ("a", "refused") in bench.hand.failures
    conditions = [patch["status"]["conditions"][0] for name, patch in bench.hand.patches
                  if name == "a"]  # fmt: skip
    assert [(condition["reason"], condition["message"]) for condition in conditions] == [
        ("SchedulerError", "refused")
    ]


def test_a_refusal_of_a_pod_that_has_gone_meanwhile_frees_its_room_only() -> None:
    pod = a_pod("a", cpu="1")
    bench = Bench(a_node("n1", cpu="1"), pod)
    bench.attempt()
    bench.put(None, pod)
    bench.hand.bound[0][2]("refused")
    assert (bench.hand.failures, bench.hand.patches, len(bench.queue)) == ([], [], 0)


def test_a_victim_that_could_not_be_deleted_is_no_longer_leaving() -> None:
    low = a_pod("low", cpu="1", node="n1", priority=1)
    bench = Bench(a_node("n1", cpu="1"), low, a_pod("boss", cpu="1", priority=100))
    bench.attempt()
    ((name, preemption, on_failure),) = bench.hand.evicted
    assert (name, preemption.node_name) == ("boss", "n1")
    assert bench.state.is_leaving("default/low")
    assert bench.place("boss") is Place.PARKED
    on_failure(low)
    assert not bench.state.is_leaving("default/low")
    assert bench.place("boss") is Place.ACTIVE


def test_a_nomination_that_leads_nowhere_frees_the_room_that_was_kept() -> None:
    boss = a_pod("boss", cpu="2", priority=100, nominated="n1")
    bench = Bench(a_node("n1", cpu="1"), boss, a_pod("small", cpu="1"))
    assert [nominee.pod for nominee in bench.state.nominated_on("n1")] == [boss]
    bench.attempt()
    assert list(bench.state.nominated_on("n1")) == []
    assert bench.homes == {"small": "n1"}
    (patch,) = [patch for name, patch in bench.hand.patches if name == "boss"]
    assert patch["status"]["nominatedNodeName"] is None


def test_a_pod_that_is_gone_takes_its_nomination_with_it() -> None:
    boss = a_pod("boss", cpu="1", priority=100, nominated="n1")
    hog = a_pod("hog", cpu="1", node="n1", priority=1000)
    bench = Bench(a_node("n1", cpu="1"), boss, hog, a_pod("small", cpu="1", priority=1))
    bench.attempt()
    bench.put(None, boss)
    assert not bench.state.has_nominations
    assert bench.place("boss") is None


@pytest.mark.parametrize(("reason", "patches"), [("SchedulingGated", 0), ("Unschedulable", 1)])
def test_gated_pod_is_reported_once(reason: str, patches: int) -> None:
    shown = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": reason}]}
    gated = a_pod("a", schedulingGates=[{"name": "g"}], status=shown)
    bench = Bench(gated)
    assert len(bench.hand.patches) == patches
    assert len(bench.queue) == 0


def test_pods_that_others_keep_away_are_woken_by_those_that_leave_their_node() -> None:
    db = a_pod("db", node="n1", labels={"app": "db"})
    bench = Bench(a_node("n1"), db, a_pod("apart", affinity=APART))
    bench.attempt()
    assert bench.place("apart") is Place.PARKED
    bench.put(None, db)
    assert bench.place("apart") is Place.BACKOFF
    bench.attempt()
    assert bench.homes == {"apart": "n1"}


async def test_others_have_a_turn_after_some_decisions() -> None:
    bench = Bench()
    deciding = asyncio.create_task(bench.scheduler.run())
    await settle(5)
    for number in range(40):
        bench.put(a_pod(f"p{number}"))
    tried = []
    for _ in range(4):
        await asyncio.sleep(0)
        tried.append(len(bench.hand.failures))
    assert tried == [16, 32, 40, 40]
    deciding.cancel()
    await asyncio.wait([deciding])
