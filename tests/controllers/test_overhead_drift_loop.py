"""Drift of overhead: events on classes whose pods cost other than declared, once each."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from moorage.api.errors import ForbiddenError
from moorage.api.runtime_group import ISOLATION_LABEL
from moorage.controllers.objects import PODS
from moorage.controllers.overhead_drift import OverheadDriftController, OverheadMetrics
from moorage.controllers.runtimeclasses import profile_informer
from moorage.wire.client.resources import RUNTIME_CLASSES, RUNTIME_PROFILES
from tests.controllers.memory import World

MI = 1 << 20
MINUTE = 60.0


def runtime_class(memory: str | None = "8Mi", **labels: str) -> dict[str, Any]:
    overhead = {} if memory is None else {"overhead": {"podFixed": {"memory": memory}}}
    return {"metadata": {"name": "box", "labels": labels}, "handler": "h", **overhead}


def pod(name: str = "p", node: str = "n1", **status: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"runtimeClassName": "box", "nodeName": node},
        "status": {"phase": "Running", **status},
    }


def summary(**pods: tuple[int, int]) -> bytes:
    """A node's summary of pods by uid: MiB of the pod, and of its containers."""
    return msgspec.json.encode(
        {
            "pods": [
                {
                    "podRef": {"name": uid, "uid": uid},
                    "memory": {"workingSetBytes": whole * MI, "rssBytes": whole * MI // 2},
                    "containers": [{"name": "c", "memory": {"workingSetBytes": inside * MI}}],
                }
                for uid, (whole, inside) in pods.items()
            ]
        }
    )


class Drifting:
    """A world with the class and one pod, whose node answers what the test says."""

    def __init__(self) -> None:
        self.world = World()
        self.metrics = OverheadMetrics()
        self.client = self.world.client
        self.client.put(RUNTIME_CLASSES, runtime_class())
        self.client.put(PODS, pod())
        self.says(p=(40, 10))

    def says(self, node: str = "n1", **pods: tuple[int, int]) -> None:
        self.answers(summary(**pods), node)

    def answers(self, answer: bytes | Exception, node: str = "n1") -> None:
        self.client.answers["GET", f"/api/v1/nodes/{node}/proxy/stats/summary"] = answer

    def controller(self) -> Any:
        profiles = profile_informer(self.client, self.world.clock)
        controller = OverheadDriftController(
            self.client,
            self.world.informers,
            profiles,
            self.world.recorder,
            self.world.clock,
            metrics=self.metrics,
        )

        async def run() -> None:
            await asyncio.gather(profiles.run(), controller.run())

        return run()

    async def minutes(self, count: int) -> None:
        for _ in range(count):
            await self.world.settled(MINUTE)
        await self.world.settled(1)


async def test_a_class_that_declares_too_little_gets_one_warning_after_three_minutes() -> None:
    drifting = Drifting()
    async with drifting.world.running(drifting.controller()) as client:
        await drifting.minutes(2)
        assert client.events == []
        await drifting.minutes(5)
    assert client.events == [
        ("box", "Warning", "OverheadDrift",
         "declared overhead is 8.0 MiB of memory, but one pod costs 30.0 MiB; measure it with "
         "`moor overhead measure h`")
    ]  # fmt: skip
    assert client.writes == []


async def test_reality_that_flaps_is_no_event() -> None:
    drifting = Drifting()
    async with drifting.world.running(drifting.controller()) as client:
        for turn in range(8):
            drifting.says(p=(40, 10) if turn % 2 else (18, 10))
            await drifting.minutes(1)
    assert client.events == []


async def test_a_new_declaration_starts_over_and_silence_is_no_recovery() -> None:
    drifting = Drifting()
    async with drifting.world.running(drifting.controller()) as client:
        await drifting.minutes(4)
        drifting.answers(ForbiddenError("no"))
        await drifting.minutes(4)
        assert len(client.events) == 1
        drifting.says(p=(40, 10))
        client.put(RUNTIME_CLASSES, runtime_class("30Mi"))
        await drifting.minutes(4)
    assert len(client.events) == 1


async def test_pods_that_cost_what_is_declared_again_end_a_drift() -> None:
    drifting = Drifting()
    async with drifting.world.running(drifting.controller()) as client:
        await drifting.minutes(4)
        drifting.says(p=(18, 10))
        await drifting.minutes(4)
    assert [event[1:3] for event in client.events] == [
        ("Warning", "OverheadDrift"), ("Normal", "OverheadFits"),
    ]  # fmt: skip


async def test_too_much_is_drift_too() -> None:
    drifting = Drifting()
    drifting.client.put(RUNTIME_CLASSES, runtime_class("200Mi"))
    async with drifting.world.running(drifting.controller()) as client:
        await drifting.minutes(4)
    assert "200.0 MiB of memory, but one pod costs 30.0 MiB" in client.events[0][3]


@pytest.mark.parametrize("is_labelled", [True, False])
async def test_containers_in_one_cgroup_are_judged_by_their_isolation(
    is_labelled: bool,
) -> None:
    """Divided figures add up to the pod: the anonymous half is a user-space kernel's own."""
    drifting = Drifting()
    drifting.says(p=(40, 40))
    if is_labelled:
        labels = {ISOLATION_LABEL: "user-space-kernel"}
        drifting.client.put(RUNTIME_CLASSES, runtime_class(**labels))
    else:
        drifting.client.put(
            RUNTIME_PROFILES,
            {
                "metadata": {"name": "n1.h"},
                "spec": {"nodeName": "n1", "handler": "h"},
                "status": {"isolation": "user-space-kernel"},
            },
        )
    async with drifting.world.running(drifting.controller()) as client:
        await drifting.minutes(4)
    assert "costs 20.0 MiB" in client.events[0][3]


async def test_divided_figures_without_a_level_prove_nothing() -> None:
    drifting = Drifting()
    drifting.says(p=(40, 40))
    async with drifting.world.running(drifting.controller()) as client:
        await drifting.minutes(6)
    assert client.events == []


async def test_broken_summaries_and_ended_pods_are_passed_over() -> None:
    drifting = Drifting()
    drifting.client.put(PODS, pod("q", "n2"))
    drifting.client.put(PODS, pod("ended", "n3", phase="Succeeded"))
    drifting.answers(b"<html>", "n2")
    async with drifting.world.running(drifting.controller()) as client:
        await drifting.minutes(4)
    assert "one pod costs" in client.events[0][3]
    assert all("n3" not in request.key for request in client.asked("request"))


async def test_the_metrics_have_what_is_declared_and_measured() -> None:
    drifting = Drifting()
    async with drifting.world.running(drifting.controller()) as client:
        await drifting.minutes(4)
        text = "\n".join(line for family in drifting.metrics.families() for line in family.lines())
        assert 'declared_memory_bytes{runtime_class="box"} 8388608' in text
        assert 'measured_memory_bytes{runtime_class="box",bound="lower"} 31457280' in text
        assert 'drift{runtime_class="box",verdict="TooLow"} 1' in text
        client.drop(RUNTIME_CLASSES, "box")
        await drifting.minutes(2)
        assert not [line for family in drifting.metrics.families() for line in family.lines()]


async def test_many_nodes_are_read_some_at_a_time_in_turn() -> None:
    drifting = Drifting()
    for number in range(45):
        name = f"m{number:02}"
        drifting.client.put(PODS, pod(name, name))
        drifting.says(name, **{name: (40, 10)})
    async with drifting.world.running(drifting.controller()) as client:
        await drifting.minutes(1)
        assert len(client.asked("request")) == 20
        await drifting.minutes(2)
    assert len({request.key for request in client.asked("request")}) == 46


async def test_what_a_node_says_of_another_node_s_pods_does_not_count() -> None:
    drifting = Drifting()
    drifting.says(p=(18, 10))
    drifting.client.put(PODS, pod("q", node="n2"))
    drifting.client.put(PODS, pod("r", node="n1"))
    drifting.says(p=(18, 10), r=(18, 10))
    drifting.says("n2", p=(4000, 1), q=(18, 10), r=(4000, 1))
    async with drifting.world.running(drifting.controller()) as client:
        await drifting.minutes(6)
    assert client.events == []
