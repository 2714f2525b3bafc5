"""Hundreds of held pods, while controllers are killed: each gate goes once, and none stays."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from moorage.api.clock import SystemClock
from moorage.api.pods import Pod
from moorage.api.runtime_group import HANDLER_AVAILABLE, HANDLER_GATE, handler_label, profile_name
from moorage.controllers.informers import Informers
from moorage.controllers.runtimeclasses import profile_informer
from moorage.controllers.runtimegates import RuntimeGateController
from moorage.runtimes.custom_resources import install_definitions, wait_installed
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.informer import Informer
from moorage.wire.client.recorder import EventRecorder
from moorage.wire.client.resources import (
    NODES,
    PODS,
    RUNTIME_CLASSES,
    RUNTIME_PROFILES,
    SERVICE_ACCOUNTS,
)
from moorage.wire.client.rest import Client, PatchType
from tests.apiserver.running_server import Running, serving

pytestmark = pytest.mark.slow

_PODS = 300
_KILLS = 3
_DEADLINE_S = 120.0


def client_of(server: Running) -> Client:
    ca = server.authority.pair.certificate.read_bytes()
    config = ClientConfig(server=server.url, ca=ca, token="admin-token")
    return Client(config, user_agent="test")


@asynccontextmanager
async def controller(client: Client) -> AsyncIterator[None]:
    """Run a controller until it is killed."""
    clock = SystemClock()
    informers, profiles = Informers(client, clock), profile_informer(client, clock)
    recorder = EventRecorder(client, "test", clock=clock)
    gates = RuntimeGateController(client, informers, profiles, recorder, clock)
    sources = (informers.nodes, informers.runtime_classes, profiles, recorder, gates)
    tasks = [asyncio.create_task(one.run()) for one in sources]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def create_held(client: Client) -> None:
    """Create a node without the handler, and the pods that wait for it."""
    await install_definitions(client)
    await wait_installed(client, SystemClock())
    await client.create(NODES, {"metadata": {"name": "n"}})
    spec = {"nodeName": "n", "handler": "runc"}
    await client.create(RUNTIME_PROFILES, {"metadata": {"name": profile_name("n", "runc")},
                                           "spec": spec})  # fmt: skip
    await client.create(RUNTIME_CLASSES, {"metadata": {"name": "kata"}, "handler": "kata"})
    await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, "default")
    pod = {
        "runtimeClassName": "kata",
        "automountServiceAccountToken": False,
        "containers": [{"name": "c", "image": "i"}],
        "schedulingGates": [{"name": HANDLER_GATE}],
    }

    async def create(names: range) -> None:
        for name in names:
            await client.create(PODS, {"metadata": {"name": f"p{name}"}, "spec": pod}, "default")

    async with asyncio.TaskGroup() as tasks:
        for first in range(8):
            tasks.create_task(create(range(first, _PODS, 8)))


def condition_of(pod: Pod) -> str:
    conditions = pod.status.conditions
    return next((one.status for one in conditions if one.type == HANDLER_AVAILABLE), "")


State = tuple[bool, str]
"""Whether a pod has its gate, and its condition."""


class Watched:
    """Counts of pods by gate and condition, kept by a watch."""

    def __init__(self, client: Client) -> None:
        self.informer = Informer(client, PODS, namespace="default")
        self.counts: Counter[State] = Counter()
        self._changed = asyncio.Event()
        self.informer.add_handler(self._count)

    def _count(self, before: Pod | None, after: Pod | None) -> None:
        for pod, step in ((before, -1), (after, 1)):
            if pod is not None:
                self.counts[bool(pod.spec.scheduling_gates), condition_of(pod)] += step
        self._changed.set()

    async def until(self, is_reached: Callable[[Counter[State]], bool]) -> None:
        """Wait until the counts meet a condition."""
        try:
            async with asyncio.timeout(_DEADLINE_S):
                while not is_reached(self.counts):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"at the end: {self.counts}") from None


def _has(states: tuple[State, ...], count: int, counts: Counter[State]) -> bool:
    return sum(counts[state] for state in states) >= count


async def test_no_gate_stays_where_controllers_are_killed_while_they_remove_them(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, runs=True) as server, client_of(server) as client:
        await create_held(client)
        watched = Watched(client)
        watching = asyncio.create_task(watched.informer.run())
        # Killed while they say that the handler is missing.
        for kill in range(1, _KILLS + 1):
            done = _PODS * kill // (_KILLS + 1)
            async with client_of(server) as own, controller(own):
                await watched.until(partial(_has, ((True, "False"),), done))
        async with client_of(server) as own, controller(own):
            await watched.until(lambda counts: counts[True, "False"] == _PODS)
        labels = {"metadata": {"labels": {handler_label("kata"): "true"}}}
        await client.patch(NODES, "n", labels, kind=PatchType.MERGE)
        # Killed while they remove gates.
        for kill in range(1, _KILLS + 1):
            done = _PODS * kill // (_KILLS + 1)
            async with client_of(server) as own, controller(own):
                await watched.until(partial(_has, ((False, "False"), (False, "True")), done))
        async with client_of(server) as own, controller(own):
            await watched.until(lambda counts: counts[False, "True"] == _PODS)
        selectors = {tuple(pod.spec.node_selector.items()) for pod in watched.informer}
        assert selectors == {((handler_label("kata"), "true"),)}
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
