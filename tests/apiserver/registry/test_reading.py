"""Lists, watches and selections over a real store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moorage.api.errors import BadRequestError, ExpiredError, InvalidError, ServerTimeoutError
from moorage.apiserver.registry.listing import Lister, ListOptions
from moorage.apiserver.registry.selection import Selection, select
from moorage.apiserver.registry.stored import Stored, StoredFactory, to_value
from moorage.apiserver.registry.watching import Watch, WatchOptions, open_watch
from moorage.apiserver.storage import Page, SqliteStore, WatchCache
from tests.apiserver.registry.sample_kinds import GRACEFUL as POD

SERVED = POD.storage


class Shelf:
    """A store with pods in it."""

    def __init__(self, store: SqliteStore, cache: WatchCache[Stored], factory: StoredFactory):
        self.store = store
        self.cache = cache
        self.lister = Lister(store, cache, factory)

    async def put(self, name: str, namespace: str = "default", **spec: Any) -> int:
        key = POD.key(namespace, name)
        present = self.cache.get(key)
        labels = spec.pop("labels", {})
        obj = {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": spec}
        return await self.store.put(key, to_value(obj), present.revision if present else 0)

    async def remove(self, name: str, namespace: str = "default") -> int:
        item = self.cache.get(POD.key(namespace, name))
        assert item is not None
        return await self.store.delete(item.key, item.value, item.revision)

    async def names(self, **options: Any) -> list[str]:
        listed = await self.lister.page(POD, "default", ListOptions(**options))
        return [item.name for item in listed.items]


@pytest.fixture
async def shelf(tmp_path: Path) -> AsyncIterator[Shelf]:
    async with SqliteStore(tmp_path / "s.db") as store:
        factory = StoredFactory([POD])
        cache: WatchCache[Stored] = WatchCache(store, factory)
        await cache.load()
        yield Shelf(store, cache, factory)


def selection(labels: str = "", fields: str = "") -> Selection:
    return select(POD, SERVED, labels, fields)


async def test_a_stored_object_carries_its_revision_and_nothing_else_new(shelf: Shelf) -> None:
    revision = await shelf.put("a", nodeName="n1", labels={"x": "y"})
    item = shelf.cache.get("pods/default/a")
    assert item is not None
    assert item.obj == {
        "metadata": {
            "name": "a",
            "namespace": "default",
            "labels": {"x": "y"},
            "resourceVersion": str(revision),
        },
        "spec": {"nodeName": "n1"},
    }
    assert to_value(item.obj) == item.value
    assert item.at(99).obj["metadata"]["resourceVersion"] == "99"
    assert (item.name, item.namespace) == ("a", "default")


async def test_lists_are_sorted_by_namespace_and_name(shelf: Shelf) -> None:
    for namespace, name in (("b", "1"), ("a", "2"), ("a", "1")):
        await shelf.put(name, namespace)
    listed = await shelf.lister.page(POD, "", ListOptions())
    assert [(i.namespace, i.name) for i in listed.items] == [("a", "1"), ("a", "2"), ("b", "1")]
    assert listed.revision == shelf.store.revision


async def test_selectors_choose_by_labels_and_fields(shelf: Shelf) -> None:
    await shelf.put("a", nodeName="n1", labels={"app": "web"})
    await shelf.put("b", nodeName="n2", labels={"app": "web"}, hostNetwork=True)
    await shelf.put("c", labels={"app": "api"})
    assert await shelf.names(selection=selection("app=web")) == ["a", "b"]
    assert await shelf.names(selection=selection("", "spec.nodeName=n1")) == ["a"]
    assert await shelf.names(selection=selection("app=web", "spec.nodeName!=n1")) == ["b"]
    assert await shelf.names(selection=selection("", "spec.hostNetwork=false")) == ["a", "c"]
    assert await shelf.names(selection=selection("", "metadata.name=c")) == ["c"]


def test_a_field_the_kind_does_not_offer_is_refused() -> None:
    with pytest.raises(BadRequestError, match=r"field label not supported: spec\.runtimeClassName"):
        selection("", "spec.runtimeClassName=x")


async def test_pages_of_one_list_stay_at_its_revision(shelf: Shelf) -> None:
    for name in "abcde":
        await shelf.put(name)
    first = await shelf.lister.page(POD, "default", ListOptions(limit=2))
    assert [i.name for i in first.items] == ["a", "b"]
    assert first.remaining == 3
    await shelf.remove("c")
    await shelf.put("bb")
    second = await shelf.lister.page(
        POD, "default", ListOptions(limit=2, continue_=first.continue_)
    )
    assert [i.name for i in second.items] == ["c", "d"]
    assert (second.revision, second.remaining) == (first.revision, 1)
    last = await shelf.lister.page(POD, "default", ListOptions(limit=2, continue_=second.continue_))
    assert ([i.name for i in last.items], last.continue_, last.remaining) == (["e"], "", None)


async def test_remaining_count_is_not_returned_with_a_selector(shelf: Shelf) -> None:
    for name in "abc":
        await shelf.put(name, labels={"x": "y"})
    page = await shelf.lister.page(POD, "default", ListOptions(limit=1, selection=selection("x=y")))
    assert page.continue_
    assert page.remaining is None


async def test_expired_token_comes_with_one_that_continues_at_the_present(shelf: Shelf) -> None:
    for name in "abcd":
        await shelf.put(name)
    first = await shelf.lister.page(POD, "default", ListOptions(limit=2))
    await shelf.store.compact(await shelf.put("cc"))
    with pytest.raises(ExpiredError) as expired:
        await shelf.names(limit=2, continue_=first.continue_)
    token = expired.value.list_meta["continue"]
    assert await shelf.names(limit=2, continue_=token) == ["c", "cc"]


async def test_an_exact_revision_shows_the_past(shelf: Shelf) -> None:
    then = await shelf.put("a")
    await shelf.put("b")
    await shelf.remove("a")
    assert await shelf.names(resource_version=str(then), match="Exact") == ["a"]
    assert await shelf.names(resource_version=str(then), match="NotOlderThan") == ["b"]
    assert await shelf.names(resource_version="0") == ["b"]


async def test_a_revision_from_the_future_times_out(shelf: Shelf) -> None:
    shelf.lister = replace(shelf.lister, fresh_timeout_s=0.01)
    with pytest.raises(ServerTimeoutError, match="Too large resource version: 99, current: 0"):
        await shelf.names(resource_version="99")


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"continue_": "%%%"}, BadRequestError, "continue key is not valid"),
        ({"continue_": "e30", "resource_version": "5"}, BadRequestError, "encoded version"),
        ({"resource_version": "abc"}, BadRequestError, "invalid resource version"),
        ({"match": "Exact"}, InvalidError, "forbidden unless resourceVersion is provided"),
        ({"match": "Exact", "resource_version": "0"}, InvalidError, "forbidden"),
        ({"match": "Odd", "resource_version": "1"}, InvalidError, "Unsupported value"),
    ],
)
async def test_impossible_list_options_are_refused(
    shelf: Shelf, options: dict[str, str], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        await shelf.names(**options)


def watch(shelf: Shelf, **options: Any) -> Watch[tuple[str, str]]:
    return open_watch(
        shelf.cache,
        POD,
        "default",
        WatchOptions(**options),
        lambda type_, item: (type_, item.name),
    )


async def test_a_watch_without_revision_begins_with_what_is_there(shelf: Shelf) -> None:
    await shelf.put("a")
    opened = watch(shelf)
    await shelf.put("b")
    assert [item.name for item in opened.initial] == ["a"]
    assert await opened.watcher.next_batch() == [("ADDED", "b")]


async def test_a_watch_from_a_revision_sees_only_what_follows(shelf: Shelf) -> None:
    revision = await shelf.put("a")
    opened = watch(shelf, resource_version=str(revision))
    await shelf.put("a", nodeName="n1")
    await shelf.remove("a")
    assert opened.initial == []
    assert await opened.watcher.next_batch() == [("MODIFIED", "a"), ("DELETED", "a")]


async def test_objects_enter_and_leave_a_selection(shelf: Shelf) -> None:
    opened = open_watch(
        shelf.cache,
        POD,
        "default",
        WatchOptions(selection=selection("", "spec.nodeName=n1"), resource_version="1"),
        lambda type_, item: (type_, item.obj["spec"], item.obj["metadata"]["resourceVersion"]),
    )
    await shelf.put("a")
    await shelf.put("a", nodeName="n1")
    await shelf.put("a", nodeName="n1", x=1)
    left = await shelf.put("a", nodeName="n2")
    assert await opened.watcher.next_batch() == [
        ("ADDED", {"nodeName": "n1"}, "2"),
        ("MODIFIED", {"nodeName": "n1", "x": 1}, "3"),
        ("DELETED", {"nodeName": "n1", "x": 1}, str(left)),
    ]


async def test_initial_events_end_with_a_mark_where_bookmarks_are_wanted(shelf: Shelf) -> None:
    await shelf.put("a")
    opened = watch(shelf, sends_initial_events=True, match="NotOlderThan", allows_bookmarks=True)
    assert opened.ends_initial_events
    assert [item.name for item in opened.initial] == ["a"]
    assert not watch(shelf, sends_initial_events=True, match="NotOlderThan").ends_initial_events


async def test_impossible_watch_options_are_refused(shelf: Shelf) -> None:
    with pytest.raises(InvalidError, match="sendInitialEvents requires setting"):
        watch(shelf, sends_initial_events=True)
    with pytest.raises(
        InvalidError, match="forbidden for watch unless sendInitialEvents is provided"
    ):
        watch(shelf, match="Exact")


class OvertakenStore(SqliteStore):
    """A store that is compacted as a read is asked for: at the read of that number."""

    overtaken_at = 0

    async def range(self, prefix: str, **options: Any) -> Page:
        self.overtaken_at -= 1
        if self.overtaken_at == 0:
            await self.compact(self.revision)
        return await super().range(prefix, **options)


@pytest.mark.parametrize("overtaken_at", [1, 2])
async def test_a_page_is_expired_wherever_a_compaction_overtakes_it(
    tmp_path: Path, overtaken_at: int
) -> None:
    async with OvertakenStore(tmp_path / "s.db") as store:
        factory = StoredFactory([POD])
        cache: WatchCache[Stored] = WatchCache(store, factory)
        await cache.load()
        shelf = Shelf(store, cache, factory)
        revision = 0
        for number in range(5):
            revision = await shelf.put(f"p{number:04d}")
        await shelf.remove("p0001")
        # The second read counts what remains.
        store.overtaken_at = overtaken_at
        options = ListOptions(resource_version=str(revision), match="Exact", limit=2)
        with pytest.raises(ExpiredError):
            await shelf.lister.page(POD, "default", options)
