"""Listeners of an external engine."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from pathlib import Path

import msgspec
import pytest

from moorage.api.host_ports import Listener
from moorage.cluster.layout import Layout
from moorage.cluster.network import PodNetwork
from moorage.cluster.parts import apiserver
from moorage.wire.engine_ports import engine_listeners, engine_process
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


async def test_ports_are_protected_again_after_an_external_engine_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = itertools.chain([7, 7, 7], itertools.repeat(9))
    protected: list[tuple[Listener, ...]] = []
    again = asyncio.Event()

    async def protect(network: PodNetwork, *_: object) -> None:
        protected.append(network.listeners)
        if len(protected) == 2:
            again.set()

    async def nothing(*_: object) -> None: ...

    monkeypatch.setattr("moorage.cluster.host.gather", nothing)
    monkeypatch.setattr("moorage.cluster.network.protect", protect)
    monkeypatch.setattr("moorage.cluster.network.unprotect", nothing)
    monkeypatch.setattr(apiserver, "engine_process", lambda _: next(pids))
    monkeypatch.setattr(
        apiserver,
        "engine_listeners",
        lambda pid, _: (Listener("engine", "127.0.0.1", 1000 + pid),),
    )
    monkeypatch.setattr(apiserver, "_POLL_S", 0.0)
    settings = msgspec.structs.replace(SETTINGS, cri="unix:///x.sock")
    async with asyncio.timeout(10), apiserver._protected_ports(Layout(tmp_path), settings):
        await again.wait()
    assert [listeners[-1].port for listeners in protected] == [1007, 1009]


async def test_rules_are_made_again_for_an_engine_that_was_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = iter([7, 7, None, 7, 9, 9])
    made: list[int] = []

    def process(endpoint: str) -> int | None:
        assert endpoint == "unix:///x.sock"
        try:
            return next(seen)
        except StopIteration:
            raise _AllSeenError from None

    async def guard() -> None:
        made.append(1)

    monkeypatch.setattr(apiserver, "engine_process", process)
    monkeypatch.setattr(apiserver, "_POLL_S", 0.0)
    settings = msgspec.structs.replace(SETTINGS, cri="unix:///x.sock")
    with pytest.raises(_AllSeenError):
        await apiserver._follow_engine(settings, guard)
    assert made == [1]
    # With an engine of our own, its part makes the rules.
    await apiserver._follow_engine(SETTINGS, guard)
    assert apiserver._engine_listeners(SETTINGS) == ()


class _AllSeenError(Exception):
    """The engine's processes are used up."""


async def test_rules_are_removed_only_after_the_last_were_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else those that are still being made would stay."""
    pids = itertools.chain([7, 7, 7], itertools.repeat(9))
    steps: list[str] = []
    again = asyncio.Event()

    async def protect(*_: object) -> None:
        steps.append("protect")
        if len(steps) == 2:
            again.set()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                await asyncio.sleep(0)
                steps.append("end of protect")

    async def unprotect(*_: object) -> None:
        steps.append("unprotect")

    async def gather(_: Path) -> None: ...

    monkeypatch.setattr("moorage.cluster.host.gather", gather)
    monkeypatch.setattr("moorage.cluster.network.protect", protect)
    monkeypatch.setattr("moorage.cluster.network.unprotect", unprotect)
    monkeypatch.setattr(apiserver, "engine_process", lambda _: next(pids))
    monkeypatch.setattr(apiserver, "engine_listeners", lambda *_: ())
    monkeypatch.setattr(apiserver, "_POLL_S", 0.0)
    settings = msgspec.structs.replace(SETTINGS, cri="unix:///x.sock")
    async with asyncio.timeout(10), apiserver._protected_ports(Layout(tmp_path), settings):
        await again.wait()
    assert steps == ["protect", "protect", "end of protect", "unprotect"]
