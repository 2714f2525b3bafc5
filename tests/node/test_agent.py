"""How the parts of an agent hang together, against a recorded table, and the order of its start."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from moorage.linux.cgroups import Cgroups, Layout
from moorage.node.agent import Agent
from moorage.node.machine.facts import MachineFacts
from moorage.node.machine.machine import Machine
from moorage.node.options import NodeOptions, ServerOptions
from moorage.wire.cri import CriError
from tests.clocks import FakeClock, settle
from tests.node.objects import a_node
from tests.node.volumes.mounts import FakeMounter
from tests.recording import assert_recorded

ROOT = Path("/node")


def facts() -> MachineFacts:
    return MachineFacts(
        cpu_count=4, memory_bytes=8 << 30, swap_bytes=0, disk_bytes=100 << 30, max_pids=1000,
        huge_pages={}, machine_id="m", system_uuid="u", boot_id="b", kernel="6.1",
        os_image="Debian", architecture="amd64", hostname="h", address="192.0.2.1",
        thermal_paths=("/sys/thermal",),
    )  # fmt: skip


def an_agent(clock: Any = None, serve: Any = None, **options: Any) -> Agent:
    defaults: dict[str, Any] = {
        "name": "n1", "root_dir": ROOT, "pod_logs_dir": ROOT / "logs", "node_ip": "192.0.2.9",
        "container_logs_dir": ROOT / "flat", "seccomp_default": True,
    } | options  # fmt: skip
    stand_ins: list[Any] = [SimpleNamespace(name=name) for name in ("client", "cri", "http")]
    client, cri, http = stand_ins
    machine = Machine(facts=facts(), cgroups=Cgroups(Layout.ABSENT), mounter=FakeMounter())
    more = {"serve": serve} if serve else {}
    return Agent(
        client, cri, NodeOptions(**defaults), clock or FakeClock(), machine, http, _read,
        asyncio.Event(), **more,
    )  # fmt: skip


async def _read(_status: object) -> tuple[()]:
    return ()


def _attributes(obj: object) -> dict[str, Any]:
    names = [*getattr(obj, "__dict__", ()), *getattr(type(obj), "__slots__", ())]
    return {name: getattr(obj, name) for name in names if hasattr(obj, name)}


def _description(value: Any, shared: dict[int, str]) -> str | None:
    """Which shared object a value is, or what it says by itself; None for what is inner."""
    if id(value) in shared:
        return f"<{shared[id(value)]}>"
    if isinstance(value, str | int | float | Path) or value is None:
        return repr(value)
    if isinstance(value, tuple | frozenset) and all(isinstance(element, str) for element in value):
        return repr(sorted(value))
    return None


async def test_what_each_part_is_given() -> None:
    agent = an_agent()
    shared = {id(value): name.lstrip("_") for name, value in _attributes(agent).items()
              if not isinstance(value, str | int | float | tuple)}  # fmt: skip
    parts = {name.lstrip("_"): value for name, value in _attributes(agent).items()}
    for name, value in _attributes(agent.context).items():
        shared.setdefault(id(value), f"context {name}")
        parts.setdefault(f"context {name}", value)
    parts |= {f"keeper {type(keeper).__name__}": keeper for keeper in agent.keepers()}
    table = {
        f"{part} {name}": description
        for part, part_object in parts.items()
        for name, value in _attributes(part_object).items()
        if type(part_object).__module__.startswith("moorage.")
        and (description := _description(value, shared)) is not None
    }
    assert_recorded("node/agent", table)


class Part:
    """A part that runs until it is cancelled."""

    def __init__(self, steps: list[str], name: str) -> None:
        self._steps, self._name = steps, name

    async def run(self) -> None:
        self._steps.append(self._name)
        await asyncio.get_running_loop().create_future()

    def add_handler(self, _handler: object) -> None:
        self._steps.append(f"{self._name} handler")

    def add_listener(self, _listener: object) -> None:
        self._steps.append(f"{self._name} listener")

    def __getattr__(self, method: str) -> Any:
        async def call(*_: object) -> None:
            self._steps.append(f"{self._name}.{method}")

        return call


@pytest.mark.parametrize("has_server", [True, False])
async def test_pods_are_run_once_the_engine_the_api_and_the_node_are_known(
    has_server: bool,
) -> None:
    steps: list[str] = []
    server = ServerOptions(certificate_file=ROOT, key_file=ROOT, client_ca_file=ROOT)

    async def serve(*_: object) -> None:
        steps.append("server")

    agent: Any = an_agent(serve=serve, server=server if has_server else None)
    names = ("recorder", "health", "observer", "pods", "classes", "services", "node", "lease",
             "nodes", "pod_manager", "qos_tree", "pressure_keeper")  # fmt: skip
    for name in names:
        setattr(agent, name if name == "node" else f"_{name}", Part(steps, name))

    async def recover() -> None:
        steps.append("recover")

    agent.recover_pulls = recover
    agent.keepers = lambda: (Part(steps, "keeper"),)
    running = asyncio.ensure_future(agent.run())
    await settle(50)
    running.cancel()
    await asyncio.wait((running,))
    before = [
        "qos_tree.prepare", "pressure_keeper.look", "nodes handler", "pod_manager listener",
    ]  # fmt: skip
    assert steps[:4] == before
    waits = ["observer.wait_listed", "recover", "pods.wait_synced", "node.wait_registered"]
    assert [step for step in steps if step in waits] == waits
    later = ["nodes", "pod_manager", "keeper"]
    assert steps[-3:] == later
    rest = set(steps) - {*before, *waits, *later}
    assert rest == {*names[:8], *({"server"} if has_server else ())}


async def test_failed_pull_recovery_does_not_delay_pods() -> None:
    agent: Any = an_agent()
    steps: list[str] = []

    async def recover() -> None:
        steps.append("recover")
        raise CriError("m", grpc.StatusCode.UNAVAILABLE, "away")

    agent.pull_records = SimpleNamespace(load=lambda: steps.append("load"))
    object.__setattr__(agent, "context", SimpleNamespace(images=SimpleNamespace(recover=recover)))
    await agent.recover_pulls()
    assert steps == ["load", "recover"]


async def test_the_node_is_seen_and_objects_are_forgotten() -> None:
    clock = FakeClock()
    agent: Any = an_agent(clock)
    steps: list[Any] = []
    agent.node = SimpleNamespace(seen=steps.append)
    node = a_node()
    agent.see_node(node, None)
    agent.see_node(None, node)
    assert steps == [node]
    agent.objects = SimpleNamespace(forget_unused=lambda: steps.append("forgotten"))
    running = asyncio.ensure_future(agent.housekeep())
    await settle()
    assert steps == [node]
    clock.advance(clock.next_s or 0)
    await settle()
    running.cancel()
    assert steps == [node, "forgotten"]
