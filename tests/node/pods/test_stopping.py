from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import pytest

from moorage.cri import CriError
from moorage.node.pods.hooks import Hooks
from moorage.node.pods.plan import Kill, Reason
from moorage.node.pods.stopping import ContainerStopper, StopError, kill_grace_s
from moorage.node.runtime.engine import ExecResult
from tests.clocks import FakeClock, settle
from tests.node.engine import FakeEngine
from tests.node.objects import a_pod, a_sandbox, a_view, engine_has, remembering, wire_container
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
    def view(self, uid: str) -> Any:
        del uid
        return a_view()

    async def refresh_container(self, *_: str) -> None:
        """Nobody looks."""

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


async def test_a_sandbox_that_cannot_be_stopped_is_named() -> None:
    engine = FakeEngine(FakeClock())
    engine.failing["stop_sandbox"] = "busy"
    with pytest.raises(StopError, match=r"failed to stop sandbox s0: .* desc = busy"):
        await stopper(engine).stop_sandboxes(a_view())


@pytest.mark.parametrize(("remembered", "grace_s"), [(9, 9), (0, 2), (None, 2)])
async def test_an_orphan_is_given_the_time_it_remembers(
    remembered: int | None, grace_s: int
) -> None:
    class Patient(FakeEngine):
        async def stop_container(self, container_id: str, grace_s: int) -> None:
            self.calls.append(f"{container_id} {grace_s}")

    engine = Patient(FakeClock())
    memory = remembering(grace_period_s=remembered)
    await stopper(engine).stop_orphan(a_view(engine_has(memory=memory)))
    assert engine.calls == [f"app-0 {grace_s}", "stop_sandbox s0"]
