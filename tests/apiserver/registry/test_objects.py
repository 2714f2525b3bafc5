"""Writes that fail in the store, lose a race, or meet damage."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec
import pytest

from moorage.api.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InternalError,
    InvalidError,
    NotFoundError,
    StatusError,
    TooLargeError,
)
from moorage.apiserver.registry import objects
from moorage.apiserver.registry.deletion import UNREAD_OPTION, DeleteOptions
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds import STORED_KINDS
from moorage.apiserver.registry.kinds.apps import CONTROLLER_REVISION
from moorage.apiserver.registry.request import Request, User
from moorage.apiserver.registry.selection import select
from moorage.apiserver.registry.stored import Stored, StoredFactory, to_value
from moorage.apiserver.storage import (
    RevisionConflictError,
    SqliteStore,
    Store,
    StoreBrokenError,
    WatchCache,
)
from moorage.apiserver.storage.store import Damage
from tests.apiserver.registry.test_writing import CONFIG_MAP, NODE, POD, Registry, config_map, pod

KEY = CONFIG_MAP.key("default", "a")
Act: TypeAlias = Callable[[], Awaitable[object]]


class Scripted:
    """A store whose next writes fail, or follow what another request does."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.failures: list[Exception | None] = []
        self.before_put: list[Act] = []
        self.before_removal: list[Act] = []
        self.puts: list[tuple[int, bool]] = []

    def fail(self, *failures: Exception | None) -> None:
        """Fail the next writes in a given way, one after the other; count from here."""
        self.failures, self.puts = list(failures), []

    async def put(
        self, key: str, value: bytes, expected: int, *, may_use_reserve: bool = False
    ) -> int:
        self.puts.append((expected, may_use_reserve))
        await self._step(self.before_put)
        return await self._store.put(key, value, expected, may_use_reserve=may_use_reserve)

    async def delete(self, key: str, last: bytes, expected: int) -> int:
        await self._step(self.before_removal)
        return await self._store.delete(key, last, expected)

    async def _step(self, acts: list[Act]) -> None:
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        if acts:
            await acts.pop()()


class Permitted:
    """Who may delete what cannot be read: `alice`, once that is set."""

    def __init__(self) -> None:
        self.is_given = False
        self.asked: list[Any] = []

    def __call__(self, *what: Any) -> bool:
        self.asked.append(what)
        return self.is_given


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with SqliteStore(tmp_path / "s.db") as store:
        yield store


@pytest.fixture
def store(sqlite: SqliteStore) -> Scripted:
    return Scripted(sqlite)


@pytest.fixture
def permitted() -> Permitted:
    return Permitted()


@pytest.fixture
async def registry(sqlite: SqliteStore, store: Scripted, permitted: Permitted) -> Registry:
    factory = StoredFactory(STORED_KINDS)
    cache: WatchCache[Stored] = WatchCache(sqlite, factory)
    await cache.load()
    return Registry(cast("Store", store), cache, factory, permitted)


LOST = RevisionConflictError(KEY, 1, 2)
GONE = RevisionConflictError(KEY, 1, 0)
BROKEN = StoreBrokenError("the disk is full")


def damage(registry: Registry, key: str) -> int:
    """Make a present object unreadable; its revision."""
    table = registry.cache._table(key)
    item = registry.cache._items.pop(key)
    table.keys.remove(key)
    table.damaged[key] = Damage(key, item.revision)
    return item.revision


async def test_a_store_that_is_broken_is_an_internal_error(
    registry: Registry, store: Scripted
) -> None:
    await registry.create(CONFIG_MAP, config_map())
    await registry.create(CONFIG_MAP, config_map("held", finalizers=["x/y"]))
    change = "the change could not be stored: the disk is full"
    deletion = "the deletion could not be stored: the disk is full"
    for write, why in (
        (lambda: registry.create(CONFIG_MAP, config_map("b")), change),
        (lambda: registry.update(CONFIG_MAP, "a", lambda new: new["data"].update(k="w")), change),
        (lambda: registry.delete(CONFIG_MAP, "a"), deletion),
        (lambda: registry.delete(CONFIG_MAP, "held"), change),
    ):
        store.fail(BROKEN)
        with pytest.raises(InternalError) as caught:
            await write()
        assert caught.value.message == f"Internal error occurred: {why}"


async def test_a_creation_that_loses_a_race_finds_the_name_taken(
    registry: Registry, store: Scripted
) -> None:
    store.fail(LOST)
    with pytest.raises(AlreadyExistsError) as caught:
        await registry.create(CONFIG_MAP, config_map())
    assert caught.value.message == 'configmaps "a" already exists'


@pytest.mark.parametrize(("lost", "is_made"), [(7, True), (8, False)])
async def test_a_generated_name_that_is_taken_is_made_again_seven_times(
    registry: Registry, store: Scripted, lost: int, is_made: bool
) -> None:
    store.fail(*[LOST] * lost)
    obj = {"metadata": {"generateName": "web-"}, "data": {}}
    if is_made:
        made = await registry.create(CONFIG_MAP, obj)
        assert made["metadata"]["name"].startswith("web-")
    else:
        with pytest.raises(AlreadyExistsError):
            await registry.create(CONFIG_MAP, obj)
    assert len(store.puts) == 8


@pytest.mark.parametrize("is_patch", [False, True])
@pytest.mark.parametrize("names_revision", [False, True])
@pytest.mark.parametrize("failure", [LOST, GONE], ids=["changed", "gone"])
async def test_an_update_that_loses_a_race_is_made_again_unless_a_revision_was_meant(
    registry: Registry, store: Scripted, is_patch: bool, names_revision: bool, failure: Exception
) -> None:
    await registry.create(CONFIG_MAP, config_map())
    store.fail(failure)
    seen: list[str] = []

    def change(new: Obj) -> None:
        seen.append(new["metadata"]["resourceVersion"])
        if not names_revision:
            del new["metadata"]["resourceVersion"]
        new["data"]["k"] = "w"

    if names_revision and not is_patch and failure is LOST:
        with pytest.raises(ConflictError, match="the object has been modified"):
            await registry.update(CONFIG_MAP, "a", change, is_patch=is_patch)
        assert len(store.puts) == 1
        return
    updated = await registry.update(CONFIG_MAP, "a", change, is_patch=is_patch)
    assert updated.item.obj["data"] == {"k": "w"}
    assert (len(seen), len(store.puts)) == (2, 2)


async def test_writes_that_always_lose_are_conflicts_in_the_end(
    registry: Registry, store: Scripted
) -> None:
    await registry.create(CONFIG_MAP, config_map())

    def change(new: Obj) -> None:
        del new["metadata"]["resourceVersion"]
        new["data"]["k"] = "w"

    store.fail(*[LOST] * 100)
    with pytest.raises(ConflictError, match="the object has been modified"):
        await registry.update(CONFIG_MAP, "a", change)
    assert len(store.puts) == 16
    with pytest.raises(ConflictError, match="the object has been modified"):
        await registry.delete(CONFIG_MAP, "a")
    assert len(store.failures) == 100 - 32


async def test_a_deletion_that_loses_a_race_is_made_again(
    registry: Registry, store: Scripted
) -> None:
    await registry.create(CONFIG_MAP, config_map())
    store.fail(LOST, LOST)
    assert (await registry.delete(CONFIG_MAP, "a")).is_gone


@pytest.mark.parametrize("grace_s", [0, 30])
async def test_a_forced_deletion_of_a_pod_that_the_node_removes_meanwhile_succeeds(
    registry: Registry, store: Scripted, grace_s: int
) -> None:
    """`grace_s`: the grace of a deletion before it, without a node for 0."""
    await registry.create(POD, pod("a", nodeName="n"))
    if grace_s:
        await registry.delete(POD, "a", grace_period_seconds=grace_s)
    store.before_removal = [lambda: registry.delete(POD, "a", grace_period_seconds=0)]
    deleted = await registry.delete(POD, "a", grace_period_seconds=0)
    assert deleted.is_gone
    assert deleted.item.obj["metadata"]["deletionGracePeriodSeconds"] == 0
    assert registry.find(POD, "a") is None


async def test_a_forced_deletion_of_a_pod_whose_status_is_written_meanwhile_succeeds(
    registry: Registry,
    store: Scripted,
) -> None:
    await registry.create(POD, pod("a", nodeName="n"))

    def change(new: Obj) -> None:
        new["status"]["message"] = "stopping"

    store.before_removal = [lambda: registry.update(POD, "a", change, subresource="status")]
    assert (await registry.delete(POD, "a", grace_period_seconds=0)).is_gone
    assert registry.find(POD, "a") is None


async def test_a_forced_deletion_leaves_the_next_pod_of_the_name_alone(
    registry: Registry, store: Scripted
) -> None:
    await registry.create(POD, pod("a", nodeName="n"))

    async def replace() -> None:
        await registry.delete(POD, "a", grace_period_seconds=0)
        await registry.create(POD, pod("a"))

    store.before_removal = [replace]
    assert (await registry.delete(POD, "a", grace_period_seconds=0)).is_gone
    assert registry.find(POD, "a") is not None


async def test_the_removal_of_the_last_finalizer_may_lose_to_another(
    registry: Registry, store: Scripted
) -> None:
    await registry.create(CONFIG_MAP, config_map(finalizers=["x/y"]))
    await registry.delete(CONFIG_MAP, "a")

    def release(new: Obj) -> None:
        new["metadata"].pop("finalizers")

    store.before_removal = [lambda: registry.update(CONFIG_MAP, "a", release)]
    released = await registry.update(CONFIG_MAP, "a", release)
    assert "finalizers" not in released.item.obj["metadata"]
    assert registry.find(CONFIG_MAP, "a") is None


async def test_an_update_that_meets_another_creation_changes_that_object(
    registry: Registry,
    store: Scripted,
) -> None:
    other = registry.request(manager="other")

    def change(new: Obj) -> None:
        new["data"] = {"k": "mine"}

    async def create_first() -> None:
        obj = {"metadata": {"name": "a"}, "data": {"k": "theirs"}}
        await registry.objects.create(other, CONFIG_MAP, CONFIG_MAP.storage, "default", obj)

    made: list[Obj | None] = []
    store.before_put = [create_first]

    def make(new: Obj) -> None:
        made.append(dict(new))
        change(new)

    updated = await registry.update(CONFIG_MAP, "a", make, authorize_create=lambda: None)
    assert not updated.is_created
    assert updated.item.obj["data"] == {"k": "mine"}
    assert len(made) == 2


async def test_what_an_object_on_its_way_out_needs_may_use_the_reserve(
    registry: Registry, store: Scripted
) -> None:
    await registry.create(CONFIG_MAP, config_map(finalizers=["x/y", "x/z"]))
    store.fail()
    await registry.update(CONFIG_MAP, "a", lambda new: new["data"].update(k="w"))
    await registry.delete(CONFIG_MAP, "a")
    await registry.update(CONFIG_MAP, "a", lambda new: new["metadata"].update(finalizers=["x/y"]))
    assert [reserve for _, reserve in store.puts] == [False, True, True]


async def test_unreadable_object_is_named(registry: Registry) -> None:
    await registry.create(CONFIG_MAP, config_map())
    revision = damage(registry, KEY)
    for write in (
        lambda: registry.update(CONFIG_MAP, "a", lambda _: None),
        lambda: registry.update(CONFIG_MAP, "a", lambda _: None, authorize_create=lambda: None),
        lambda: registry.delete(CONFIG_MAP, "a"),
    ):
        with pytest.raises(InternalError) as caught:
            await write()
        assert caught.value.message.startswith(
            f"Internal error occurred: {KEY} at revision {revision} is damaged in the store: "
        )
        assert f"{UNREAD_OPTION}=true" in caught.value.message
    with pytest.raises(InternalError):
        registry.objects.get(CONFIG_MAP, "default", "a")
    with pytest.raises(NotFoundError):
        registry.objects.get(CONFIG_MAP, "default", "b")


async def test_unreadable_object_is_deleted_by_permitted_users(
    registry: Registry,
    permitted: Permitted,
) -> None:
    await registry.create(CONFIG_MAP, config_map(finalizers=["x/y"]))
    revision = damage(registry, KEY)
    with pytest.raises(ForbiddenError) as refused:
        await registry.delete(CONFIG_MAP, "a", ignores_read_errors=True)
    assert refused.value.message == (
        'configmaps "a" is forbidden: not permitted to do "unsafe-delete-ignore-read-errors"'
    )
    permitted.is_given, permitted.asked = True, []
    trial = await registry.delete(CONFIG_MAP, "a", ignores_read_errors=True, is_dry_run=True)
    assert trial.is_gone
    assert registry.cache.damage(KEY) is not None
    deleted = await registry.delete(CONFIG_MAP, "a", ignores_read_errors=True)
    assert deleted.is_gone
    meta = {"name": "a", "namespace": "default", "resourceVersion": str(revision)}
    assert deleted.item.obj == {"metadata": meta}
    assert permitted.asked == [(User("alice"), CONFIG_MAP, "default", "a")] * 2
    assert registry.cache.damage(KEY) is None
    with pytest.raises(NotFoundError):
        await registry.delete(CONFIG_MAP, "a", ignores_read_errors=True)
    assert await registry.create(CONFIG_MAP, config_map())


async def test_unreadable_cluster_scoped_object_has_no_namespace(
    registry: Registry,
    permitted: Permitted,
) -> None:
    await registry.create(NODE, {"metadata": {"name": "n"}, "spec": {}, "status": {}})
    damage(registry, NODE.key("", "n"))
    permitted.is_given = True
    deleted = await registry.delete(NODE, "n", ignores_read_errors=True)
    assert deleted.item.obj["metadata"].keys() == {"name", "resourceVersion"}


@pytest.mark.parametrize(
    ("failure", "error", "message"),
    [
        (LOST, NotFoundError, 'configmaps "a" not found'),
        (BROKEN, InternalError,
         "Internal error occurred: the deletion could not be stored: the disk is full"),
    ],
)  # fmt: skip
async def test_failed_deletion_of_an_unreadable_object_is_reported(
    registry: Registry,
    permitted: Permitted,
    store: Scripted,
    failure: Exception,
    error: type[StatusError],
    message: str,
) -> None:
    await registry.create(CONFIG_MAP, config_map())
    damage(registry, KEY)
    permitted.is_given = True
    store.fail(failure)
    with pytest.raises(error) as caught:
        await registry.delete(CONFIG_MAP, "a", ignores_read_errors=True)
    assert caught.value.message == message


async def test_an_object_that_can_be_read_is_not_removed_that_way(
    registry: Registry, permitted: Permitted
) -> None:
    await registry.create(CONFIG_MAP, config_map())
    permitted.is_given = True
    with pytest.raises(InvalidError) as caught:
        await registry.delete(CONFIG_MAP, "a", ignores_read_errors=True)
    assert caught.value.message == (
        f'DeleteOptions.meta.k8s.io "a" is invalid: {UNREAD_OPTION}: Invalid value: true: is '
        "exclusively used to delete corrupt object(s), the object can be read"
    )
    assert registry.find(CONFIG_MAP, "a") is not None


def _revision(name: str, length: int) -> Obj:
    return {"metadata": {"name": name}, "data": {"k": "x" * length}, "revision": 1}


async def test_an_object_that_is_too_large_loses_its_owners_first(registry: Registry) -> None:
    small = await registry.create(CONTROLLER_REVISION, _revision("a", 0))
    owners = small["metadata"].pop("managedFields")
    most = objects.MAX_OBJECT_BYTES - len(to_value(small)) - len(msgspec.json.encode(owners)) // 2
    middle = await registry.create(CONTROLLER_REVISION, _revision("b", most))
    assert "managedFields" not in middle["metadata"]
    with pytest.raises(TooLargeError, match=f"limit is {objects.MAX_OBJECT_BYTES}"):
        await registry.create(CONTROLLER_REVISION, _revision("c", objects.MAX_OBJECT_BYTES))


async def test_what_a_collection_loses_meanwhile_is_skipped(
    registry: Registry, store: Scripted
) -> None:
    for name in ("a", "b", "c"):
        await registry.create(CONFIG_MAP, config_map(name))
    store.before_removal = [lambda: registry.delete(CONFIG_MAP, "b")]
    deleted = await registry.objects.delete_collection(
        registry.request(), CONFIG_MAP, CONFIG_MAP.storage, "default",
        select(CONFIG_MAP, CONFIG_MAP.storage, "", ""), DeleteOptions(),
    )  # fmt: skip
    assert [item.name for item in deleted] == ["a", "b", "c"]
    assert not any(registry.find(CONFIG_MAP, name) for name in "abc")


@pytest.mark.parametrize(
    ("revision", "error"),
    [("", None), ("0", None), ("9999", ConflictError), ("x", StatusError)],
)
async def test_the_revision_that_an_update_names(
    registry: Registry, revision: str, error: type[StatusError] | None
) -> None:
    await registry.create(CONFIG_MAP, config_map())

    def change(new: Obj) -> None:
        new["metadata"]["resourceVersion"] = revision
        new["data"]["k"] = "w"

    if error is None:
        await registry.update(CONFIG_MAP, "a", change)
        return
    with pytest.raises(error):
        await registry.update(CONFIG_MAP, "a", change)


async def test_a_creation_is_warned_of(registry: Registry) -> None:
    request = Request(user=User("alice"))
    odd = pod(nodeSelector={"beta.kubernetes.io/arch": "amd64"})
    await registry.objects.create(request, POD, POD.storage, "default", odd)
    assert len(request.warnings) == 1
