"""The whole scheduler against an API server in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

from moorage.api.meta import ObjectMeta
from moorage.api.names import Namespace
from moorage.api.pods import Pod
from moorage.scheduler import SchedulerInformers, SchedulerOptions, run_scheduler
from moorage.scheduler.informers import TRIMMED_NODES, TRIMMED_PODS
from moorage.wire.client.resources import (
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    RUNTIME_CLASSES,
    STORAGE_CLASSES,
)
from moorage.wire.client.rest import Client, UnreachableError
from tests.clocks import FakeClock, QuickClock, settle
from tests.scheduler.fake_client import FakeClient
from tests.scheduler.objects import a_class, a_node, a_pod, anti_affinity, pod_affinity

# Of a quick clock: what wakes a pod is what the test does, not that it has waited long.
OPTIONS = SchedulerOptions(longest_wait_s=60_000.0, longest_volume_wait_s=60_000.0)


def scheduling(client: FakeClient) -> AbstractAsyncContextManager[FakeClient]:
    return scheduling_with(client, None)


@asynccontextmanager
async def scheduling_with(
    client: FakeClient, informers: SchedulerInformers | None
) -> AsyncIterator[FakeClient]:
    task = asyncio.create_task(
        run_scheduler(cast("Client", client), OPTIONS, QuickClock(), informers=informers)
    )
    try:
        yield client
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), task.exception()


def a_client(*objects: Any) -> FakeClient:
    client = FakeClient()
    client.put(*objects)
    return client


def condition(pod: Pod, kind: str = "PodScheduled") -> tuple[str, str, str] | None:
    for event in pod.status.conditions:
        if event.type == kind:
            return event.status, event.reason, event.message
    return None


async def test_a_pod_is_bound_and_the_event_says_so() -> None:
    async with scheduling(a_client(a_node("n1"), a_pod("p", cpu="1"))) as client:
        assert await client.until_bound("p") == "n1"
        await client.until_event("p", "Scheduled")
        assert client.events_about("p") == [
            ("Normal", "Scheduled", "Successfully assigned default/p to n1")
        ]
        assert client.events[0]["source"] == {"component": "default-scheduler"}


async def test_unschedulable_pod_gets_the_reason_and_is_retried_for_a_new_node() -> None:
    async with scheduling(a_client(a_node("n1", cpu="1"), a_pod("p", cpu="2"))) as client:
        message = await client.until_event("p", "FailedScheduling")
        assert message.startswith("0/1 nodes are available: 1 Insufficient cpu. ")
        await client.until(lambda: condition(client.pod("p")))
        assert condition(client.pod("p")) == ("False", "Unschedulable", message)
        client.put(a_node("n2", cpu="4"))
        assert await client.until_bound("p") == "n2"


async def test_a_node_that_gains_the_handler_wakes_the_pod() -> None:
    pod = a_pod("p", runtimeClassName="kata")
    async with scheduling(
        a_client(a_class("kata"), a_node("n1", handlers=("runc",)), pod)
    ) as client:
        message = await client.until_event("p", "FailedScheduling")
        assert message.startswith(
            '0/1 nodes are available: 1 node(s) lack runtime handler "kata". '
        )
        assert await client.until_event("p", "FailedCreatePodSandBox") == (
            'Failed to create pod sandbox: no node has the runtime handler "kata" of RuntimeClass '
            '"kata"'
        )
        client.put(a_node("n1", handlers=("runc", "kata")))
        assert await client.until_bound("p") == "n1"


async def test_a_node_that_has_the_handler_but_no_room_is_no_failure_of_a_sandbox() -> None:
    pod = a_pod("p", cpu="2", runtimeClassName="kata")
    nodes = (a_node("n1", handlers=("runc",)), a_node("n2", cpu="1", handlers=("kata",)))
    async with scheduling(a_client(a_class("kata"), *nodes, pod)) as client:
        await client.until_event("p", "FailedScheduling")
        client.put(a_node("n2", cpu="2", handlers=("kata",)))
        assert await client.until_bound("p") == "n2"
        assert {reason for _, reason, _ in client.events_about("p")} <= {
            "FailedScheduling",
            "Scheduled",
        }


async def test_a_class_that_appears_wakes_the_pod() -> None:
    pod = a_pod("p", runtimeClassName="kata")
    async with scheduling(a_client(a_node("n1"), pod)) as client:
        message = await client.until_event("p", "FailedScheduling")
        assert 'RuntimeClass "kata" not found' in message
        client.put(a_class("kata"))
        assert await client.until_bound("p") == "n1"


async def test_a_pod_that_leaves_makes_room() -> None:
    other = a_pod("other", cpu="1", node="n1")
    async with scheduling(a_client(a_node("n1", cpu="1"), other, a_pod("p", cpu="1"))) as client:
        await client.until_event("p", "FailedScheduling")
        client.remove(other)
        assert await client.until_bound("p") == "n1"


async def test_a_pod_that_ends_makes_room() -> None:
    other = a_pod("other", cpu="1", node="n1", phase="Running")
    async with scheduling(a_client(a_node("n1", cpu="1"), other, a_pod("p", cpu="1"))) as client:
        await client.until_event("p", "FailedScheduling")
        client.put(a_pod("other", cpu="1", node="n1", phase="Succeeded"))
        assert await client.until_bound("p") == "n1"


async def test_a_placed_pod_wakes_those_that_want_to_be_near_it() -> None:
    near = a_pod("near", affinity=pod_affinity({"app": "db"}))
    async with scheduling(a_client(a_node("n1"), a_node("n2"), near)) as client:
        await client.until_event("near", "FailedScheduling")
        client.put(a_pod("db", labels={"app": "db"}, node="n2"))
        assert await client.until_bound("near") == "n2"


async def test_a_refused_binding_is_tried_again() -> None:
    client = a_client(a_node("n1", cpu="1"), a_pod("p", cpu="1"))
    client.refused.add("p")
    async with scheduling(client):
        assert await client.until_bound("p") == "n1"
        message = await client.until_event("p", "FailedScheduling")
        assert message == 'running Bind plugin "DefaultBinder": it is refused'


async def test_a_gated_pod_waits_for_its_gates() -> None:
    gated = a_pod("p", schedulingGates=[{"name": "wait"}])
    async with scheduling(a_client(a_node("n1"), gated)) as client:
        await client.until(lambda: condition(client.pod("p")))
        assert condition(client.pod("p")) == (
            "False",
            "SchedulingGated",
            "Scheduling is blocked due to non-empty scheduling gates",
        )
        assert client.events_about("p") == []
        client.put(a_pod("p"))
        assert await client.until_bound("p") == "n1"


async def test_pods_of_other_schedulers_are_left_alone() -> None:
    other = a_pod("other", schedulerName="someone-else")
    async with scheduling(a_client(a_node("n1"), other, a_pod("p"))) as client:
        await client.until_event("p", "Scheduled")
        assert not client.pod("other").spec.node_name
        assert client.events_about("other") == []


async def test_an_important_pod_preempts_a_lesser_one() -> None:
    low = a_pod("low", cpu="2", node="n1", priority=1)
    boss = a_pod("boss", cpu="2", priority=100)
    async with scheduling(a_client(a_node("n1", cpu="2"), low, boss)) as client:
        assert await client.until_bound("boss") == "n1"
        assert not client.has_pod("low")
        await client.until_event("low", "Preempted")
        assert client.events_about("low") == [
            ("Normal", "Preempted", "Preempted by pod uid-boss on node n1")
        ]
        (disrupted,) = [patch for name, patch in client.patches if name == "low"]
        shown = disrupted["status"]["conditions"][0]
        assert (shown["type"], shown["reason"], shown["message"]) == (
            "DisruptionTarget",
            "PreemptionByScheduler",
            "default-scheduler: preempting to accommodate a higher priority pod",
        )
        nominations = [patch["status"] for name, patch in client.patches if name == "boss"]
        assert nominations[0]["nominatedNodeName"] == "n1"


async def test_many_pods_fill_the_nodes_exactly() -> None:
    nodes = [a_node(f"n{number}", cpu="10") for number in range(10)]
    pods = [a_pod(f"p{number}", cpu="1") for number in range(100)]
    async with scheduling(a_client(*nodes, *pods)) as client:
        await client.until(lambda: all(client.pod(f"p{n}").spec.node_name for n in range(100)))
        homes = [client.pod(f"p{number}").spec.node_name for number in range(100)]
        assert all(homes.count(f"n{number}") == 10 for number in range(10))


async def test_a_pod_deleted_while_it_waits_is_forgotten() -> None:
    rule = anti_affinity({"app": "x"})
    pod = a_pod("p", cpu="2", affinity=rule)
    async with scheduling(a_client(a_node("n1", cpu="1"), pod)) as client:
        await client.until_event("p", "FailedScheduling")
        client.remove(pod)
        client.put(a_node("n2", cpu="4"), a_pod("next", cpu="1"))
        await client.until_event("next", "Scheduled")
        assert len(client.events_about("p")) == 1


async def test_an_important_pod_waits_for_its_victim_and_takes_no_other() -> None:
    lows = [a_pod(f"low{n}", cpu="2", node=f"n{n}", priority=1) for n in range(2)]
    boss = a_pod("boss", cpu="2", priority=100)
    nodes = [a_node(f"n{n}", cpu="2") for n in range(2)]
    client = a_client(*nodes, *lows, boss)
    client.keeps_victims = True
    async with scheduling(client):
        await client.until(lambda: client.deleted)
        # Something changes meanwhile that makes the scheduler look again.
        client.put(a_pod("boss", cpu="2", priority=100, labels={"touched": "yes"}))
        await client.until(lambda: len(client.events_about("boss")) == 2)
        (victim,) = client.deleted
        client.remove(client.pod(victim))
        assert await client.until_bound("boss") == victim.replace("low", "n")
        assert client.deleted == [victim]


async def test_room_is_kept_for_a_nominated_pod_after_a_restart() -> None:
    leaving = a_pod("leaving", cpu="2", node="n1", priority=1)
    boss = a_pod("boss", cpu="2", priority=100, nominated="n1", schedulerName="default-scheduler")
    async with scheduling(a_client(a_node("n1", cpu="2"), leaving, boss)) as client:
        await client.until_event("boss", "FailedScheduling")
        client.put(a_pod("sneaky", cpu="2", priority=50))
        await client.until_event("sneaky", "FailedScheduling")
        assert await client.until_bound("boss") == "n1"
        assert not client.pod("sneaky").spec.node_name


async def test_room_kept_in_vain_is_given_to_others() -> None:
    leaving = a_pod("leaving", cpu="2", node="n1", priority=1)
    boss = a_pod("boss", cpu="2", priority=100)
    client = a_client(a_node("n1", cpu="2"), leaving, boss)
    client.keeps_victims = True
    async with scheduling(client):
        await client.until(lambda: client.deleted)
        client.put(a_pod("next", cpu="2", priority=50))
        await client.until_event("next", "FailedScheduling")
        client.put(a_node("n2", cpu="2", labels={"roomy": "yes"}))
        assert await client.until_bound("boss") == "n2"
        client.remove(client.pod("leaving"))
        assert await client.until_bound("next") == "n1"


async def test_informers_list_what_the_scheduler_decides_by() -> None:
    listed: list[tuple[Any, str]] = []

    class Refusing:
        async def pages(self, resource: Any, *_: Any, field_selector: str, **__: Any) -> Any:
            listed.append((resource, field_selector))
            raise UnreachableError("not now")
            yield

    client, clock = cast("Client", Refusing()), FakeClock()
    informers = SchedulerInformers.of(client, clock)
    running = [asyncio.create_task(informer.run()) for informer in informers.all]
    await settle(20)
    ended = "status.phase!=Succeeded,status.phase!=Failed"
    lists = [*((resource, "") for resource in (
        NAMESPACES, RUNTIME_CLASSES, POD_DISRUPTION_BUDGETS, STORAGE_CLASSES, PERSISTENT_VOLUMES,
        PERSISTENT_VOLUME_CLAIMS, TRIMMED_NODES)), (TRIMMED_PODS, ended)]  # fmt: skip
    assert listed == lists
    clock.advance(1)
    await settle(20)
    assert [listed.count(one) for one in lists] == [2] * 8, "all go by the given clock"
    for task in running:
        task.cancel()
    await asyncio.wait(running)


async def test_informers_can_be_shared() -> None:
    client = a_client(a_node("n1"), a_pod("p"))
    shared = SchedulerInformers.of(cast("Client", client), QuickClock())
    runners = [asyncio.create_task(informer.run()) for informer in shared.all]
    async with scheduling_with(client, shared):
        assert await client.until_bound("p") == "n1"
    for runner in runners:
        runner.cancel()
    await asyncio.wait(runners)


async def test_a_namespace_that_gains_a_label_wakes_the_pod() -> None:
    rule: dict[str, Any] = pod_affinity({"app": "db"})
    term = rule["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    term["namespaceSelector"] = {"matchLabels": {"team": "a"}}
    db = a_pod("db", namespace="data", node="n1", labels={"app": "db"})
    async with scheduling(a_client(a_node("n1"), db, a_pod("p", affinity=rule))) as client:
        await client.until_event("p", "FailedScheduling")
        client.put(Namespace(metadata=ObjectMeta(name="data", labels={"team": "a"})))
        assert await client.until_bound("p") == "n1"
