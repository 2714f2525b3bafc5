"""Waiting for a collection that meets a condition."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moorage.wire.client.informer import Informer
from moorage.wire.client.queue import wait_until
from moorage.wire.client.resources import CONFIG_MAPS
from tests.controllers.cluster import running_cluster

pytestmark = pytest.mark.slow


async def test_the_wait_ends_with_the_change_that_meets_the_condition(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        client = cluster.client
        maps = Informer(client, CONFIG_MAPS, namespace="default")
        waiting = asyncio.ensure_future(
            wait_until(maps, lambda found: any(one.data == {"a": "2"} for one in found))
        )
        body = {"metadata": {"name": "m"}, "data": {"a": "1"}}
        await client.create(CONFIG_MAPS, body, "default")
        await maps.wait_synced()
        assert not waiting.done()
        await client.patch(CONFIG_MAPS, "m", {"data": {"a": "2"}}, "default")
        await asyncio.wait_for(waiting, 10)
        # What holds already is not waited for.
        again = Informer(client, CONFIG_MAPS, namespace="default")
        await asyncio.wait_for(wait_until(again, lambda found: len(found) > 0), 10)
        missing = Informer(client, CONFIG_MAPS, namespace="kube-public")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await wait_until(missing, lambda _: False)
