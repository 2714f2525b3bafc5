from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import pytest

from moorage.node.pod_facts.errors import TeardownError
from moorage.node.pods.hooks import Hooks
from moorage.node.pods.plan import Kill, Reason
from moorage.node.pods.stopping import ContainerStopper, kill_grace_s
from moorage.node.runtime.engine import ExecResult
from moorage.wire.cri import CriError
from tests.clocks import FakeClock, settle
from tests.node.engine import FakeEngine
from tests.node.objects import (
    a_pod,
    a_sandbox,
    a_view,
    container_record,
    engine_has,
    wire_container,
)
from tests.node.pods.lives import FakeEvents

PROBE = {"exec": {"command": ["true"]}, "terminationGracePeriodSeconds": 3}


@pytest.mark.parametrize(
    ("reason", "meta", "wanted"),
    [
        (Reason.LIVENESS, {}, 3),
        (Reason.STARTUP, {}, 20),
        (Reason.CHANGED, {}, 20),
        (Reason.LIVENESS, {"deletionGracePeriodSeconds": 7}, 7),
    ],
)
def test_patience_with_one_container(reason: Reason, meta: Any, wanted: int) -> None:
    container = wire_container(livenessProbe=PROBE, startupProbe={"exec": {"command": ["true"]}})
    pod = a_pod(container, meta=meta, terminationGracePeriodSeconds=20)
    assert kill_grace_s(pod, Kill(engine_has(), "", reason)) == wanted


class FakeObserver:
    """Keeps what is looked at again."""

    def __init__(self) -> None:
        self.refreshed: list[tuple[str, ...]] = []

    def view(self, uid: str) -> Any:
        del uid
        return a_view()

    async def refresh_container(self, *which: str) -> None:
        self.refreshed.append(which)

    refresh_sandbox = refresh_container


def stopper(engine: Any) -> ContainerStopper:
    unused: Any = None
    observer: Any = FakeObserver()
    return ContainerStopper(
        engine=engine, observer=observer, hooks=unused, events=unused, clock=FakeClock()
    )


class SlowHook(FakeEngine):
    """Commands go on until the engine ends them."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.clock = clock

    async def exec_sync(
        self, container_id: str, command: Sequence[str], timeout_s: int
    ) -> ExecResult:
        self.calls.append(f"{container_id}: {' '.join(command)}, within {timeout_s} s")
        await self.clock.sleep(timeout_s)
        self.calls.append("ended")
        raise CriError("ExecSync", grpc.StatusCode.DEADLINE_EXCEEDED, "timeout exceeded")


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("Container app failed liveness probe, will be restarted",) * 2,
        ("", "Stopping container app"),
    ],
)
async def test_the_event_of_a_kill_has_its_reason(message: str, text: str) -> None:
    clock = FakeClock()
    engine: Any = FakeEngine(clock)
    observer: Any = FakeObserver()
    events: Any = FakeEvents()
    unused: Any = None
    stopping = ContainerStopper(
        engine=engine, observer=observer, hooks=unused, events=events, clock=clock
    )
    kill = Kill(engine_has(id_="c1"), message, Reason.LIVENESS)
    await stopping.kill(a_pod(wire_container()), kill)
    assert events.recorded == [f"Killing: app: {text}"]


async def test_a_hook_that_takes_too_long_is_ended_by_the_engine() -> None:
    clock = FakeClock()
    engine: Any = SlowHook(clock)
    observer: Any = FakeObserver()
    events: Any = FakeEvents()
    unused: Any = None
    stopping = ContainerStopper(
        engine=engine,
        observer=observer,
        hooks=Hooks(engine, unused, clock),
        events=events,
        clock=clock,
    )
    hook = {"preStop": {"exec": {"command": ["go", "on"]}}}
    pod = a_pod(wire_container(lifecycle=hook), terminationGracePeriodSeconds=20)
    kill = Kill(engine_has(id_="c1"), "", Reason.CHANGED)
    task = asyncio.ensure_future(stopping.kill(pod, kill))
    while not task.done():
        await settle()
        clock.advance(1)
    await task
    assert engine.calls == ["c1: go on, within 20 s", "ended"]
    assert events.reasons == ["Killing"]


async def test_dead_sandboxes_are_stopped_too_for_they_hold_addresses() -> None:
    engine = FakeEngine(FakeClock())
    view = a_view(a_sandbox("new", created_ns=9**20), a_sandbox("old", is_ready=False))
    await stopper(engine).stop_sandboxes(view)
    assert engine.calls == ["stop_sandbox new", "stop_sandbox old"]


async def test_failed_sandbox_stop_names_the_sandbox() -> None:
    engine = FakeEngine(FakeClock())
    engine.failing["stop_sandbox"] = "busy"
    with pytest.raises(TeardownError, match=r"failed to stop sandbox s0: .* desc = busy"):
        await stopper(engine).stop_sandboxes(a_view())


@pytest.mark.parametrize(("recorded", "grace_s"), [(9, 9), (0, 2), (None, 2)])
async def test_an_orphan_is_given_the_time_it_remembers(recorded: int | None, grace_s: int) -> None:
    class Patient(FakeEngine):
        async def stop_container(self, container_id: str, grace_s: int) -> None:
            self.calls.append(f"{container_id} {grace_s}")

    engine = Patient(FakeClock())
    memory = container_record(grace_period_s=recorded)
    await stopper(engine).stop_orphan(a_view(engine_has(memory=memory)))
    assert engine.calls == [f"app-0 {grace_s}", "stop_sandbox s0"]


class Blocking(FakeEngine):
    """Containers end the moment they are stopped, except those that are held or fail."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.clock = clock
        self.held: dict[str, asyncio.Event] = {}

    async def stop_container(self, container_id: str, grace_s: int) -> None:
        self.calls.append(f"{container_id} {grace_s}")
        if container_id in self.held:
            await self.held[container_id].wait()
        self.fail_if("stop_container", container_id)

    def fail_if(self, call: str, container_id: str) -> None:
        if reason := self.failing.get(f"{call} {container_id}"):
            raise CriError("StopContainer", grpc.StatusCode.UNKNOWN, reason)


SIDECAR = wire_container("proxy", restartPolicy="Always")


def _pod_with_sidecar(engine: Any, clock: FakeClock) -> tuple[ContainerStopper, Any, Any]:
    stopping = ContainerStopper(
        engine=engine,
        observer=FakeObserver(),  # type: ignore[arg-type]
        hooks=Hooks(engine, None, clock),  # type: ignore[arg-type]
        events=FakeEvents(),  # type: ignore[arg-type]
        clock=clock,
    )
    pod = a_pod(wire_container("app"), wire_container("other"), initContainers=[SIDECAR])
    view = a_view(*(engine_has(name, id_=name) for name in ("app", "other", "proxy")))
    return stopping, pod, view


async def test_a_sidecar_ends_after_every_main_container() -> None:
    engine = Blocking(FakeClock())
    engine.held = {"app": asyncio.Event(), "other": asyncio.Event()}
    stopping, pod, view = _pod_with_sidecar(engine, engine.clock)
    task = asyncio.ensure_future(stopping.stop_pod(pod, view, 30))
    await settle()
    assert engine.calls == ["app 30", "other 30"]
    engine.held["app"].set()
    engine.clock.advance(5)
    await settle()
    assert engine.calls == ["app 30", "other 30"]
    engine.held["other"].set()
    await task
    assert engine.calls == ["app 30", "other 30", "proxy 25", "stop_sandbox s0"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_sidecar_does_not_outlive_the_grace_period_of_a_failing_container() -> None:
    engine = Blocking(FakeClock())
    engine.failing["stop_container app"] = "stuck"
    stopping, pod, view = _pod_with_sidecar(engine, engine.clock)
    task = asyncio.ensure_future(stopping.stop_pod(pod, view, 30))
    await settle()
    assert engine.calls == ["app 30", "other 30"]
    engine.clock.advance(30)
    with pytest.raises(TeardownError, match=r"failed to stop container app: .* desc = stuck"):
        await task
    # The sandbox is left, so that the next try sees what is alive.
    assert engine.calls == ["app 30", "other 30", "proxy 2"]
    # Neither the wait for its turn nor the sleep goes on.
    await settle()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize(
    ("grace_s", "calls"), [(0, ["stop 2"]), (1, ["go on, within 1 s", "stop 2"])]
)
async def test_a_pod_without_grace_runs_no_hook(grace_s: int, calls: list[str]) -> None:
    class Hooked(FakeEngine):
        async def exec_sync(
            self, container_id: str, command: Sequence[str], timeout_s: int
        ) -> ExecResult:
            del container_id
            self.calls.append(f"{' '.join(command)}, within {timeout_s} s")
            return ExecResult(b"", b"", 0)

        async def stop_container(self, container_id: str, grace_s: int) -> None:
            del container_id
            self.calls.append(f"stop {grace_s}")

    clock = FakeClock()
    engine: Any = Hooked(clock)
    stopping, _, _ = _pod_with_sidecar(engine, clock)
    hook = {"preStop": {"exec": {"command": ["go", "on"]}}}
    meta = {"deletionGracePeriodSeconds": grace_s}
    pod = a_pod(wire_container(lifecycle=hook), meta=meta)
    await stopping.kill(pod, Kill(engine_has(), "", Reason.CHANGED))
    assert engine.calls == calls


async def test_what_was_stopped_is_looked_at_at_once() -> None:
    stopping = stopper(FakeEngine(FakeClock()))
    await stopping.stop_orphan(a_view(engine_has(id_="c1"), engine_has("other", id_="c2")))
    observer: Any = stopping.observer
    assert sorted(observer.refreshed) == [("c1", "s0"), ("c2", "s0"), ("s0",)]
