"""Listeners of an external engine."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.api.host_ports import Listener
from moorage.cluster.layout import Layout
from moorage.cluster.network import PodNetwork
from moorage.cluster.parts.apiserver import HostRules, follow_engine, protected_ports
from moorage.wire.engine_ports import EngineProcess, engine_listeners, engine_process
from tests.cluster.test_settings import SETTINGS

ADDRESSES = ("127.0.0.1", "192.0.2.7")


def test_the_engine_is_the_process_behind_the_socket(tmp_path: Path) -> None:
    endpoint = f"unix://{tmp_path}/cri.sock"
    assert engine_process(endpoint) is None
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "cri.sock"))
        listener.listen()
        assert engine_process(endpoint) == os.getpid()
    assert engine_process(endpoint) is None


def test_a_stream_port_is_found_and_one_for_all_addresses_is_on_each() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as streams,
        socket.create_server(("0.0.0.0", 0)) as metrics,
    ):
        listeners = engine_listeners(os.getpid(), ADDRESSES)
        port, open_port = streams.getsockname()[1], metrics.getsockname()[1]
    mine = [listener for listener in listeners if listener.port in (port, open_port)]
    assert sorted(mine, key=lambda listener: (listener.port != port, listener.address)) == [
        Listener("engine", "127.0.0.1", port),
        *(Listener("engine", address, open_port) for address in ADDRESSES),
    ]


def test_an_engine_that_is_gone_has_no_listeners() -> None:
    assert engine_listeners(None, ADDRESSES) == ()
    # No process has the number 0.
    assert engine_listeners(0, ADDRESSES) == ()


EXTERNAL = msgspec.structs.replace(SETTINGS, cri="unix:///x.sock")


class Engine(EngineProcess):
    """An engine that is found under these process IDs, one after the other."""

    poll_s = 0.0

    def __init__(self, pids: Iterable[int | None]) -> None:
        self._pids = iter(pids)

    def find(self, endpoint: str) -> int | None:
        assert endpoint == EXTERNAL.cri
        try:
            return next(self._pids)
        except StopIteration:
            raise _AllSeenError from None

    def listeners_of(self, pid: int | None, addresses: tuple[str, ...]) -> tuple[Listener, ...]:
        assert pid is not None
        return (Listener("engine", addresses[0], 1000 + pid),)


class Rules(HostRules):
    """The rules that were made; `again` is set with the second ones, which may not end."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.steps: list[str] = []
        self.ports: list[int] = []
        self.again = asyncio.Event()
        self._hangs = hangs

    async def gather(self, _root: Path) -> Any: ...

    async def protect(self, network: PodNetwork, *_: object) -> None:
        self.steps.append("protect")
        self.ports.append(network.listeners[-1].port)
        if len(self.steps) < 2:
            return
        self.again.set()
        if self._hangs:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                await asyncio.sleep(0)
                self.steps.append("end of protect")

    async def unprotect(self, *_: object) -> None:
        self.steps.append("unprotect")


def restarting() -> Engine:
    return Engine(itertools.chain([7, 7, 7], itertools.repeat(9)))


async def test_ports_are_protected_again_after_an_external_engine_restarts(tmp_path: Path) -> None:
    rules = Rules()
    ports = protected_ports(Layout(tmp_path), EXTERNAL, rules, restarting())
    async with asyncio.timeout(10), ports:
        await rules.again.wait()
    assert rules.ports == [1007, 1009]


def test_listeners_of_an_external_engine_are_found_by_its_socket(tmp_path: Path) -> None:
    assert EngineProcess().listeners("", "192.0.2.7") == ()
    with socket.socket(socket.AF_UNIX) as cri, socket.create_server(("0.0.0.0", 0)) as streams:
        cri.bind(str(tmp_path / "cri.sock"))
        cri.listen()
        port = streams.getsockname()[1]
        listeners = EngineProcess().listeners(f"unix://{tmp_path}/cri.sock", "192.0.2.7")
    assert {listener for listener in listeners if listener.port == port} == {
        Listener("engine", address, port) for address in ADDRESSES
    }


async def test_rules_are_made_again_for_an_engine_that_was_started_again() -> None:
    made: list[int] = []

    async def guard() -> None:
        made.append(1)

    with pytest.raises(_AllSeenError):
        await follow_engine(EXTERNAL, guard, Engine([7, 7, None, 7, 9, 9]))
    assert made == [1]
    # With an engine of our own, its part makes the rules.
    await follow_engine(SETTINGS, guard, Engine(()))


class _AllSeenError(Exception):
    """The engine's processes are used up."""


async def test_rules_are_removed_only_after_the_last_were_made(tmp_path: Path) -> None:
    """Else those that are still being made would stay."""
    rules = Rules(hangs=True)
    ports = protected_ports(Layout(tmp_path), EXTERNAL, rules, restarting())
    async with asyncio.timeout(10), ports:
        await rules.again.wait()
    assert rules.steps == ["protect", "protect", "end of protect", "unprotect"]
