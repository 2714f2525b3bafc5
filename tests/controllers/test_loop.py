"""The loop of a controller: what it waits for, what it queues, and when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from moorage.api.configuration import ConfigMap
from moorage.api.errors import ConflictError
from moorage.controllers.loop import (
    After,
    Loop,
    key_if_present,
    key_of_either,
    key_of_either_forgetting,
)
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import CONFIG_MAPS, SECRETS, Resource
from tests.controllers.memory import World


class Seen:
    """Records the keys that are reconciled."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.failures: list[Exception] = []

    async def reconcile(self, key: str) -> None:
        self.keys.append(key)
        if self.failures:
            raise self.failures.pop()


def config_map(name: str, uid: str = "") -> Any:
    return {"metadata": {"name": name, "namespace": "default", "uid": uid or name}}


def informer(world: World, resource: Resource[Any] = CONFIG_MAPS) -> Informer[Any]:
    return Informer(world.client, resource, clock=world.clock)


async def test_changes_are_reconciled_by_their_keys() -> None:
    world, seen = World(), Seen()
    world.client.put(CONFIG_MAPS, config_map("a"))
    maps = informer(world)
    loop = Loop("test", seen.reconcile, [(maps, key_if_present)], world.clock, owned=[maps])
    async with world.running(loop.run()) as client:
        client.put(CONFIG_MAPS, config_map("b"))
        await world.settled()
        client.drop(CONFIG_MAPS, "a")
        await world.settled()
    assert seen.keys == ["default/a", "default/b"]


async def test_nothing_is_reconciled_before_all_informers_are_complete() -> None:
    world, seen = World(), Seen()
    world.client.put(CONFIG_MAPS, config_map("a"))
    maps, secrets = informer(world), informer(world, SECRETS)
    loop = Loop(
        "test", seen.reconcile, [(maps, key_if_present), (secrets, None)], world.clock,
        owned=[maps], first=["first"],
    )  # fmt: skip
    async with world.running(loop.run()):
        assert maps.is_synced
        assert seen.keys == []
        async with world.running(secrets.run()):
            assert seen.keys == ["default/a", "first"]


async def test_keys_of_late_watches_find_the_other_copies_complete() -> None:
    world, seen = World(), Seen()
    world.client.put(CONFIG_MAPS, config_map("a"))
    world.client.put(SECRETS, config_map("s"))
    maps, secrets = informer(world), informer(world, SECRETS)

    def all_maps(before: Any, after: Any) -> Iterator[str]:
        del before, after
        yield from (one.metadata.name for one in maps)

    loop = Loop(
        "test", seen.reconcile, [(maps, None)], world.clock,
        owned=[secrets, maps], late=[(secrets, all_maps)],
    )  # fmt: skip
    async with world.running(loop.run()):
        assert seen.keys == ["a"]


async def test_a_delayed_key_is_queued_when_its_time_has_come() -> None:
    world, seen = World(), Seen()
    maps = informer(world)

    def later(before: Any, after: Any) -> Iterable[After[str]]:
        del before, after
        return (After("key", 5.0),)

    loop = Loop("test", seen.reconcile, [(maps, later)], world.clock, owned=[maps])
    async with world.running(loop.run()) as client:
        client.put(CONFIG_MAPS, config_map("a"))
        await world.settled(4.0)
        assert seen.keys == []
        await world.settled(1.0)
        assert seen.keys == ["key"]


async def test_a_resync_queues_its_keys_again_and_again() -> None:
    world, seen = World(), Seen()
    loop = Loop("test", seen.reconcile, (), world.clock, resync=(60.0, lambda: ["a", "b"]))
    async with world.running(loop.run()):
        assert seen.keys == []
        await world.settled(60.0)
        await world.settled(60.0)
    assert seen.keys == ["a", "b"] * 2


async def test_a_key_can_be_queued_for_another_reason() -> None:
    world, seen = World(), Seen()
    loop: Loop[str] = Loop("test", seen.reconcile, (), world.clock)
    async with world.running(loop.run()):
        loop.add("now", After("later", 1.0))
        await world.settled()
        assert seen.keys == ["now"]
        await world.settled(1.0)
    assert seen.keys == ["now", "later"]


async def test_a_failed_key_is_retried() -> None:
    world, seen = World(), Seen()
    seen.failures.append(ConflictError("changed meanwhile"))
    loop = Loop("test", seen.reconcile, (), world.clock, first=["a"])
    async with world.running(loop.run()):
        await world.settled(1.0)
    assert seen.keys == ["a", "a"]


def test_what_is_known_of_a_replaced_object_is_forgotten() -> None:
    forgotten: list[str] = []
    keys = key_of_either_forgetting(forgotten.append)
    first, second = (_typed(config_map("a", uid)) for uid in ("1", "2"))
    assert [*keys(None, first), *keys(first, first)] == ["default/a"] * 2
    assert forgotten == []
    assert [*keys(first, second), *keys(second, None)] == ["default/a"] * 2
    assert forgotten == ["default/a"] * 2
    assert list(key_of_either(second, None)) == ["default/a"]
    assert list(key_if_present(second, None)) == []


def _typed(obj: Any) -> ConfigMap:
    return msgspec.convert(obj, ConfigMap)
