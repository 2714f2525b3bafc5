"""Flow control at work, on an event loop but without a server: seats, waits and refusals."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import Any, cast

import pytest

from moorage.api.clock import Clock, SystemClock
from moorage.apiserver.endpoints.call import share_of
from moorage.apiserver.flow_control.control import FlowControl, Seat
from moorage.apiserver.flow_control.defaults import default_objects
from moorage.apiserver.flow_control.families import flow_control_families
from moorage.apiserver.registry.kind import Kind, Obj
from moorage.apiserver.registry.kinds.flowschema import FLOW_SCHEMA
from moorage.apiserver.registry.kinds.prioritylevelconfiguration import PRIORITY_LEVEL_CONFIGURATION
from moorage.apiserver.registry.request import User
from moorage.apiserver.registry.stored import Stored, StoredFactory, to_value
from moorage.apiserver.storage import Change, WatchCache
from moorage.wire.metrics import exposition
from tests.apiserver.flow_control.requests import ALICE, MASTER, target
from tests.clocks import FakeClock

PODS = target("/api/v1/namespaces/default/pods")
BOB = User("bob", groups=ALICE.groups)
ANYONE = {"kind": "Group", "group": {"name": "*"}}
ALL = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"],
       "clusterScope": True}  # fmt: skip


class Objects:
    """Stored objects, as the cache shows them: those of a new cluster at first."""

    def __init__(self) -> None:
        self._items: dict[str, Stored] = {}
        self._revision = 0
        self._make = StoredFactory((FLOW_SCHEMA, PRIORITY_LEVEL_CONFIGURATION))
        for kind, obj, _ in default_objects():
            self.put(kind, obj["metadata"]["name"], obj["spec"])

    def put(self, kind: Kind, name: str, spec: Any) -> list[Change]:
        obj: Obj = {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec}
        key = kind.key("", name)
        self._revision += 1
        self._items[key] = self._make(key, self._revision, to_value(obj, ""))
        return [Change(key, self._revision, b"")]

    def remove(self, kind: Kind, name: str) -> list[Change]:
        key = kind.key("", name)
        del self._items[key]
        return [Change(key, self._revision, b"", is_deletion=True)]

    def scan(self, prefix: str) -> Iterable[Stored]:
        return [item for key, item in self._items.items() if key.startswith(prefix)]

    def get(self, key: str) -> Stored | None:
        return self._items.get(key)


@pytest.fixture
def objects() -> Objects:
    return Objects()


def _control(objects: Objects, clock: Clock | None = None, **more: Any) -> FlowControl:
    return FlowControl(cast(WatchCache[Stored], objects), clock or SystemClock(), **more)


def _own_level(objects: Objects, **limited: Any) -> None:
    """Give alice and bob a level of two seats that lends and borrows none."""
    limit = {"nominalConcurrencyShares": 245, "lendablePercent": 0, "borrowingLimitPercent": 0,
             "limitResponse": {"type": "Queue", "queuing": {
                 "queues": 1000, "handSize": 1, "queueLengthLimit": 2}}}  # fmt: skip
    objects.put(
        PRIORITY_LEVEL_CONFIGURATION, "own", {"type": "Limited", "limited": {**limit, **limited}}
    )
    _own_schema(objects)


def _own_schema(objects: Objects, **more: Any) -> list[Change]:
    subjects = [{"kind": "User", "user": {"name": user.name}} for user in (ALICE, BOB)]
    spec = {
        "priorityLevelConfiguration": {"name": "own"},
        "matchingPrecedence": 2,
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [{"subjects": subjects, "resourceRules": [ALL]}],
        **more,
    }
    return objects.put(FLOW_SCHEMA, "own", spec)


async def _asked(control: FlowControl, user: User) -> Seat | None:
    flow = control.flow_of(user, "get", PODS)
    share = share_of(user)
    return control.seat(flow, share) or await control.wait(flow, user, PODS, share)


def _metric(control: FlowControl, name: str, **labels: str) -> float:
    wanted = {f'{key}="{value}"' for key, value in labels.items()}
    lines = exposition(flow_control_families(control)).splitlines()
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith(f"apiserver_flowcontrol_{name}{{")
        and wanted <= set(re.findall(r'\w+="[^"]*"', line))
    )


async def _turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_requests_wait_and_flows_take_turns(objects: Objects) -> None:
    _own_level(objects, limitResponse={"type": "Queue", "queuing": {
        "queues": 1000, "handSize": 1, "queueLengthLimit": 50}})  # fmt: skip
    # Turns follow the time that seats were held: on a busy host the real one differs.
    clock = FakeClock()
    control = _control(objects, clock, seats=2)
    held = [await _asked(control, ALICE)]
    assert held[0] is not None
    order: list[str] = []

    async def ask(user: User) -> None:
        seat = await _asked(control, user)
        assert seat is not None
        order.append(user.name)
        clock.advance(1.0)
        seat.leave(share_of(user))

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        for _ in range(9):
            tasks.create_task(ask(ALICE))
        for _ in range(2):
            tasks.create_task(ask(BOB))
        await _turn()
        assert _metric(control, "current_inqueue_requests", flow_schema="own") == 11
        assert _metric(control, "current_executing_requests", flow_schema="own") == 1
        held[0].leave(ALICE.name)
    assert order[:4].count("bob") == 2
    assert _metric(control, "dispatched_requests_total", flow_schema="own") == 12
    assert _metric(control, "current_inqueue_requests") == 0
    assert _metric(control, "current_executing_requests") == 0


async def test_a_full_queue_refuses(objects: Objects) -> None:
    _own_level(objects)
    control = _control(objects, seats=2)
    seat = await _asked(control, ALICE)
    waiting = [asyncio.create_task(_asked(control, ALICE)) for _ in range(2)]
    await _turn()
    assert await _asked(control, ALICE) is None
    other = asyncio.create_task(_asked(control, BOB))
    await _turn()
    served: set[asyncio.Task[Seat | None]] = set()
    labels = {"priority_level": "own", "flow_schema": "own", "reason": "queue-full"}
    assert _metric(control, "rejected_requests_total", **labels) == 1
    assert seat is not None
    seat.leave(ALICE.name)
    for _ in range(3):
        await _turn()
        for task, share in (*((one, ALICE.name) for one in waiting), (other, BOB.name)):
            if task.done() and task not in served:
                served.add(task)
                result = task.result()
                assert result is not None
                result.leave(share)
    assert len(served) == 3


async def test_a_request_that_waits_too_long_is_refused(objects: Objects) -> None:
    _own_level(objects)
    control = _control(objects, seats=2, wait_s=0.01)
    assert await _asked(control, ALICE) is not None
    assert await asyncio.wait_for(_asked(control, ALICE), 10) is None
    assert _metric(control, "rejected_requests_total", reason="time-out") == 1
    assert control.pool.levels["own"].queues.waiting == 0


async def test_a_level_that_rejects_lets_none_wait(objects: Objects) -> None:
    _own_level(objects, limitResponse={"type": "Reject"})
    control = _control(objects, seats=2)
    assert await _asked(control, ALICE) is not None
    assert await _asked(control, BOB) is None
    assert _metric(control, "rejected_requests_total", reason="concurrency-limit") == 1


@pytest.mark.parametrize("is_granted", [False, True])
async def test_a_client_that_leaves_keeps_no_seat(objects: Objects, is_granted: bool) -> None:
    _own_level(objects)
    control = _control(objects, seats=2)
    seat = await _asked(control, ALICE)
    assert seat is not None
    waiting = asyncio.create_task(_asked(control, ALICE))
    await _turn()
    if is_granted:
        seat.leave(ALICE.name)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    if not is_granted:
        seat.leave(ALICE.name)
    level = control.pool.levels["own"]
    assert level.is_idle
    assert not list(level.queues.queues())
    assert await _asked(control, BOB) is not None


async def test_masters_never_wait(objects: Objects) -> None:
    control = _control(objects, seats=1)
    held = [await _asked(control, MASTER) for _ in range(1000)]
    assert all(held)
    # What other levels keep is theirs, however many the exempt ones are.
    assert await _asked(control, User("groupless")) is not None
    for seat in held:
        assert seat is not None
        seat.leave("")
    assert _metric(control, "current_executing_requests", priority_level="exempt") == 0


async def test_a_change_takes_effect_with_the_next_request(objects: Objects) -> None:
    control = _control(objects, seats=2)
    assert control.flow_of(ALICE, "get", PODS).schema.name == "global-default"
    _own_level(objects)
    assert control.flow_of(ALICE, "get", PODS).schema.name == "global-default"
    control.changed([Change("pods/default/x", 1, b"")])
    assert control.flow_of(ALICE, "get", PODS).schema.name == "global-default"
    control.changed(_own_schema(objects))
    flow = control.flow_of(ALICE, "get", PODS)
    assert flow.schema.name == "own"
    assert dict(flow.headers) == {
        "X-Kubernetes-Pf-Flowschema-Uid": "uid-own",
        "X-Kubernetes-Pf-Prioritylevel-Uid": "uid-own",
    }
    assert control.has_level("own")
    control.changed(objects.remove(PRIORITY_LEVEL_CONFIGURATION, "own"))
    assert control.flow_of(ALICE, "get", PODS).schema.name == "global-default"
    assert not control.has_level("own")


async def test_counts_survive_changes_and_requests_of_a_removed_schema_end(
    objects: Objects,
) -> None:
    _own_level(objects)
    control = _control(objects, seats=2)
    seat = await _asked(control, ALICE)
    assert seat is not None
    control.changed(objects.put(FLOW_SCHEMA, "x", {"priorityLevelConfiguration": {"name": "y"}}))
    assert control.flow_of(ALICE, "get", PODS) is seat.flow
    control.changed(objects.remove(FLOW_SCHEMA, "own"))
    control.changed(objects.remove(PRIORITY_LEVEL_CONFIGURATION, "own"))
    assert control.flow_of(ALICE, "get", PODS).schema.name == "global-default"
    assert _metric(control, "current_executing_requests", flow_schema="own") == 1
    seat.leave(ALICE.name)
    assert _metric(control, "current_executing_requests", flow_schema="own") == 0
    assert "own" not in control.pool.levels


async def test_objects_without_the_shape_of_their_kind_are_ignored(objects: Objects) -> None:
    control = _control(objects, seats=2)
    for kind in (FLOW_SCHEMA, PRIORITY_LEVEL_CONFIGURATION):
        for name in ("exempt", "catch-all", "global-default", "broken"):
            control.changed(objects.put(kind, name, {"rules": 7, "type": []}))
    assert control.flow_of(ALICE, "get", PODS).schema.name == "catch-all"
    assert control.flow_of(MASTER, "get", PODS).schema.name == "exempt"
    assert await _asked(control, ALICE) is not None


async def test_seats_of_each_level_are_on_the_metrics_page(objects: Objects) -> None:
    control = _control(objects)
    assert _metric(control, "nominal_limit_seats", priority_level="workload-low") == 245
    assert _metric(control, "lower_limit_seats", priority_level="workload-low") == 24
    assert _metric(control, "upper_limit_seats", priority_level="workload-low") == 845


async def test_one_user_has_a_quarter_of_the_seats_and_more_wait(objects: Objects) -> None:
    _own_level(objects, limitResponse={"type": "Queue", "queuing": {
        "queues": 10, "handSize": 1, "queueLengthLimit": 50}})  # fmt: skip
    control = _control(objects, seats=40)
    assert control.pool.levels["own"].nominal == 20
    held = [await _asked(control, ALICE) for _ in range(10)]
    assert all(held)
    waiting = asyncio.create_task(_asked(control, ALICE))
    await _turn()
    others = [await _asked(control, BOB) for _ in range(10)]
    assert all(others)
    assert not waiting.done()
    bob, alice = others[0], held[0]
    assert bob is not None
    assert alice is not None
    bob.leave(BOB.name)
    await _turn()
    assert not waiting.done(), "it waits for one of her own"
    alice.leave(ALICE.name)
    assert await asyncio.wait_for(waiting, 10) is not None


async def test_many_schemas_are_not_read_at_each_change(objects: Objects) -> None:
    control = _control(objects)
    spec = {"priorityLevelConfiguration": {"name": "global-default"}, "matchingPrecedence": 9}
    for number in range(300):
        control.changed(objects.put(FLOW_SCHEMA, f"s{number}", spec))
    assert control.flow_of(ALICE, "get", PODS).schema.name == "global-default"
    _own_level(objects)
    control.changed(_own_schema(objects))
    assert control.flow_of(ALICE, "get", PODS).schema.name == "global-default"
    async with asyncio.timeout(10):
        while control.flow_of(ALICE, "get", PODS).schema.name != "own":
            await _turn()
