"""The node's loop of installations against objects in memory and an engine that fails."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from moorage.runtimes.installing.downloads import HandlerInUseError, RuntimeInstallationError
from moorage.runtimes.installing.following import InstallationFollower
from moorage.wire.client.resources import NODES, RUNTIME_INSTALLATIONS
from tests.controllers.memory import Json, World

_Error = Callable[[str], RuntimeInstallationError]
_PROGRAM = b"#!/bin/sh\n"


def _installation(path: Path, **more: Any) -> Json:
    digest = hashlib.sha256(_PROGRAM).hexdigest()
    return {
        "metadata": {"name": "i", "uid": "uid-i", "generation": 1},
        "spec": {
            "handler": "h",
            "sources": [{"architecture": "amd64", "path": str(path), "sha256": digest}],
        },
        "status": {"observedGeneration": 1, "allowed": ["a"], **more},
    }


class _Engine:
    """Connects to an engine that fails, with another message each time."""

    def __init__(self, message: Callable[[int], str], error: _Error = RuntimeInstallationError):
        self._message = message
        self._error = error
        self.attempts = 0

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Any]:
        self.attempts += 1
        raise self._error(self._message(self.attempts))
        yield


@asynccontextmanager
async def _following(
    world: World, store: Path, engine: _Engine, *, is_contained: bool = False
) -> AsyncIterator[None]:
    world.client.put(NODES, {"metadata": {"name": "a", "labels": {"kubernetes.io/arch": "amd64"}}})
    follower = InstallationFollower(
        world.client, "a", store, engine.connect, world.recorder, world.clock,
        is_contained=is_contained,
        own_directory=store / "own",
    )  # fmt: skip
    async with world.running(follower.run()):
        yield


async def _until(world: World, holds: Callable[[], bool]) -> None:
    """Let all go on, threads too, until a condition holds."""
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.001)
            await world.settled()


async def _go_on(world: World) -> None:
    """Let what a change brings about go on: records are read in threads, in a millisecond."""
    for _ in range(20):
        await asyncio.sleep(0.001)
        await world.settled()


def _entry(world: World) -> Json:
    found: Json = world.client.find(RUNTIME_INSTALLATIONS, "i") or {}
    return dict(next(iter(found.get("status", {}).get("nodes", [])), {}))


async def test_a_failure_is_tried_again_after_a_pause_whatever_changes_meanwhile(
    tmp_path: Path,
) -> None:
    world, engine = World(), _Engine(lambda number: f"sandbox {number} does not start")
    world.client.put(RUNTIME_INSTALLATIONS, _installation(tmp_path / "program"))
    async with _following(world, tmp_path, engine):
        await _until(world, lambda: "sandbox 1" in _entry(world).get("message", ""))
        # Its own report, and reports of other nodes, come back as changes.
        for number in range(3):
            changed = world.client.find(RUNTIME_INSTALLATIONS, "i")
            other = {"name": f"b{number}", "phase": "Installed"}
            changed["status"]["nodes"] = [_entry(world), other]
            world.client.put(RUNTIME_INSTALLATIONS, changed)
            await _go_on(world)
        assert engine.attempts == 1
        await world.settled(10)
        await _until(world, lambda: engine.attempts == 2)
        await _until(world, lambda: "sandbox 2" in _entry(world).get("message", ""))
        await world.settled(19)
        assert engine.attempts == 2
        await world.settled(1)
        await _until(world, lambda: engine.attempts == 3)


async def test_an_agent_in_a_container_names_the_way_to_a_path_it_does_not_see(
    tmp_path: Path,
) -> None:
    world, engine = World(), _Engine(str)
    world.client.put(RUNTIME_INSTALLATIONS, _installation(tmp_path / "none"))
    async with _following(world, tmp_path, engine, is_contained=True):
        await _until(world, lambda: "agent.hostPaths" in _entry(world).get("message", ""))
    assert _entry(world)["message"].startswith(f"{tmp_path}/none is no file for the agent")
    assert engine.attempts == 0


async def test_a_file_in_the_agents_own_directory_is_not_taken_for_the_nodes(
    tmp_path: Path,
) -> None:
    world, engine = World(), _Engine(str)
    own = tmp_path / "own"
    own.mkdir()
    (own / "program").write_bytes(b"#!/bin/sh\n")
    world.client.put(RUNTIME_INSTALLATIONS, _installation(own / "program"))
    async with _following(world, tmp_path, engine, is_contained=True):
        await _until(world, lambda: "of its own" in _entry(world).get("message", ""))
    assert engine.attempts == 0


async def test_pods_that_keep_a_handler_are_looked_for_often(tmp_path: Path) -> None:
    def in_use(text: str) -> HandlerInUseError:
        return HandlerInUseError("h", [text])

    world, engine = World(), _Engine(str, in_use)
    world.client.put(RUNTIME_INSTALLATIONS, _installation(tmp_path / "program"))
    async with _following(world, tmp_path, engine):
        for attempt in range(1, 5):
            await _until(world, lambda: engine.attempts == attempt)  # noqa: B023
            message = f"under handler h: {attempt}; delete them first"
            await _until(world, lambda: message in _entry(world).get("message", ""))  # noqa: B023
            await world.settled(10)


async def test_a_message_that_is_no_text_is_reported(tmp_path: Path) -> None:
    world, engine = World(), _Engine(lambda _: "entry a\udcff is there twice")
    world.client.put(RUNTIME_INSTALLATIONS, _installation(tmp_path / "program"))
    async with _following(world, tmp_path, engine):
        await _until(world, lambda: _entry(world).get("phase") == "Failed")
        _entry(world)["message"].encode()


async def test_an_entry_goes_although_the_node_does_not_own_it(tmp_path: Path) -> None:
    world, engine = World(), _Engine(lambda _: "not used")
    mine, other = {"name": "a", "phase": "Failed"}, {"name": "b", "phase": "Installed"}
    installation = _installation(tmp_path / "program", nodes=[other, mine])
    installation["spec"]["nodeSelector"] = {"not": "here"}
    world.client.put(RUNTIME_INSTALLATIONS, installation)
    async with _following(world, tmp_path, engine):
        await _until(world, lambda: len(world.client.asked("patch", RUNTIME_INSTALLATIONS)) >= 2)
    applied, removed = world.client.asked("patch", RUNTIME_INSTALLATIONS)[:2]
    # The server in memory keeps what an apply leaves out, as if another manager owned it.
    assert applied.body["status"] == {}
    assert removed.body == [
        {"op": "test", "path": "/status/nodes/1/name", "value": "a"},
        {"op": "remove", "path": "/status/nodes/1"},
    ]


@pytest.fixture(autouse=True)
def _program(tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(_PROGRAM)
