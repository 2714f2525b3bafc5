"""Runtime agent: the engine that it finds, what it asks, and the classes that its probes leave."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from moorage.api.names import label_value_errors
from moorage.attach.processes import runtime_agent
from moorage.attach.processes.runtime_agent import (
    NoEngineError,
    find_endpoint,
    follow_engine,
    follow_socket,
    probe_owner,
    remove_idle_classes,
)
from moorage.runtimes.installing.host_access import CONTAINED, DIRECT
from moorage.runtimes.probing.carrier import CarrierError
from moorage.runtimes.probing.evidence import HandlerState, KnownHandler, Working
from moorage.runtimes.probing.host import read_host
from moorage.wire.cri import CriError
from tests.clocks import FakeClock


@contextmanager
def sockets(*paths: Path) -> Iterator[None]:
    made = []
    for path in paths:
        one = socket.socket(socket.AF_UNIX)
        one.bind(str(path))
        made.append(one)
    yield
    for one in made:
        one.close()


def test_the_only_engine_is_found(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    with sockets(first):
        assert find_endpoint("", [first, second]) == f"unix://{first}"
    # A file that is no socket is none.
    second.touch()
    with pytest.raises(NoEngineError, match="no engine"):
        find_endpoint("", [second])


def test_a_chosen_engine_needs_no_socket_yet_and_several_need_a_choice(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    assert find_endpoint("unix:///x", []) == "unix:///x"
    with sockets(first, second), pytest.raises(NoEngineError, match=r"several engines .*--cri"):
        find_endpoint("", [first, second])


@pytest.mark.parametrize("node", ["n1", "a" * 63 + ".example.com", "n" * 253])
def test_every_node_has_a_label_value_for_its_probes(node: str) -> None:
    assert not label_value_errors(probe_owner(node))


@pytest.mark.skipif(os.geteuid() != 0, reason="mount namespaces need root")
def test_the_host_is_reached_directly_but_from_other_mounts() -> None:
    program = (
        "from moorage.runtimes.installing.host_access import find_access\n"
        "print(find_access().is_contained)"
    )
    said = [
        subprocess.run(
            [*prefix, sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.strip()
        for prefix in ([], ["unshare", "--mount"])
    ]
    assert said == ["False", "True"]
    assert not DIRECT.is_contained
    assert CONTAINED.is_contained


def test_facts_of_the_first_process_are_those_of_the_host() -> None:
    host = read_host("1")
    assert host.devices is None
    assert host.first_process
    assert "lo" in host.interfaces


async def test_an_engine_is_read_again_after_a_change_and_after_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, changed, read = FakeClock(), asyncio.Event(), []
    answers: list[Any] = [CriError("Status", grpc.StatusCode.UNAVAILABLE, "gone"), "one", "two"]
    pauses: list[float] = []

    async def call(*_: Any, **__: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, CriError):
            raise answer
        return answer

    class Found:
        async def read(self, status: Any) -> None:
            read.append(status)

    async def pause(_: Any, seconds: float, event: asyncio.Event) -> None:
        pauses.append(seconds)
        if not answers:
            await asyncio.Event().wait()
        event.set()

    monkeypatch.setattr(runtime_agent, "sleep_unless_set", pause)
    cri: Any = SimpleNamespace(call=call, runtime=SimpleNamespace(Status=None))
    found: Any = Found()
    task = asyncio.create_task(follow_engine(cri, found, changed, clock))
    while len(pauses) < 3:  # noqa: ASYNC110
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert read == ["one", "two"]
    assert pauses == [5.0, 30.0, 30.0]


async def test_a_socket_that_is_made_again_is_noticed(tmp_path: Path) -> None:
    changed = asyncio.Event()
    task = asyncio.create_task(follow_socket(f"unix://{tmp_path}/e.sock", changed))
    await asyncio.sleep(0)
    (tmp_path / "other").touch()
    with sockets(tmp_path / "e.sock"):
        async with asyncio.timeout(5):
            await changed.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_classes_of_probes_stay_until_all_handlers_are_probed() -> None:
    listeners: list[Any] = []
    states = {"h": HandlerState(handler=KnownHandler(name="h"), working=Working.PENDING)}
    discovery = SimpleNamespace(add_listener=listeners.append, states=states)
    removed, failures = asyncio.Event(), [CarrierError("API is away")]

    class Carrier:
        async def remove_classes(self) -> None:
            if failures:
                raise failures.pop()
            removed.set()

    clock = FakeClock()
    found: Any = SimpleNamespace(discovery=discovery)
    carrier: Any = Carrier()
    task = asyncio.create_task(remove_idle_classes(found, carrier, clock))
    await asyncio.sleep(0)
    listeners[0]()
    await asyncio.sleep(0)
    assert failures
    states["h"] = HandlerState(handler=KnownHandler(name="h"), working=Working.NO)
    listeners[0]()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not failures
    clock.advance(10)
    async with asyncio.timeout(5):
        await removed.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_endpoint_at_which_nothing_answers_is_named() -> None:
    async def call(*_: Any, **__: Any) -> Any:
        raise CriError("Version", grpc.StatusCode.UNAVAILABLE, "no such file")

    clock = FakeClock()
    cri: Any = SimpleNamespace(
        call=call, runtime=SimpleNamespace(Version=None), endpoint="unix:///none.sock"
    )
    asked = asyncio.create_task(runtime_agent.is_own_engine(cri, clock))
    for _ in range(2):
        while clock.next_s is None:  # noqa: ASYNC110
            await asyncio.sleep(0)
        clock.advance(5)
    with pytest.raises(NoEngineError, match=r"no engine answers at .*none\.sock: .*agent\.cri"):
        await asked
