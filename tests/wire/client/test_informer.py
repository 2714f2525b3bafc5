"""A copy that stays current, whatever happens to the connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from moorage.api.meta import ObjectMeta
from moorage.api.nodes import Node
from moorage.api.pods import Pod
from moorage.wire.client.informer import Informer, object_key
from moorage.wire.client.resources import NODES, PODS
from moorage.wire.client.rest import Client, WatchEvent
from tests.clocks import FakeClock
from tests.wire.client.fake_api import FakeApi, expired, refusal, running

DEADLINE_S = 5.0


class Follower:
    """An informer of a server's nodes, and what its handler received."""

    def __init__(self, api: FakeApi, client: Client, clock: FakeClock) -> None:
        self.api = api
        self.clock = clock
        self.received: list[tuple[str | None, str | None]] = []
        self._received_more = asyncio.Event()
        self.informer: Informer[Node] = Informer(
            client,
            NODES,
            indexes={"zone": lambda node: [node.metadata.labels.get("zone", "")]},
            clock=clock,
        )
        self.informer.add_handler(self._on_change)

    def _on_change(self, before: Node | None, after: Node | None) -> None:
        self.received.append((_shown(before), _shown(after)))
        self._received_more.set()

    @property
    def names(self) -> list[str]:
        return sorted(node.metadata.name for node in self.informer)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something; the clock moves on so that pauses end."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not holds():
                    self.clock.advance(1)
                    await asyncio.sleep(0.002)
        except TimeoutError:
            raise AssertionError(f"has {self.names}, received {self.received}") from None


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not holds():  # noqa: ASYNC110 - anything may make it hold
            await asyncio.sleep(0.001)


def _shown(node: Node | None) -> str | None:
    if node is None:
        return None
    return f"{node.metadata.name}@{node.metadata.labels.get('zone', '')}"


@pytest.fixture
async def follower() -> AsyncIterator[Follower]:
    clock = FakeClock()
    async with running() as (api, client):
        api.put("a", zone="1")
        api.put("b", zone="2")
        follower = Follower(api, client, clock)
        task = asyncio.create_task(follower.informer.run())
        try:
            async with asyncio.timeout(DEADLINE_S):
                await follower.informer.wait_synced()
            await follower.until(lambda: bool(api.watched))
            yield follower
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_what_is_there_is_announced_as_new(follower: Follower) -> None:
    assert follower.informer.is_synced
    assert follower.names == ["a", "b"]
    assert follower.received == [(None, "a@1"), (None, "b@2")]
    assert follower.informer.get("a") is follower.informer.get_key("a")
    assert len(follower.informer) == 2


async def test_handlers_receive_changes_with_the_previous_object(follower: Follower) -> None:
    follower.received.clear()
    follower.api.put("c")
    follower.api.put("a", zone="9")
    follower.api.remove("b")
    await follower.until(lambda: len(follower.received) == 3)
    assert follower.received == [(None, "c@"), ("a@1", "a@9"), ("b@2", None)]
    assert follower.names == ["a", "c"]


async def test_indexes_follow(follower: Follower) -> None:
    informer = follower.informer
    follower.api.put("c", zone="1")
    await follower.until(lambda: len(informer.by_index("zone", "1")) == 2)
    follower.api.put("a", zone="2")
    follower.api.remove("b")
    await follower.until(lambda: follower.names == ["a", "c"])
    assert [node.metadata.name for node in informer.by_index("zone", "2")] == ["a"]
    assert [node.metadata.name for node in informer.by_index("zone", "1")] == ["c"]
    assert informer.by_index("zone", "none") == []


async def test_an_index_forgets_values_that_no_object_has(follower: Follower) -> None:
    follower.api.put("a", zone="2")
    follower.api.remove("b")
    await follower.until(lambda: follower.names == ["a"])
    await follower.until(lambda: bool(follower.informer.by_index("zone", "2")))
    assert follower.informer._indexed["zone"].keys() == {"2"}


async def test_late_handler_receives_the_known_objects(follower: Follower) -> None:
    late: list[str | None] = []
    follower.informer.add_handler(lambda _before, after: late.append(_shown(after)))
    assert sorted(filter(None, late)) == ["a@1", "b@2"]


async def test_interrupted_watch_resumes_at_its_revision(follower: Follower) -> None:
    follower.api.put("c")
    await follower.until(lambda: "c" in follower.names)
    seen = follower.api.revision
    follower.api.cut()
    follower.api.put("d")
    await follower.until(lambda: "d" in follower.names)
    assert follower.api.lists == 1
    assert follower.api.watched[-1] == seen


async def test_ended_watch_resumes_at_its_revision(follower: Follower) -> None:
    seen = follower.api.revision
    follower.api.end()
    await follower.until(lambda: len(follower.api.watched) == 2)
    follower.api.put("c")
    await follower.until(lambda: "c" in follower.names)
    assert follower.api.lists == 1
    assert follower.api.watched == [seen, seen]


async def test_bookmark_advances_the_resume_revision(follower: Follower) -> None:
    follower.received.clear()
    follower.api.bookmark()
    follower.api.end()
    await follower.until(lambda: len(follower.api.watched) == 2)
    assert follower.api.watched[-1] == follower.api.revision
    assert follower.received == []


async def test_after_compaction_objects_are_listed_again_and_differences_reported(
    follower: Follower,
) -> None:
    follower.received.clear()
    follower.api.cut()
    follower.api.forget("a")
    follower.api.put("b", zone="7")
    follower.api.put("c")
    follower.api.compact()
    await follower.until(lambda: follower.names == ["b", "c"])
    assert follower.api.lists == 2
    assert sorted(follower.received, key=str) == sorted(
        [("a@1", None), ("b@2", "b@7"), (None, "c@")], key=str
    )


async def test_a_gone_in_plain_http_is_a_reason_to_read_again_too(follower: Follower) -> None:
    follower.api.failures.append(refusal(410, "Expired", expired()["message"]))
    follower.api.cut()
    await follower.until(lambda: follower.api.lists == 2)


async def test_a_server_that_fails_is_asked_again_later(follower: Follower) -> None:
    follower.api.failures += [refusal(500, ""), refusal(403, "Forbidden")]
    follower.api.cut()
    follower.api.put("c")
    await follower.until(lambda: "c" in follower.names)
    assert follower.api.lists == 1


async def test_unchanged_objects_are_not_reported_again(follower: Follower) -> None:
    follower.received.clear()
    follower.api.cut()
    follower.api.bookmark()
    follower.api.compact()
    await follower.until(lambda: follower.api.lists == 2 and len(follower.api.watched) >= 3)
    assert follower.received == []


async def test_a_watch_that_always_ends_at_once_is_not_opened_in_a_rush() -> None:
    async with running() as (api, client):
        api.ends_watches_at_once = True
        clock = FakeClock()
        task = asyncio.create_task(Informer(client, NODES, clock=clock).run())
        await asyncio.sleep(0.2)
        opened = len(api.watched)
        assert 1 <= opened <= 2
        clock.advance(60)
        await asyncio.sleep(0.1)
        assert len(api.watched) == opened + 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_server_that_always_forgets_is_not_asked_in_a_rush() -> None:
    async with running() as (api, client):
        api.put("a")
        clock = FakeClock()
        api.failures += [refusal(410, "Expired")] * 1000
        task = asyncio.create_task(Informer(client, NODES, clock=clock).run())
        await asyncio.sleep(0.2)
        assert len(api.requests) <= 2
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("code", [500, 403, 410])
async def test_a_server_that_fails_is_asked_again_after_growing_pauses(code: int) -> None:
    async with running() as (api, client):
        api.failures += [refusal(code, "Expired" if code == 410 else "")] * 1000
        clock = FakeClock()
        informer = Informer(client, NODES, clock=clock)
        task = asyncio.create_task(informer.run())
        pauses = []
        for number in range(1, 9):
            await until(lambda: clock.next_s is not None)
            assert len(api.requests) == number
            pauses.append(clock.next_s or 0)
            clock.advance(pauses[-1])
        assert not informer.is_synced
        for pause_s, first_s in zip(pauses, (0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10), strict=True):
            assert first_s <= pause_s <= first_s * 1.2 + 0.001
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_pauses_are_short_again_after_a_list() -> None:
    async with running() as (api, client):
        clock = FakeClock()
        task = asyncio.create_task(Informer(client, NODES, clock=clock).run())
        api.failures += [refusal(500, "")] * 6

        def is_watched() -> bool:
            clock.advance(clock.next_s or 0)
            return bool(api.watched)

        await until(is_watched)
        clock.advance(10)
        api.failures += [refusal(500, "")]
        api.cut()
        await until(lambda: clock.next_s is not None)
        assert 0.2 <= (clock.next_s or 0) <= 0.5
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_part_of_a_collection_is_listed_and_watched() -> None:
    async with running() as (api, client):
        informer = Informer(
            client, NODES, namespace="ns", label_selector="a=b", field_selector="c=d",
            clock=FakeClock(),
        )  # fmt: skip
        task = asyncio.create_task(informer.run())
        await until(lambda: bool(api.watched))
        listed, watched = api.requests
        for request in (listed, watched):
            assert request.query["labelSelector"] == "a=b"
            assert request.query["fieldSelector"] == "c=d"
        assert watched.query["resourceVersion"] == "1"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_keys_have_the_namespace_of_namespaced_objects() -> None:
    assert object_key(ObjectMeta(name="a", namespace="ns")) == "ns/a"
    assert object_key(ObjectMeta(name="a")) == "a"


def test_objects_are_found_by_name_and_namespace() -> None:
    client: Any = None
    informer: Informer[Pod] = Informer(client, PODS)
    pods = [Pod(metadata=ObjectMeta(name="a", namespace=namespace)) for namespace in ("x", "y")]
    for revision, pod in enumerate(pods):
        informer._apply(WatchEvent("ADDED", pod, str(revision)))
    assert [informer.get("a", "x"), informer.get("a", "y"), informer.get_key("y/a")] == [
        pods[0], pods[1], pods[1],
    ]  # fmt: skip
    assert informer.get("a") is None
    assert not informer.is_synced


async def test_long_lists_come_in_pages() -> None:
    async with running() as (api, client):
        api.page_size = 3
        for number in range(8):
            api.put(f"n{number}")
        listed = await client.list(NODES)
        assert [node.metadata.name for node in listed.items] == [f"n{n}" for n in range(8)]
        assert api.lists == 1
        assert len(api.requests) == 3
