"""Publishing of handlers: what is written when, and what is put right."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from moorage.api.errors import ConflictError
from moorage.api.meta import ObjectMeta
from moorage.api.nodes import Node, NodeStatus, NodeSystemInfo
from moorage.api.runtime_group import ProfileFeature
from moorage.runtimes.probing.cache import ProbedHandler
from moorage.runtimes.probing.evidence import HandlerState, KnownHandler, Working
from moorage.runtimes.probing.publishing import HandlerPublisher
from moorage.wire.client.resources import NODES, RUNTIME_PROFILES
from tests.clocks import FakeClock, settle
from tests.controllers.memory import MemoryClient

_NODE = "n1"
_PROFILE = "n1.crun"


def _state(name: str) -> HandlerState:
    features = (ProfileFeature(name="exec", state="Supported", message="yes"),)
    probed = ProbedHandler(isolation="shared-kernel", features=features, probed_at="2026-01-01")
    return HandlerState(
        handler=KnownHandler(name=name), fingerprint=name, working=Working.YES, probed=probed
    )


class _World:
    """A node whose handlers are published."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.client = MemoryClient(self.clock)
        self.states: dict[str, HandlerState] | None = {"crun": _state("crun")}
        self.events: list[tuple[str, ...]] = []
        self.publisher = self._publisher()
        self.client.put(
            NODES,
            Node(
                metadata=ObjectMeta(name=_NODE, uid="node"),
                status=NodeStatus(node_info=NodeSystemInfo(kernel_version="6.1")),
            ),
        )

    def _publisher(self) -> HandlerPublisher:
        client: Any = self.client
        return HandlerPublisher(client, _NODE, lambda: self.states, self._record, self.clock)

    def _record(self, *event: str) -> None:
        self.events.append(event)

    async def pass_time(self) -> None:
        """Let every publication that waits take place."""
        for _ in range(5):
            await settle()
            self.clock.advance(10)
        await settle()

    @asynccontextmanager
    async def publishing(self) -> AsyncIterator[None]:
        self.publisher = self._publisher()
        running = asyncio.ensure_future(self.publisher.run())
        try:
            await self.pass_time()
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    @property
    def features(self) -> list[str]:
        profile = self.client.find(RUNTIME_PROFILES, _PROFILE)
        status = (profile or {}).get("status") or {}
        return [feature["name"] for feature in status.get("features", [])]


async def test_a_profile_that_someone_deleted_comes_back() -> None:
    world = _World()
    async with world.publishing():
        assert world.features == ["exec"]
        world.client.drop(RUNTIME_PROFILES, _PROFILE)
        await world.pass_time()
        assert world.features == ["exec"]


async def test_a_status_that_someone_else_wrote_is_put_right() -> None:
    world = _World()
    async with world.publishing():
        profile = world.client.find(RUNTIME_PROFILES, _PROFILE)
        assert profile is not None
        forged = [{"name": "gpu", "state": "Supported", "message": ""}]
        status = profile["status"] | {"features": forged}
        world.client.put(RUNTIME_PROFILES, profile | {"status": status})
        await world.pass_time()
        assert world.features == ["exec"]


async def test_a_profile_names_the_handler_that_it_is_under_a_second_name() -> None:
    world = _World()
    one, two = _state("gvisor"), _state("runsc")
    world.states = {
        "runsc": msgspec.structs.replace(two, fingerprint="same"),
        "gvisor": msgspec.structs.replace(one, fingerprint="same"),
    }

    def same_as(name: str) -> str:
        profile = world.client.find(RUNTIME_PROFILES, f"{_NODE}.{name}")
        assert profile is not None
        return str(profile["status"].get("sameAs", ""))

    async with world.publishing():
        assert (same_as("runsc"), same_as("gvisor")) == ("gvisor", "")
        # Its file says something else now.
        world.states = world.states | {"runsc": two}
        world.publisher.changed()
        await world.pass_time()
        assert (same_as("runsc"), same_as("gvisor")) == ("", "")


async def test_nothing_is_written_without_a_change() -> None:
    world = _World()
    async with world.publishing():
        world.client.requests.clear()
        await world.pass_time()
        assert world.client.writes == []


async def test_what_an_earlier_process_published_stays_until_the_engine_has_listed_its_handlers(
) -> None:  # fmt: skip
    world = _World()
    async with world.publishing():
        node = world.client.find(NODES, _NODE)
        assert node is not None
        labels = dict(node["metadata"]["labels"])
        assert labels
    world.states = None
    async with world.publishing():
        assert world.features == ["exec"]
        assert node["metadata"]["labels"] == labels
        world.states = {}
        world.publisher.changed()
        await world.pass_time()
        assert world.client.names(RUNTIME_PROFILES) == []


async def test_a_handler_that_breaks_and_works_again_is_reported_once_each() -> None:
    world = _World()
    working = _state("crun")
    broken = msgspec.structs.replace(
        working, working=Working.NO, reason="it fails", remedy="fix it"
    )
    seen = []
    async with world.publishing():
        for state in (working, broken, broken, working, working):
            world.states = {"crun": state}
            world.publisher.changed()
            await world.pass_time()
            seen.append(len(world.events))
        # Its record goes with it.
        for states in ({"crun": broken}, {}, {"crun": working}):
            world.states = states
            world.publisher.changed()
            await world.pass_time()
    assert seen == [0, 1, 1, 2, 2]
    (kind, _, message), (works, _, again), (kind_of_last, *_) = world.events
    assert (kind, works, kind_of_last) == ("Warning", "Normal", "Warning")
    assert message == 'runtime handler "crun" does not work: it fails; fix it'
    assert again == 'runtime handler "crun" works again'


async def test_profiles_are_written_when_the_server_fails_at_first() -> None:
    world = _World()
    world.client.failures.append(("create", "runtimeprofiles", ConflictError("later")))
    async with world.publishing():
        assert world.features == ["exec"]
        world.client.drop(RUNTIME_PROFILES, _PROFILE)
        await world.pass_time()
        assert world.features == ["exec"]
