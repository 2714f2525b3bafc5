from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from moorage.node.machine.engine_health import EngineHealth
from moorage.node.options import OptionsError
from moorage.node.runtime.engine import EngineVersion
from moorage.wire.cri import CriError, pb
from tests.clocks import FakeClock, settle


class FakeEngine:
    """Healthy by default."""

    def __init__(self) -> None:
        self.is_down = False
        self.driver: int | None = pb.CGROUPFS
        self.runtime = pb.RuntimeCondition(type="RuntimeReady", status=True)
        self.network = pb.RuntimeCondition(type="NetworkReady", status=True)
        self.handlers = ["", "crun"]
        self.asked = 0

    async def version(self) -> EngineVersion:
        self._check()
        return EngineVersion("containerd", "2.1")

    async def cgroup_driver(self) -> Any:
        return self.driver

    async def status(self) -> pb.StatusResponse:
        self._check()
        self.asked += 1
        reply = pb.StatusResponse(
            status=pb.RuntimeStatus(conditions=[self.runtime, self.network]),
            features=pb.RuntimeFeatures(supplemental_groups_policy=True),
        )
        for name in self.handlers:
            handler = reply.runtime_handlers.add(name=name)
            handler.features.user_namespaces = name == "crun"
        return reply

    def _check(self) -> None:
        if self.is_down:
            raise CriError("Version", grpc.StatusCode.UNAVAILABLE, "no such socket")


class Case:
    def __init__(self) -> None:
        self.engine, self.clock, self.changes = FakeEngine(), FakeClock(), 0
        engine: Any = self.engine
        self.health = EngineHealth(engine, self.clock, period_s=5, cgroup_driver="cgroupfs")
        self.health.add_listener(self._changed)
        self.task = asyncio.ensure_future(self.health.run())

    def _changed(self) -> None:
        self.changes += 1

    async def after(self, seconds: float) -> None:
        await settle()
        self.clock.advance(seconds)
        await settle()


@pytest.fixture
async def case() -> Any:
    result = Case()
    yield result
    result.task.cancel()
    await asyncio.wait((result.task,))


async def test_before_it_is_asked_nothing_is_ready() -> None:
    unused: Any = None
    health = EngineHealth(unused, FakeClock(), period_s=5, cgroup_driver="cgroupfs")
    assert not health.is_ready


async def test_what_it_offers(case: Case) -> None:
    await case.health.wait_checked()
    assert case.health.is_ready
    assert (case.health.engine_name, case.health.engine_version) == ("containerd", "2.1")
    assert [handler.name for handler in case.health.handlers] == ["", "crun"]
    assert case.health.handlers[1].features is not None
    assert case.health.handlers[1].features.user_namespaces
    assert case.health.has_groups_policy


async def test_listeners_are_notified_of_changes_only(case: Case) -> None:
    await case.health.wait_checked()
    for _ in range(3):
        await case.after(5)
    assert (case.changes, case.engine.asked) == (1, 4)
    case.engine.handlers.append("runsc")
    await case.after(5)
    assert case.changes == 2


async def test_handlers_in_another_order_are_no_change(case: Case) -> None:
    await case.health.wait_checked()
    for _ in range(4):
        case.engine.handlers.reverse()
        await case.after(5)
    assert case.changes == 1
    assert [handler.name for handler in case.health.handlers] == ["", "crun"]


async def test_an_engine_that_is_not_ready_says_why_and_keeps_its_handlers(case: Case) -> None:
    await case.health.wait_checked()
    case.engine.runtime = pb.RuntimeCondition(type="RuntimeReady", reason="R", message="M")
    case.engine.network = pb.RuntimeCondition(type="NetworkReady", reason="N", message="no cni")
    case.engine.handlers = []
    await case.after(5)
    assert case.health.runtime_problem == (
        "container runtime not ready: RuntimeReady=false reason:R message:M"
    )
    assert case.health.network_problem == (
        "container runtime network not ready: NetworkReady=false reason:N message:no cni"
    )
    assert len(case.health.handlers) == 2


async def test_an_engine_that_went_away_is_asked_often_until_it_is_back(case: Case) -> None:
    await case.health.wait_checked()
    case.engine.is_down = True
    await case.after(5)
    assert case.health.runtime_problem == "container runtime is down: no such socket"
    case.engine.is_down = False
    await case.after(0.2)
    assert case.health.is_ready


async def test_other_cgroup_driver_is_an_error_with_what_to_set() -> None:
    engine: Any = FakeEngine()
    engine.driver = pb.SYSTEMD
    health = EngineHealth(engine, FakeClock(), period_s=5, cgroup_driver="cgroupfs")
    with pytest.raises(OptionsError, match="SystemdCgroup = false"):
        await health.run()


async def test_an_engine_that_leaves_a_condition_out_is_not_ready(case: Case) -> None:
    await case.health.wait_checked()
    case.engine.runtime = case.engine.network = pb.RuntimeCondition(type="Other", status=True)
    await case.after(5)
    assert not case.health.is_ready
    assert case.health.runtime_problem == (
        "container runtime not ready: the engine does not report this condition"
    )
    assert case.health.network_problem == (
        "container runtime network not ready: the engine does not report this condition"
    )
