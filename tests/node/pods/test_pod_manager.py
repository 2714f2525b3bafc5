from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from moorage.api.pods import Pod
from moorage.node.machine.node_status import NodeShutdown
from moorage.node.machine.pressure import NodePressure
from moorage.node.pod_facts.resources import allocation_of
from moorage.node.pods.allocations import AllocationRecord
from moorage.node.pods.pod_manager import PodManager
from moorage.node.pods.resizer import PodResizer
from moorage.node.runtime.views import PodView
from moorage.node.status.inputs import TerminationReason
from tests.clocks import FakeClock, settle
from tests.node.objects import a_node, a_pod, a_sandbox, wire_container


class FakeWorker:
    """Lives until it is removed."""

    def __init__(
        self,
        pod: Pod,
        context: Any,
        *,
        refusal: TerminationReason | None = None,
        record: AllocationRecord | None = None,
    ) -> None:
        del context
        self.uid, self.pod, self.refusal = pod.metadata.uid, pod, refusal
        events: Any = SimpleNamespace(pod=lambda *_: None)
        self.resizer = PodResizer(pod, events, FakeClock(), record)
        self.is_active = self.is_shown = refusal is None
        self.waits_for: TerminationReason | None = None
        self.deferred: TerminationReason | None = None
        self.end: Any = None
        self.calls: list[str] = []
        self._removed = asyncio.Event()

    async def run(self) -> None:
        await self._removed.wait()

    def wake(self) -> None:
        self.calls.append("wake")

    def retry_sandbox(self) -> None:
        self.calls.append("retry")

    @property
    def wants_resize(self) -> bool:
        return self.is_active and self.resizer.is_pending

    def on_over(self, listener: Any) -> None:
        self.end = listener

    @property
    def is_waiting(self) -> bool:
        return self.waits_for is not None

    def wait_for_room(self, why: TerminationReason) -> None:
        self.waits_for = why

    def grant_room(self) -> None:
        self.waits_for = None

    def grant_resize(self) -> None:
        self.resizer.grant()
        self.pod, self.deferred = self.resizer.pod, None

    def defer_resize(self, why: TerminationReason) -> None:
        self.resizer.defer(why.reason, why.message)
        self.deferred = why

    def update(self, pod: Pod) -> None:
        self.resizer.update(pod)
        self.pod = self.resizer.pod

    def remove(self) -> None:
        self._removed.set()


class Notices:
    """The notifications that the manager receives, and the events that it records."""

    def __init__(self) -> None:
        self.view: Callable[[str], None] = lambda _: None
        self.engine: Callable[[], None] = lambda: None
        self.runtime_class: Callable[[str], None] = lambda _: None
        self.events: list[tuple[str, str]] = []

    def context(self, clock: FakeClock, views: dict[str, PodView], records: Any) -> Any:
        return SimpleNamespace(
            options=SimpleNamespace(listeners=()),
            observer=SimpleNamespace(
                add_listener=lambda listener: setattr(self, "view", listener),
                view=lambda uid: views.get(uid) or PodView(uid),
            ),
            health=SimpleNamespace(
                add_listener=lambda listener: setattr(self, "engine", listener),
                has_groups_policy=True,
            ),
            classes=SimpleNamespace(
                on_change=lambda listener: setattr(self, "runtime_class", listener),
                named_by=lambda pod: pod.spec.runtime_class_name,
            ),
            events=SimpleNamespace(pod=lambda *about: self.events.append(about[2:])),
            allocatable=lambda: {"cpu": "2", "pods": "110"},
            pressure=NodePressure(),
            shutdown=NodeShutdown(),
            allocations=SimpleNamespace(read=records.get),
            clock=clock,
        )


class FakeInformer:
    def __init__(self, *pods: Pod) -> None:
        self._pods = list(pods)
        self.notify: Any = None

    def __iter__(self) -> Any:
        return iter(self._pods)

    def add_handler(self, handler: Any) -> None:
        self.notify = handler
        for pod in self._pods:
            handler(None, pod)


def pod(uid: str, cpu: str = "1", created: str = "", name: str = "", **fields: Any) -> Pod:
    meta = {"uid": uid, "creationTimestamp": created or f"2026-{uid}", **fields.pop("meta", {})}
    container = wire_container(resources={"requests": {"cpu": cpu}})
    return a_pod(container, name=name or uid, meta=meta, **fields)


@asynccontextmanager
async def roster_of(
    *pods: Pod,
    running: str = "",
    records: dict[str, AllocationRecord] | None = None,
    worker: type[FakeWorker] = FakeWorker,
    notices: Notices | None = None,
    clock: FakeClock | None = None,
    node: Any = None,
) -> AsyncIterator[tuple[PodManager, FakeInformer]]:
    views = {uid: PodView(uid, sandboxes=(a_sandbox(uid=uid),)) for uid in running.split()}
    context = (notices or Notices()).context(clock or FakeClock(), views, records or {})
    informer: Any = FakeInformer(*pods)
    make_worker: Any = worker
    own: Any = SimpleNamespace(node=a_node())
    manager = PodManager(context, informer, node or own, make_worker)
    task = asyncio.ensure_future(manager.run())
    await settle()
    yield manager, informer
    task.cancel()
    await asyncio.wait((task,))


def refused(pod_manager: PodManager) -> dict[str, bool]:
    return {worker.uid: not worker.is_active for worker in pod_manager}


async def test_room_is_given_to_those_that_have_had_it_longest() -> None:
    async with roster_of(pod("c"), pod("b"), pod("a")) as (pod_manager, _):
        assert refused(pod_manager) == {"a": False, "b": False, "c": True}


def worker_of(pod_manager: PodManager, uid: str) -> FakeWorker:
    (worker,) = [worker for worker in pod_manager if worker.uid == uid]
    assert isinstance(worker, FakeWorker)
    return worker


def waiting(pod_manager: PodManager) -> set[str]:
    return {worker.uid for worker in pod_manager if worker.is_waiting}


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"cpu": "2"}, id="cpu"),
        pytest.param({"cpu": "1", "spec": {"overhead": {"cpu": "500m"}}}, id="overhead"),
    ],
)
async def test_a_pod_waits_for_one_that_the_api_shows_as_ended(fields: dict[str, Any]) -> None:
    spec = fields.pop("spec", {})
    first, second = (pod(uid, **fields, **spec) for uid in "ab")
    async with roster_of(first) as (pod_manager, informer):
        ending = worker_of(pod_manager, "a")
        ending.is_shown = False
        informer.notify(None, second)
        assert refused(pod_manager) == {"a": False, "b": False}
        assert waiting(pod_manager) == {"b"}
        why = worker_of(pod_manager, "b").waits_for
        assert why is not None
        assert why.reason == "OutOfcpu"
        # The room of a pod that waits is taken for all that come later.
        informer.notify(None, pod("c", cpu="1"))
        assert refused(pod_manager)["c"]
        ending.is_active = False
        ending.end()
        assert waiting(pod_manager) == set()


async def test_a_pod_waits_for_the_port_of_one_that_has_ended() -> None:
    ports = [{"containerPort": 80, "hostPort": 8080}]
    a, b = (
        a_pod(wire_container(ports=ports), name=uid, meta={"uid": uid, "creationTimestamp": uid})
        for uid in "ab"
    )
    async with roster_of(a) as (pod_manager, informer):
        ending = worker_of(pod_manager, "a")
        ending.is_shown = False
        informer.notify(None, b)
        assert waiting(pod_manager) == {"b"}
        ending.is_active = False
        ending.end()
        assert waiting(pod_manager) == set()


async def test_pods_that_wait_get_what_is_released_one_after_the_other() -> None:
    async with roster_of(pod("a"), pod("b")) as (pod_manager, informer):
        ending = [worker_of(pod_manager, uid) for uid in "ab"]
        for worker in ending:
            worker.is_shown = False
        informer.notify(None, pod("c"))
        informer.notify(None, pod("d"))
        assert waiting(pod_manager) == {"c", "d"}
        ending[0].is_active = False
        ending[0].end()
        assert waiting(pod_manager) == {"d"}
        ending[1].is_active = False
        ending[1].end()
        assert waiting(pod_manager) == set()


async def test_a_pod_with_room_beside_those_that_end_does_not_wait() -> None:
    async with roster_of(pod("a")) as (pod_manager, informer):
        worker_of(pod_manager, "a").is_shown = False
        informer.notify(None, pod("b", cpu="1"))
        assert waiting(pod_manager) == set()


async def test_a_resize_waits_for_a_pod_that_has_ended() -> None:
    a, b = pod("a", cpu="1"), pod("b", cpu="1")
    async with roster_of(a, b) as (pod_manager, informer):
        ending = worker_of(pod_manager, "a")
        ending.is_shown = False
        informer.notify(b, resized(b, "2"))
        assert promised(pod_manager)["b"] == "1"
        ending.is_active = False
        ending.end()
        assert promised(pod_manager)["b"] == "2"


async def test_a_resize_does_not_take_the_room_of_a_pod_that_waits() -> None:
    a, c = pod("a", cpu="1"), pod("c", cpu="500m")
    async with roster_of(a, c) as (pod_manager, informer):
        ending = worker_of(pod_manager, "a")
        ending.is_shown = False
        informer.notify(None, pod("b", cpu="1500m"))
        informer.notify(c, resized(c, "1"))
        assert waiting(pod_manager) == {"b"}
        assert promised(pod_manager)["c"] == "500m"
        ending.is_active = False
        ending.end()
        assert waiting(pod_manager) == set()
        assert promised(pod_manager)["c"] == "500m"


def resized(before: Pod, cpu: str) -> Pod:
    (container,) = before.spec.containers
    resources = msgspec.structs.replace(container.resources, requests={"cpu": cpu})
    container = msgspec.structs.replace(container, resources=resources)
    spec = msgspec.structs.replace(before.spec, containers=(container,))
    return msgspec.structs.replace(before, spec=spec)


def promised(pod_manager: PodManager) -> dict[str, str]:
    return {
        worker.uid: worker.pod.spec.containers[0].resources.requests["cpu"]
        for worker in pod_manager
    }


async def test_a_resize_takes_what_is_free_and_waits_for_more() -> None:
    a, b = pod("a", cpu="500m"), pod("b", cpu="1")
    async with roster_of(a, b) as (pod_manager, informer):
        informer.notify(a, resized(a, "1"))
        assert promised(pod_manager) == {"a": "1", "b": "1"}
        informer.notify(b, resized(b, "1500m"))
        assert promised(pod_manager) == {"a": "1", "b": "1"}
        asking = worker_of(pod_manager, "b")
        assert asking.deferred == TerminationReason(
            "OutOfcpu",
            "Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000",
        )
        ending = worker_of(pod_manager, "a")
        ending.is_active = False
        ending.end()
        assert promised(pod_manager)["b"] == "1500m"
        assert asking.deferred is None


async def test_a_resize_that_waits_takes_no_room_from_others() -> None:
    a = pod("a", cpu="1")
    async with roster_of(a) as (pod_manager, informer):
        informer.notify(a, resized(a, "3"))
        informer.notify(None, pod("b", cpu="1"))
        assert refused(pod_manager) == {"a": False, "b": False}


async def test_a_resize_that_asks_for_less_makes_room_for_one_that_waits() -> None:
    a, b = pod("a", cpu="1"), pod("b", cpu="1")
    async with roster_of(a, b) as (pod_manager, informer):
        informer.notify(b, resized(b, "1500m"))
        informer.notify(a, resized(a, "500m"))
        assert promised(pod_manager) == {"a": "500m", "b": "1500m"}


async def test_what_an_earlier_agent_promised_is_kept() -> None:
    record = AllocationRecord(allocation_of(pod("a", cpu="1")))
    asking = pod("a", cpu="3")
    async with roster_of(asking, running="a", records={"a": record}) as (pod_manager, _):
        assert promised(pod_manager) == {"a": "1"}


async def test_what_runs_already_is_not_asked_again() -> None:
    async with roster_of(pod("a"), pod("b"), pod("c"), running="c") as (pod_manager, _):
        assert not refused(pod_manager)["c"]


async def test_what_is_over_or_ending_is_not_refused() -> None:
    over = pod("x", cpu="9", status={"phase": "Succeeded"})
    ending = pod("y", cpu="9", meta={"deletionTimestamp": "2026"})
    async with roster_of(over, ending) as (pod_manager, _):
        assert refused(pod_manager) == {"x": False, "y": False}


async def test_mirrors_of_static_pods_have_no_worker() -> None:
    mirror = pod("m", meta={"annotations": {"kubernetes.io/config.mirror": "x"}})
    async with roster_of(mirror) as (pod_manager, _):
        assert list(pod_manager.uids) == []


async def test_a_pod_of_the_same_name_takes_the_place_of_another() -> None:
    old, new = pod("a", name="web", created="1"), pod("b", name="web", created="2")
    async with roster_of(old) as (pod_manager, informer):
        informer.notify(old, new)
        found_pod = pod_manager.find("shop", "web")
        assert found_pod is not None
        assert found_pod.uid == "b"
        await settle()
        assert list(pod_manager.uids) == ["b"]


async def test_changes_reach_the_worker_and_an_end_removes_it() -> None:
    one = pod("a")
    async with roster_of(one) as (pod_manager, informer):
        changed = msgspec.structs.replace(one, spec=a_pod(hostNetwork=True).spec)
        informer.notify(one, changed)
        assert [worker.pod for worker in pod_manager] == [changed]
        informer.notify(changed, None)
        await settle()
        assert list(pod_manager.uids) == []


async def test_added_and_removed_pods_are_reported() -> None:
    counts: list[int] = []
    async with roster_of() as (pod_manager, informer):
        pod_manager.add_listener(lambda: counts.append(len(pod_manager.uids)))
        informer.notify(None, pod("a"))
        informer.notify(pod("a"), None)
        await settle()
    assert counts == [1, 0]


async def test_failing_worker_ends_no_other_and_resumes_after_a_pause() -> None:
    runs: list[str] = []

    class Breaking(FakeWorker):
        async def run(self) -> None:
            runs.append(self.uid)
            if self.uid == "a" and len(runs) < 4:
                raise RecursionError("too deep")
            await super().run()

    notices, clock = Notices(), FakeClock()
    roster = roster_of(pod("a"), pod("b"), worker=Breaking, notices=notices, clock=clock)
    async with roster as (pod_manager, _):
        while runs.count("a") < 3:
            await settle()
            clock.advance(120)
        assert set(pod_manager.uids) == {"a", "b"}
    assert notices.events[0] == ("FailedSync", "error handling the pod: too deep")


async def test_workers_are_notified_of_what_concerns_them() -> None:
    notices = Notices()
    pods = (pod("1", cpu="0", runtimeClassName="a"), pod("2", cpu="0", runtimeClassName="b"),
            pod("3", cpu="0"))  # fmt: skip
    async with roster_of(*pods, notices=notices) as (pod_manager, _):
        a, b, none = (worker_of(pod_manager, uid) for uid in "123")
        notices.view("1")
        notices.view("gone")
        notices.runtime_class("b")
        assert (a.calls, b.calls, none.calls) == (["wake"], ["retry"], [])
        notices.engine()
        assert (a.calls, b.calls, none.calls) == (["wake", "retry"], ["retry", "retry"], ["retry"])


async def test_a_pod_is_judged_by_the_node_as_it_is_now() -> None:
    node: Any = SimpleNamespace(node=None)
    async with roster_of(node=node) as (pod_manager, informer):
        for uid, labels in (("a", {"disk": "fast"}), ("b", {"disk": "slow"}), ("c", None)):
            node.node = a_node(metadata={"name": "n1", "labels": labels}) if labels else None
            informer.notify(None, pod(uid, cpu="0", nodeSelector={"disk": "fast"}))
        informer.notify(None, pod("d", cpu="0"))
        assert refused(pod_manager) == {"a": False, "b": True, "c": True, "d": False}


def static(uid: str, name: str = "") -> Pod:
    return pod(uid, name=name, meta={"annotations": {"kubernetes.io/config.source": "file"}})


async def test_static_pods_run_while_their_files_are_there() -> None:
    async with roster_of(pod("a")) as (pod_manager, _):
        first, second = static("s1", "web"), static("s2", "web")
        pod_manager.set_static({"s1": first})
        assert sorted(pod_manager.uids) == ["a", "s1"]
        # Its file has changed: the new one waits for the old one's end.
        pod_manager.set_static({"s2": second})
        assert sorted(pod_manager.uids) == ["a", "s1"]
        await settle()
        assert sorted(pod_manager.uids) == ["a", "s2"]
        pod_manager.set_static({})
        await settle()
        assert sorted(pod_manager.uids) == ["a"]


async def test_no_pod_of_the_api_passes_for_a_static_one() -> None:
    async with roster_of(static("a")) as (pod_manager, informer):
        informer.notify(None, static("b"))
        informer.notify(static("b"), static("b"))
        sources = {
            worker.pod.metadata.annotations["kubernetes.io/config.source"] for worker in pod_manager
        }
        assert sources == {"api"}
        pod_manager.set_static({})
        assert sorted(pod_manager.uids) == ["a", "b"]
