"""The loop of installations against objects in memory: places, finalizers, events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from moorage.controllers.runtimeinstallations import RuntimeInstallationController
from moorage.wire.client.resources import NODES, RUNTIME_INSTALLATIONS
from tests.controllers.memory import Json, MemoryClient, World

_FINALIZER = "runtime.moorage.dev/installation"


def _node(name: str, ready: str = "True") -> Json:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/arch": "amd64"}},
        "status": {
            "conditions": [
                {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}
            ]
        },
    }


def _installation(**status: Any) -> Json:
    return {
        "metadata": {"name": "i", "uid": "uid-i", "generation": 1, "finalizers": [_FINALIZER]},
        "spec": {
            "handler": "h",
            "sources": [{"architecture": "amd64", "path": "/x", "sha256": "a" * 64}],
        },
        "status": status,
    }


def _entry(name: str, **more: Any) -> Json:
    return {"name": name, "phase": "Installed", "observedGeneration": 1, **more}


@pytest.fixture
def world() -> World:
    world = World()
    for name in ("a", "b"):
        world.client.put(NODES, _node(name))
    return world


@asynccontextmanager
async def reconciling(world: World) -> AsyncIterator[MemoryClient]:
    controller = RuntimeInstallationController(
        world.client, world.informers, world.recorder, world.clock
    )
    async with world.running(controller.run()) as client:
        await world.settled(1)
        yield client


def _status(client: MemoryClient) -> Json:
    found = client.find(RUNTIME_INSTALLATIONS, "i")
    assert found is not None
    status: Json = json.loads(json.dumps(found["status"]))
    return status


async def test_places_are_given_one_after_the_other_and_the_end_is_an_event(world: World) -> None:
    world.client.put(RUNTIME_INSTALLATIONS, _installation())
    async with reconciling(world) as client:
        assert _status(client)["allowed"] == ["a"]
        body = client.asked("patch", RUNTIME_INSTALLATIONS)[0].body
        assert "nodes" not in body["status"]
        assert body["metadata"]["resourceVersion"]
        for name, entries in (("b", [_entry("a")]), (None, [_entry("a"), _entry("b")])):
            changed = _installation(**{**_status(client), "nodes": entries})
            client.put(RUNTIME_INSTALLATIONS, changed)
            await world.settled(1)
            assert _status(client).get("allowed", []) == ([name] if name else [])
        assert _status(client)["installed"] == 2
        await world.settled(1)
        assert [event[2] for event in client.events] == ["Installed"]
        client.requests.clear()
        await world.settled(3600)
        assert client.writes == []


async def test_a_failure_is_an_event_and_keeps_its_place(world: World) -> None:
    failed = _entry("a", phase="Failed", message="out of order")
    world.client.put(RUNTIME_INSTALLATIONS, _installation(allowed=["a"], nodes=[failed]))
    async with reconciling(world) as client:
        assert _status(client)["allowed"] == ["a"]
        assert [event[2:] for event in client.events] == [("NodesFailed", "a: out of order")]


async def test_an_object_gets_the_finalizer_and_loses_it_with_its_last_node(world: World) -> None:
    fresh = _installation()
    fresh["metadata"]["finalizers"] = ["other"]
    world.client.put(RUNTIME_INSTALLATIONS, fresh)
    async with reconciling(world) as client:
        found = client.find(RUNTIME_INSTALLATIONS, "i")
        assert found is not None
        assert found["metadata"]["finalizers"] == ["other", _FINALIZER]
        ending = _installation(nodes=[_entry("a"), _entry("gone")])
        ending["metadata"] |= {
            "finalizers": ["other", _FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        client.put(RUNTIME_INSTALLATIONS, ending)
        await world.settled(1)
        assert _status(client)["allowed"] == ["a"]
        found = client.find(RUNTIME_INSTALLATIONS, "i")
        assert found is not None
        assert _FINALIZER in found["metadata"]["finalizers"]
        client.put(NODES, _node("a", ready="Unknown"))
        await world.settled(400)
        found = client.find(RUNTIME_INSTALLATIONS, "i")
        assert found is not None
        assert found["metadata"]["finalizers"] == ["other"]
