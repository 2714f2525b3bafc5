"""A node agent keeps to the store whose pods it runs: another one's empty lists end nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.cluster.layout import Layout
from moorage.cluster.parts.node import OtherStoreError, hold_to_store
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.resources import NODES
from moorage.wire.client.rest import Client, UnreachableError
from tests.apiserver.running_server import Running, serving


def client_of(server: Running) -> Client:
    ca = server.authority.pair.certificate.read_bytes()
    config = ClientConfig(server=server.url, ca=ca, token="admin-token")
    return Client(config, user_agent="test")


async def test_the_first_store_is_recorded_and_another_one_refused(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "cluster")
    async with serving(tmp_path / "one") as server, client_of(server) as client:
        await hold_to_store(client, "n1", layout)
        await client.list(NODES)
    async with serving(tmp_path / "one") as server, client_of(server) as client:
        await hold_to_store(client, "n1", layout)
    async with serving(tmp_path / "two", has_own_store=True) as server, client_of(server) as client:
        with pytest.raises(OtherStoreError, match=r"serves store-.* left alone"):
            await hold_to_store(client, "n1", layout)
        layout.node_store.unlink()
        await hold_to_store(client, "n1", layout)


async def test_a_store_that_changes_under_an_agent_is_neither_listed_nor_watched(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path / "one") as first, client_of(first) as client:
        await client.create(NODES, {"metadata": {"name": "n1"}})
        identity = await client.store_of(NODES)
    async with serving(tmp_path / "two", has_own_store=True) as second, client_of(second) as client:
        assert await client.store_of(NODES) != identity
        client.require_store(identity)
        with pytest.raises(UnreachableError, match=f"not {identity}"):
            await client.list(NODES)
        events = client.watch(NODES, resource_version="0")
        with pytest.raises(UnreachableError, match=f"not {identity}"):
            await anext(events)
