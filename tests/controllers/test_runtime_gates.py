"""Gates of pods that wait for a handler: what goes when, and what is said, in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from moorage.api.errors import ConflictError
from moorage.api.runtime_group import (
    HANDLER_AVAILABLE,
    HANDLER_GATE,
    HELD_FOR_ANNOTATION,
    feature_label,
    handler_label,
)
from moorage.controllers.runtimeclasses import profile_informer
from moorage.controllers.runtimegates import RuntimeGateController
from moorage.controllers.runtimegates.verdict import Verdict, Verdicts, judge
from moorage.runtimeclass.class_index import ClassIndex
from moorage.runtimeclass.needs import parse_needs
from moorage.runtimeclass.placing import hold, require_labels
from moorage.runtimeclass.usable_nodes import REQUIRED
from moorage.wire.client.resources import NODES, PODS, RUNTIME_CLASSES, RUNTIME_PROFILES
from tests.controllers.memory import Json, MemoryClient, World
from tests.runtimeclass.indexes import profile

KATA = handler_label("kata")
GPU = feature_label("kata", "gpu")


def node(name: str, *labels: str, handlers: tuple[str, ...] = ("runc",)) -> Json:
    return {
        "metadata": {"name": name, "labels": dict.fromkeys(labels, "true")},
        "status": {"runtimeHandlers": [{"name": handler} for handler in handlers]},
    }


def runtime_class(handler: str = "kata") -> Json:
    return {"metadata": {"name": "kata", "uid": f"uid-{handler}"}, "handler": handler}


def pod(name: str = "p", *, is_gated: bool = True, needs: str = "", **spec: Any) -> Json:
    metadata: Json = {"name": name, "uid": f"uid-{name}"}
    spec = {"runtimeClassName": "kata", "containers": [{"name": "c"}], **spec}
    if is_gated:
        require_labels(spec, [KATA])
        hold(metadata, spec, parse_needs(needs) if needs else parse_needs(""))
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


@pytest.fixture
def world() -> World:
    """A node whose agent reports runc alone, and a class of Kata."""
    world = World()
    world.client.put(NODES, node("a"))
    world.client.put(RUNTIME_PROFILES, msgspec.to_builtins(profile("a", "runc")))
    world.client.put(RUNTIME_CLASSES, runtime_class())
    return world


@asynccontextmanager
async def reconciling(
    world: World, judge: Callable[..., Verdict] = judge
) -> AsyncIterator[MemoryClient]:
    profiles = profile_informer(world.client, world.clock)
    controller = RuntimeGateController(
        world.client, world.informers, profiles, world.recorder, world.clock, judge
    )
    async with world.running(controller.run(), profiles.run()) as client:
        await world.settled(1)
        yield client


def found(client: MemoryClient, name: str = "p") -> Json:
    obj = client.find(PODS, name)
    assert obj is not None
    return obj


def condition(client: MemoryClient, name: str = "p") -> tuple[str, str] | None:
    return condition_of(found(client, name))


def condition_of(pod: Json) -> tuple[str, str] | None:
    conditions = pod["status"].get("conditions", ())
    one = next((one for one in conditions if one["type"] == HANDLER_AVAILABLE), None)
    return (one["status"], one["reason"]) if one else None


def gates(client: MemoryClient, name: str = "p") -> list[str]:
    return [gate["name"] for gate in found(client, name)["spec"].get("schedulingGates", ())]


async def test_a_gate_goes_when_a_node_gains_the_handler(world: World) -> None:
    world.client.put(PODS, pod(schedulingGates=[{"name": "example.com/mine"}]))
    async with reconciling(world) as client:
        assert condition(client) == ("False", "HandlerUnavailable")
        assert gates(client) == ["example.com/mine", HANDLER_GATE]
        assert client.events[0][1:3] == ("Warning", "HandlerUnavailable")
        assert 'waiting for a node with the handler "kata"' in client.events[0][3]
        client.put(NODES, node("a", KATA))
        await world.settled(1)
        assert gates(client) == ["example.com/mine"]
        assert condition(client) == ("True", "HandlerAvailable")
        await world.settled(1)
        assert client.events[-1][1:3] == ("Normal", "HandlerAvailable")
        client.requests.clear()
        client.put(NODES, node("b", KATA))
        await world.settled(5)
        assert client.writes == []


async def test_what_was_written_is_not_said_again_while_the_watch_is_late(world: World) -> None:
    world.client.put(PODS, pod())
    async with reconciling(world) as client:
        late: list[Json] = []

        def is_timely(resource: Any, wire: Json) -> bool:
            if resource is PODS and condition_of(wire) == ("True", "HandlerAvailable"):
                late.append(wire)
                return False
            return True

        client.shows = is_timely
        client.put(NODES, node("a", KATA))
        await world.settled(1)
        assert gates(client) == []
        for wire in late:
            client.send(PODS, "MODIFIED", wire)
        await world.settled(1)
        said = [reason for _, _, reason, _ in client.events]
        assert said.count("HandlerAvailable") == 1
        # What changes after that is said.
        client.put(NODES, node("a"))
        await world.settled(1)
        assert condition(client) == ("False", "HandlerUnavailable")


async def test_a_released_pod_requires_what_its_nodes_are_known_for_by_then(world: World) -> None:
    world.client.put(PODS, pod(needs="gpu"))
    async with reconciling(world) as client:
        client.put(NODES, node("b", KATA, GPU))
        client.put(RUNTIME_PROFILES, msgspec.to_builtins(profile("b", "kata", has=["gpu"])))
        await world.settled(1)
        assert gates(client) == []
        assert found(client)["spec"]["nodeSelector"] == {GPU: "true"}
        assert HELD_FOR_ANNOTATION not in found(client)["metadata"]["annotations"]


@pytest.mark.parametrize(
    "requirement",
    [
        {"key": GPU, "operator": "In", "values": ["true"]},
        {"key": GPU, "operator": "Exists"},
    ],
)
async def test_a_label_that_only_one_term_requires_is_required_at_the_release(
    world: World, requirement: Json
) -> None:
    """Terms are ORed: by the other one the pod could reach a node without the feature."""
    anywhere = {"key": "kubernetes.io/os", "operator": "DoesNotExist"}
    terms = [{"matchExpressions": [anywhere, requirement]}, {"matchExpressions": [anywhere]}]
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    world.client.put(PODS, pod(needs="gpu", affinity=affinity))
    async with reconciling(world) as client:
        client.put(NODES, node("b", KATA, GPU))
        client.put(RUNTIME_PROFILES, msgspec.to_builtins(profile("b", "kata", has=["gpu"])))
        await world.settled(1)
        assert gates(client) == []
        assert found(client)["spec"]["nodeSelector"] == {GPU: "true"}


def test_pods_of_many_kinds_leave_a_bounded_number_of_verdicts() -> None:
    verdicts = Verdicts(ClassIndex(), most=10)
    for number in range(100):
        spec = {"runtimeClassName": "kata", "nodeSelector": {"mine": str(number)}}
        verdict = verdicts.on({}, spec, (), is_placeable=True)
        assert verdict == judge({}, spec, ClassIndex())
        assert len(verdicts) <= 10


async def test_a_class_that_goes_or_gets_another_handler_is_said(world: World) -> None:
    world.client.put(PODS, pod())
    async with reconciling(world) as client:
        client.drop(RUNTIME_CLASSES, "kata")
        await world.settled(1)
        assert condition(client) == ("False", "RuntimeClassMissing")
        client.put(RUNTIME_CLASSES, runtime_class("runc"))
        client.put(NODES, node("a", handler_label("runc")))
        await world.settled(1)
        assert condition(client) == ("False", "HandlerChanged")
        assert gates(client) == [HANDLER_GATE]
        client.put(NODES, node("a", handler_label("runc"), KATA))
        await world.settled(1)
        assert gates(client) == []


async def test_a_gate_that_a_user_removed_stays_removed_and_the_condition_stays_true(
    world: World,
) -> None:
    world.client.put(PODS, pod())
    async with reconciling(world) as client:
        free = found(client)
        free["spec"].pop("schedulingGates")
        client.put(PODS, free)
        await world.settled(1)
        assert condition(client) == ("False", "HandlerUnavailable")
        client.put(NODES, node("a", KATA))
        await world.settled(1)
        assert condition(client) == ("True", "HandlerAvailable")


async def test_gates_go_where_nothing_is_known_of_handlers_any_more(world: World) -> None:
    world.client.put(PODS, pod())
    async with reconciling(world) as client:
        client.drop(RUNTIME_PROFILES, "a.runc")
        await world.settled(1)
        assert gates(client) == []


async def test_a_pod_that_bypassed_admission_gets_the_remedy(world: World) -> None:
    world.client.put(PODS, pod("free", is_gated=False))
    world.client.put(PODS, pod("bound", is_gated=False, nodeName="a"))
    async with reconciling(world) as client:
        assert condition(client, "free") == ("False", "NotPlaced")
        assert condition(client, "bound") == ("False", "HandlerUnavailable")
        await world.settled(1)
        texts = {event[0]: event[3] for event in client.events}
        assert "was not placed by the webhook" in texts["free"]
        assert "node a, to which the pod is bound, lacks the handler" in texts["bound"]
        # It starts once the runtime is there, and what was said of it does not stay.
        running = {**found(client, "bound"), "metadata": {**found(client, "bound")["metadata"]}}
        client.put(NODES, node("a", KATA))
        await world.settled(1)
        assert condition(client, "bound") == ("True", "HandlerAvailable")
        assert running


@pytest.mark.parametrize(
    "spec",
    [
        {"runtimeClassName": None},
        {"runtimeClassName": "legacy"},
        {"nodeName": "unknown"},
        {"nodeSelector": {"pool": "empty"}},
    ],
)
async def test_other_pods_are_left_alone(world: World, spec: Json) -> None:
    world.client.put(PODS, pod(is_gated=False, **spec))
    system = {"name": "s", "namespace": "kube-system"}
    world.client.put(PODS, {**pod("system", is_gated=False), "metadata": system})
    async with reconciling(world) as client:
        await world.settled(5)
        assert client.writes == []


async def test_a_pod_that_starts_loses_its_condition_of_a_lack(world: World) -> None:
    """The server's watch of pods in the phase Pending says that it is gone."""
    world.client.put(PODS, pod(is_gated=False, nodeName="a"))
    async with reconciling(world) as client:
        assert condition(client) == ("False", "HandlerUnavailable")
        present = found(client)
        client.drop(PODS, "p")
        present["status"]["phase"] = "Running"
        client.put_unseen(PODS, present)
        await world.settled(1)
        assert condition(client) == ("True", "PodStarted")


async def test_what_was_said_of_a_pod_is_not_believed_of_the_next_with_its_name(
    world: World,
) -> None:
    world.client.put(PODS, pod(is_gated=False, nodeName="a"))
    async with reconciling(world) as client:
        client.shows = lambda resource, wire: (
            resource is not PODS or wire["status"]["phase"] == "Pending"
        )
        present = found(client)
        client.drop(PODS, "p")
        present["status"]["phase"] = "Running"
        client.put_unseen(PODS, present)
        await world.settled(1)
        assert condition(client) == ("True", "PodStarted")
        client.put(NODES, node("a", KATA))
        again = pod()
        again["metadata"]["uid"] = "another"
        client.put(PODS, again)
        await world.settled(1)
        assert gates(client) == []
        assert condition(client) == ("True", "HandlerAvailable")


@pytest.mark.parametrize(
    ("namespace", "class_name"),
    [("default", None), ("default", ""), ("default", "legacy"), ("kube-system", "kata")],
)
async def test_a_gate_of_a_pod_that_is_not_placed_by_a_handler_is_removed(
    world: World, namespace: str, class_name: str | None
) -> None:
    gated = pod(schedulingGates=[{"name": HANDLER_GATE}, {"name": "example.com/mine"}],
                is_gated=False, runtimeClassName=class_name)  # fmt: skip
    gated["metadata"]["namespace"] = namespace
    world.client.put(PODS, gated)
    async with reconciling(world) as client:
        await world.settled(1)
        left = client.find(PODS, "p", namespace)
        assert left is not None
        assert left["spec"]["schedulingGates"] == [{"name": "example.com/mine"}]
        assert "nodeSelector" not in left["spec"]
        ((_, kind, reason, message),) = client.events
        assert (kind, reason) == ("Warning", "SchedulingGateRemoved")
        assert "it is for pods with a RuntimeClass" in message
        assert condition_of(left) is None


async def test_a_released_pod_requires_what_its_fields_demand(world: World) -> None:
    privileged = {"name": "c", "securityContext": {"privileged": True}}
    world.client.put(PODS, pod(containers=[privileged]))
    async with reconciling(world) as client:
        for name, has in (("b", []), ("c", ["privileged"])):
            report = profile(name, "kata", has=has, lacks=[] if has else ["privileged"])
            client.put(RUNTIME_PROFILES, msgspec.to_builtins(report))
        can = feature_label("kata", "privileged")
        client.put(NODES, node("b", KATA))
        client.put(NODES, node("c", KATA, can))
        await world.settled(1)
        assert gates(client) == []
        assert found(client)["spec"]["nodeSelector"] == {can: "true"}


async def test_a_pod_that_changed_since_it_was_judged_is_judged_again(world: World) -> None:
    world.client.put(PODS, pod())
    async with reconciling(world) as client:
        client.failures.append(("patch", PODS.plural, ConflictError("the object was modified")))
        client.put(NODES, node("a", KATA))
        await world.settled(1)
        await world.settled(1)
        assert not client.failures
        assert gates(client) == []
        assert client.asked("get", PODS) == []


async def test_a_node_whose_labels_change_all_the_time_has_pods_looked_at_seldom(
    world: World,
) -> None:
    looks = 0

    def counting(*given: Any, **more: Any) -> Any:
        nonlocal looks
        looks += 1
        return judge(*given, **more)

    world.client.put(PODS, pod())
    async with reconciling(world, counting) as client:
        for number in range(100):
            client.put(NODES, node("a", *([handler_label("flips")] if number % 2 else [])))
            await world.settled(0.5)
        assert looks <= 20 + 100 * 0.5 / 10 + 2
        # Another node is looked at at once.
        client.put(NODES, node("b", KATA))
        await world.settled(0.5)
        assert gates(client) == []


@pytest.mark.slow
async def test_many_pods_that_wait_are_judged_once_for_each_template(
    world: World,
) -> None:
    judged = 0

    def counting(*given: Any, **more: Any) -> Any:
        nonlocal judged
        judged += 1
        return judge(*given, **more)

    count = 900
    for number in range(count):
        world.client.put(PODS, pod(f"p{number}"))

    def having(state: tuple[str, str]) -> int:
        return sum(condition_of(one) == state for one in world.client.all(PODS))

    async with reconciling(world, counting) as client:
        while having(("False", "HandlerUnavailable")) < count:
            await world.settled(1)
        assert judged == 1
        client.requests.clear()
        client.put(NODES, node("a", KATA))
        while having(("True", "HandlerAvailable")) < count:
            await world.settled(1)
        await world.settled(1)
        assert not any(one["spec"].get("schedulingGates") for one in client.all(PODS))
        # One for pods with the gate, one for those that have lost it.
        assert judged == 3
        # The gate, and the condition; seldom twice, where the watch is behind.
        assert 2 * count <= len(client.writes) < 2.1 * count
