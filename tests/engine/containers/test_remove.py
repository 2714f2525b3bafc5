"""RemoveContainer on real directories with a fake runtime."""

from __future__ import annotations

import asyncio

import pytest

from moorage.engine.containers.lifecycle import remove_container
from moorage.engine.errors import NotFoundError
from tests.engine.parts import Bench, bench, place

__all__ = ["bench", "place"]

CREATED = ["create", "start"]


async def test_a_removal_ends_what_runs_and_leaves_nothing(bench: Bench) -> None:
    sandbox = await bench.pod()
    container, beside = await bench.running(sandbox), await bench.running(sandbox, name="beside")
    await bench.new_events()
    await asyncio.gather(*(remove_container(bench.context, container) for _ in range(2)))
    assert await bench.new_events() == [("STOPPED", container.id), ("DELETED", container.id)]
    assert container.id not in bench.adapter.tasks
    assert not bench.paths.bundle(container.id).exists()
    assert bench.on_disk("containers").keys() == {beside.id}
    assert list(bench.inventory.containers) == [beside]
    assert bench.mounts() == {f"b/{beside.id}/rootfs"}
    with pytest.raises(NotFoundError):
        await bench.context.images.writable_usage(container.id)
    assert beside.is_running
