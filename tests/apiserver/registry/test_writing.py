"""The one path of every write: creation, update, deletion, against a real store."""

from __future__ import annotations

import copy
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from moorage.api.clock import format_time
from moorage.api.errors import (
    AlreadyExistsError,
    BadRequestError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    StatusError,
)
from moorage.apiserver.admission.chain import AdmissionChain
from moorage.apiserver.cel.evaluator import Evaluator
from moorage.apiserver.registry.codec import Codec
from moorage.apiserver.registry.deletion import DeleteOptions
from moorage.apiserver.registry.kind import Kind, Obj
from moorage.apiserver.registry.kinds import STORED_KINDS
from moorage.apiserver.registry.objects import MayDeleteUnread, Objects, Updated
from moorage.apiserver.registry.ownership import Ownership
from moorage.apiserver.registry.request import Request, User
from moorage.apiserver.registry.schema import load_schema
from moorage.apiserver.registry.selection import EVERYTHING, select
from moorage.apiserver.registry.stored import Stored, StoredFactory, to_value
from moorage.apiserver.registry.worker import Worker
from moorage.apiserver.storage import SqliteStore, Store, WatchCache
from tests.clocks import START, FakeClock

KINDS = {kind.name: kind for kind in STORED_KINDS}
CONFIG_MAP, POD, NODE = KINDS["ConfigMap"], KINDS["Pod"], KINDS["Node"]
DEPLOYMENT = KINDS["Deployment"]
CODEC = Codec(load_schema())


class Registry:
    """Objects over a store of one test."""

    def __init__(
        self,
        store: Store,
        cache: WatchCache[Stored],
        factory: StoredFactory,
        may_delete_unread: MayDeleteUnread = lambda *_: False,
    ):
        self.clock = FakeClock()
        self.warnings: list[str] = []
        self.store = store
        self.cache = cache
        self.objects = Objects(
            store=store,
            cache=cache,
            factory=factory,
            ownership=Ownership(CODEC, self.clock),
            admission=AdmissionChain(()),
            clock=self.clock,
            worker=Worker(),
            evaluator=Evaluator(),
            may_delete_unread=may_delete_unread,
        )

    def request(self, *, is_dry_run: bool = False, manager: str = "test") -> Request:
        return Request(user=User("alice"), user_agent=f"{manager}/1.0", is_dry_run=is_dry_run)

    async def create(self, kind: Kind, obj: Obj, namespace: str = "default", **request: Any) -> Obj:
        if not kind.is_namespaced:
            namespace = ""
        kind.strategy.default(obj)
        item = await self.objects.create(
            self.request(**request), kind, kind.storage, namespace, obj
        )
        return item.obj

    async def update(
        self, kind: Kind, name: str, change: Any, namespace: str = "default",
        subresource: str = "", **more: Any,
    ) -> Updated:  # fmt: skip
        def make_new(present: Obj | None) -> Obj:
            new = copy.deepcopy(present) if present is not None else {"metadata": {"name": name}}
            return change(new) or new

        dry = more.pop("is_dry_run", False)
        return await self.objects.update(
            self.request(is_dry_run=dry), kind, kind.storage,
            namespace if kind.is_namespaced else "", name, make_new,
            subresource=subresource, **more,
        )  # fmt: skip

    async def delete(
        self, kind: Kind, name: str, namespace: str = "default", **options: Any
    ) -> Any:
        dry = options.pop("is_dry_run", False)
        return await self.objects.delete(
            self.request(is_dry_run=dry), kind, kind.storage,
            namespace if kind.is_namespaced else "", name, DeleteOptions(**options),
        )  # fmt: skip

    def find(self, kind: Kind, name: str, namespace: str = "default") -> Obj | None:
        item = self.objects.find(kind, namespace if kind.is_namespaced else "", name)
        return None if item is None else item.obj


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[Registry]:
    async with SqliteStore(tmp_path / "s.db") as store:
        factory = StoredFactory(STORED_KINDS)
        cache: WatchCache[Stored] = WatchCache(store, factory)
        await cache.load()
        yield Registry(store, cache, factory)


def config_map(name: str = "a", **meta: Any) -> Obj:
    return {"metadata": {"name": name, **meta}, "data": {"k": "v"}}


def pod(name: str = "p", **spec: Any) -> Obj:
    container = {"name": "c", "image": "i", "imagePullPolicy": "Always",
                 "terminationMessagePath": "/t", "terminationMessagePolicy": "File"}  # fmt: skip
    usual = {"containers": [container], "restartPolicy": "Always", "dnsPolicy": "ClusterFirst"}
    return {"metadata": {"name": name}, "spec": {**usual, **spec}}


def deployment(name: str = "d", replicas: int = 1) -> Obj:
    labels = {"a": "b"}
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod()["spec"]},
        },
    }


async def test_the_server_fills_in_what_is_its_own(registry: Registry) -> None:
    forged = config_map(uid="mine", creationTimestamp="x", deletionTimestamp="x", selfLink="x",
                        deletionGracePeriodSeconds=3, managedFields=[{"manager": "x"}])  # fmt: skip
    made = await registry.create(CONFIG_MAP, forged)
    meta = made["metadata"]
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", meta["uid"])
    assert meta["creationTimestamp"] == format_time(START)
    assert meta["namespace"] == "default"
    assert int(meta["resourceVersion"]) > 0
    assert not {"deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"} & set(
        meta
    )
    (entry,) = meta["managedFields"]
    assert (entry["manager"], entry["operation"], entry["apiVersion"], entry["time"]) == (
        "test", "Update", "v1", format_time(START),
    )  # fmt: skip
    assert registry.find(CONFIG_MAP, "a") == made
    assert registry.find(CONFIG_MAP, "a", "other") is None


async def test_two_objects_have_two_uids_and_a_name_is_taken_once(registry: Registry) -> None:
    one = await registry.create(CONFIG_MAP, config_map())
    two = await registry.create(CONFIG_MAP, config_map(), "other")
    assert one["metadata"]["uid"] != two["metadata"]["uid"]
    with pytest.raises(AlreadyExistsError) as caught:
        await registry.create(CONFIG_MAP, config_map())
    assert caught.value.message == 'configmaps "a" already exists'


async def test_a_name_is_made_up_from_its_beginning(registry: Registry) -> None:
    names = set()
    for _ in range(5):
        made = await registry.create(CONFIG_MAP, {"metadata": {"generateName": "web-"}, "data": {}})
        names.add(made["metadata"]["name"])
    assert len(names) == 5
    assert all(re.fullmatch(r"web-[a-z0-9]{5}", name) for name in names)
    named = {"metadata": {"generateName": "web-", "name": "mine"}, "data": {}}
    assert (await registry.create(CONFIG_MAP, named))["metadata"]["name"] == "mine"


@pytest.mark.parametrize(
    ("obj", "error", "message"),
    [
        (config_map(resourceVersion="1"), StatusError,
         "resourceVersion should not be set on objects to be created"),
        (config_map(namespace="other"), BadRequestError,
         "the namespace of the provided object does not match the namespace sent on the request"),
        (config_map("A"), InvalidError, "metadata.name"),
        ({"metadata": {}, "data": {}}, InvalidError, "name or generateName is required"),
    ],
)  # fmt: skip
async def test_creations_that_are_refused(
    registry: Registry, obj: Obj, error: type[StatusError], message: str
) -> None:
    with pytest.raises(error) as caught:
        await registry.create(CONFIG_MAP, obj)
    assert message in caught.value.message
    assert registry.find(CONFIG_MAP, "a") is None


async def test_a_cluster_wide_object_has_no_namespace(registry: Registry) -> None:
    made = await registry.create(NODE, {"metadata": {"name": "n", "namespace": "x"}, "spec": {},
                                        "status": {}})  # fmt: skip
    assert "namespace" not in made["metadata"]


async def test_a_dry_run_says_what_would_be_and_keeps_nothing(registry: Registry) -> None:
    made = await registry.create(CONFIG_MAP, config_map(), is_dry_run=True)
    assert made["metadata"]["uid"]
    assert "resourceVersion" not in made["metadata"] or not made["metadata"]["resourceVersion"]
    assert registry.find(CONFIG_MAP, "a") is None
    await registry.create(CONFIG_MAP, config_map())
    before = registry.find(CONFIG_MAP, "a")
    updated = await registry.update(
        CONFIG_MAP, "a", lambda new: new["data"].update(k="w"), is_dry_run=True
    )
    assert updated.item.obj["data"] == {"k": "w"}
    gone = await registry.delete(CONFIG_MAP, "a", is_dry_run=True)
    assert gone.is_gone
    assert registry.find(CONFIG_MAP, "a") == before
    with pytest.raises(AlreadyExistsError):
        await registry.create(CONFIG_MAP, config_map(), is_dry_run=True)


async def test_an_update_keeps_what_is_the_servers(registry: Registry) -> None:
    made = await registry.create(CONFIG_MAP, config_map())
    registry.clock.advance(5)

    def change(new: Obj) -> None:
        for field in ("uid", "creationTimestamp", "selfLink", "managedFields"):
            new["metadata"].pop(field, None)
        new["data"] = {"k": "w"}

    updated = await registry.update(CONFIG_MAP, "a", change)
    after = updated.item.obj
    assert not updated.is_created
    assert after["data"] == {"k": "w"}
    for field in ("uid", "creationTimestamp", "name", "namespace"):
        assert after["metadata"][field] == made["metadata"][field]
    assert int(after["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


async def test_an_update_that_changes_nothing_writes_nothing(registry: Registry) -> None:
    made = await registry.create(CONFIG_MAP, config_map())
    registry.clock.advance(5)
    updated = await registry.update(CONFIG_MAP, "a", lambda _: None)
    assert updated.item.obj == made


@pytest.mark.parametrize("is_patch", [False, True])
async def test_an_update_of_an_older_revision_is_refused(
    registry: Registry, is_patch: bool
) -> None:
    made = await registry.create(CONFIG_MAP, config_map())
    old = made["metadata"]["resourceVersion"]
    await registry.update(CONFIG_MAP, "a", lambda new: new["data"].update(k="w"))

    def change(new: Obj) -> None:
        new["metadata"]["resourceVersion"] = old
        new["data"]["k"] = "x"

    with pytest.raises(ConflictError) as caught:
        await registry.update(CONFIG_MAP, "a", change, is_patch=is_patch)
    assert "the object has been modified" in caught.value.message
    obj = registry.find(CONFIG_MAP, "a")
    assert obj is not None
    assert obj["data"] == {"k": "w"}


async def test_an_update_of_another_uid_is_refused(registry: Registry) -> None:
    await registry.create(CONFIG_MAP, config_map())
    with pytest.raises(ConflictError, match="UID in precondition"):
        await registry.update(CONFIG_MAP, "a", lambda new: new["metadata"].update(uid="other"))


async def test_an_update_in_another_namespace_is_refused(registry: Registry) -> None:
    await registry.create(CONFIG_MAP, config_map())
    with pytest.raises(BadRequestError):
        await registry.update(
            CONFIG_MAP, "a", lambda new: new["metadata"].update(namespace="other")
        )


async def test_an_absent_object_is_not_found_or_created_if_that_is_allowed(
    registry: Registry,
) -> None:
    def change(new: Obj) -> None:
        new["data"] = {"k": "v"}

    with pytest.raises(NotFoundError) as caught:
        await registry.update(CONFIG_MAP, "a", change)
    assert caught.value.message == 'configmaps "a" not found'

    def refuse() -> None:
        raise ForbiddenError("no")

    with pytest.raises(ForbiddenError):
        await registry.update(CONFIG_MAP, "a", change, authorize_create=refuse)
    assert registry.find(CONFIG_MAP, "a") is None
    updated = await registry.update(CONFIG_MAP, "a", change, authorize_create=lambda: None)
    assert updated.is_created
    assert registry.find(CONFIG_MAP, "a") == updated.item.obj

    def of_deleted(new: Obj) -> None:
        change(new)
        new["metadata"]["uid"] = "gone"

    with pytest.raises(ConflictError):
        await registry.update(CONFIG_MAP, "b", of_deleted, authorize_create=lambda: None)


async def test_the_generation_counts_changes_of_the_spec_only(registry: Registry) -> None:
    made = await registry.create(DEPLOYMENT, deployment())
    assert made["metadata"]["generation"] == 1
    labelled = await registry.update(
        DEPLOYMENT, "d", lambda new: new["metadata"].update(labels={"x": "y"})
    )
    assert labelled.item.obj["metadata"]["generation"] == 1
    forged = await registry.update(
        DEPLOYMENT, "d", lambda new: new["metadata"].update(generation=9, labels={"x": "z"})
    )
    assert forged.item.obj["metadata"]["generation"] == 1
    resized = await registry.update(DEPLOYMENT, "d", lambda new: new["spec"].update(replicas=3))
    assert resized.item.obj["metadata"]["generation"] == 2


async def test_spec_and_status_are_written_through_their_own_paths(registry: Registry) -> None:
    await registry.create(DEPLOYMENT, deployment())

    def both(new: Obj) -> None:
        new["spec"]["replicas"] = 5
        new["status"] = {"replicas": 7}
        new["metadata"]["labels"] = {"x": "y"}

    by_spec = (await registry.update(DEPLOYMENT, "d", both)).item.obj
    assert by_spec["spec"]["replicas"] == 5
    assert "replicas" not in by_spec.get("status", {})

    def more(new: Obj) -> None:
        new["spec"]["replicas"] = 9
        new["status"] = {"replicas": 7}
        new["metadata"]["labels"] = {"x": "z"}

    by_status = (await registry.update(DEPLOYMENT, "d", more, subresource="status")).item.obj
    assert by_status["spec"]["replicas"] == 5
    assert by_status["status"]["replicas"] == 7
    assert by_status["metadata"]["labels"] == {"x": "y"}
    assert by_status["metadata"]["generation"] == 2
    managers = [
        (entry["manager"], entry.get("subresource"))
        for entry in by_status["metadata"]["managedFields"]
    ]
    assert managers == [("test", None), ("test", "status")]


async def test_a_client_may_have_the_owners_of_fields_forgotten(registry: Registry) -> None:
    await registry.create(CONFIG_MAP, config_map())
    cleared = await registry.update(
        CONFIG_MAP, "a", lambda new: new["metadata"].update(managedFields=[{}])
    )
    assert "managedFields" not in cleared.item.obj["metadata"]
    again = await registry.update(CONFIG_MAP, "a", lambda new: new["data"].update(k="w"))
    assert "managedFields" not in again.item.obj["metadata"]


async def test_owners_sent_by_a_client_count_unless_they_cannot_be_read(
    registry: Registry,
) -> None:
    await registry.create(CONFIG_MAP, config_map())
    sent = {"manager": "mine", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:k": {}}}}  # fmt: skip

    def send(*entries: Any) -> Any:
        def change(new: Obj) -> None:
            new["metadata"]["managedFields"] = list(entries)
            new["data"]["other"] = str(len(new["data"]))

        return change

    broken = {**sent, "fieldsV1": {"f:data": 3}}
    kept = (await registry.update(CONFIG_MAP, "a", send(broken))).item.obj
    assert {entry["manager"] for entry in kept["metadata"]["managedFields"]} == {"test"}
    taken = (await registry.update(CONFIG_MAP, "a", send(sent))).item.obj
    assert "mine" in {entry["manager"] for entry in taken["metadata"]["managedFields"]}


async def test_an_apply_owns_its_fields_and_conflicts_with_others(registry: Registry) -> None:
    await registry.create(CONFIG_MAP, config_map())
    ownership = Ownership(CODEC, registry.clock)
    live = registry.find(CONFIG_MAP, "a")
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"},
              "data": {"k": "w", "new": "1"}}  # fmt: skip
    request = registry.request(manager="applier")
    with pytest.raises(ConflictError):
        ownership.apply(request, CONFIG_MAP, CONFIG_MAP.storage, live, config, "", force=False)
    merged = ownership.apply(request, CONFIG_MAP, CONFIG_MAP.storage, live, config, "", force=True)
    assert merged["data"] == {"k": "w", "new": "1"}
    entries = {entry["manager"]: entry for entry in merged["metadata"]["managedFields"]}
    assert entries["applier"]["operation"] == "Apply"
    assert entries["applier"]["fieldsV1"] == {"f:data": {"f:k": {}, "f:new": {}}}
    fresh = ownership.apply(request, CONFIG_MAP, CONFIG_MAP.storage, None, config, "", force=False)
    assert [entry["manager"] for entry in fresh["metadata"]["managedFields"]] == ["applier"]


async def test_deletion_waits_for_finalizers_and_grace(registry: Registry) -> None:
    await registry.create(CONFIG_MAP, config_map())
    assert (await registry.delete(CONFIG_MAP, "a")).is_gone
    assert registry.find(CONFIG_MAP, "a") is None
    with pytest.raises(NotFoundError):
        await registry.delete(CONFIG_MAP, "a")
    await registry.create(CONFIG_MAP, config_map("f", finalizers=["x/y"]))
    assert not (await registry.delete(CONFIG_MAP, "f")).is_gone
    held = registry.find(CONFIG_MAP, "f")
    assert held is not None
    assert held["metadata"]["deletionTimestamp"] == format_time(START)
    # A second time nothing changes; when the finalizer goes, so does the object.
    again = await registry.delete(CONFIG_MAP, "f")
    assert (again.is_gone, again.item.obj) == (False, held)
    await registry.update(CONFIG_MAP, "f", lambda new: new["metadata"].update(finalizers=[]))
    assert registry.find(CONFIG_MAP, "f") is None


async def test_a_bound_pod_ends_in_two_steps(registry: Registry) -> None:
    bound = pod(nodeName="n1", terminationGracePeriodSeconds=30)
    await registry.create(POD, bound)
    first = await registry.delete(POD, "p")
    assert not first.is_gone
    assert first.item.obj["metadata"]["deletionGracePeriodSeconds"] == 30
    ends = format_time(START + timedelta(seconds=30))
    assert first.item.obj["metadata"]["deletionTimestamp"] == ends
    last = await registry.delete(POD, "p", grace_period_seconds=0)
    assert last.is_gone
    assert registry.find(POD, "p") is None
    await registry.create(POD, pod("free"))
    assert (await registry.delete(POD, "free")).is_gone


async def test_deletion_is_of_the_very_object(registry: Registry) -> None:
    made = await registry.create(CONFIG_MAP, config_map())
    for options in ({"uid": "other"}, {"resource_version": "1000"}):
        with pytest.raises(ConflictError):
            await registry.delete(CONFIG_MAP, "a", **options)
    meta = made["metadata"]
    options = {"uid": meta["uid"], "resource_version": meta["resourceVersion"]}
    assert (await registry.delete(CONFIG_MAP, "a", **options)).is_gone


async def test_a_collection_is_deleted_as_selected(registry: Registry) -> None:
    for name, app in (("a", "web"), ("b", "db"), ("c", "web")):
        await registry.create(CONFIG_MAP, config_map(name, labels={"app": app}))
    await registry.create(CONFIG_MAP, config_map("a", labels={"app": "web"}), "other")
    deleted = await registry.objects.delete_collection(
        registry.request(), CONFIG_MAP, CONFIG_MAP.storage, "default",
        select(CONFIG_MAP, CONFIG_MAP.storage, "app=web", ""), DeleteOptions(),
    )  # fmt: skip
    assert sorted(item.name for item in deleted) == ["a", "c"]
    assert registry.find(CONFIG_MAP, "b") is not None
    assert registry.find(CONFIG_MAP, "a", "other") is not None
    assert registry.find(CONFIG_MAP, "a") is None


async def test_a_large_collection_shares_commits(registry: Registry) -> None:
    for number in range(200):
        await registry.create(CONFIG_MAP, config_map(f"m{number}"))
    commits: list[int] = []
    registry.store.listen(lambda changes: commits.append(len(changes)))
    deleted = await registry.objects.delete_collection(
        registry.request(), CONFIG_MAP, CONFIG_MAP.storage, "default", EVERYTHING, DeleteOptions()
    )
    assert len(deleted) == sum(commits) == 200
    assert len(commits) < 100, "many deletions in each commit"


async def test_a_refusal_ends_the_deletion_of_a_collection(registry: Registry) -> None:
    for number in range(300):
        await registry.create(CONFIG_MAP, config_map(f"m{number:03}"))
    kept = registry.find(CONFIG_MAP, "m000")
    assert kept is not None
    with pytest.raises(ConflictError, match="UID in the precondition"):
        await registry.objects.delete_collection(
            registry.request(), CONFIG_MAP, CONFIG_MAP.storage, "default", EVERYTHING,
            DeleteOptions(uid=kept["metadata"]["uid"]),
        )  # fmt: skip
    assert len(registry.objects.scan(CONFIG_MAP, "default")) == 299


async def test_update_without_revision_is_retried_after_a_conflict(registry: Registry) -> None:
    await registry.create(CONFIG_MAP, config_map())
    seen: list[str] = []

    def change(new: Obj) -> None:
        seen.append(new["metadata"]["resourceVersion"])
        del new["metadata"]["resourceVersion"]
        new["data"]["k"] = f"w{len(seen)}"

    updated = await registry.update(CONFIG_MAP, "a", change)
    assert updated.item.obj["data"] == {"k": "w1"}
    assert len(seen) == 1


def test_events_are_selected_by_the_controller_where_they_have_no_source() -> None:
    kind = next(served_kind for served_kind in STORED_KINDS if served_kind.plural == "events")
    labels = [field.label for field in kind.selectable]
    factory = StoredFactory(STORED_KINDS)

    def source(event: Obj) -> str:
        value = to_value({"metadata": {"name": "e"}, **event})
        return factory("events/default/e", 1, value).fields[labels.index("source")]

    assert source({"reportingComponent": "other", "source": {"component": "kubelet"}}) == "kubelet"
    assert source({"reportingComponent": "other", "source": {}}) == "other"
    assert source({"reportingComponent": "other", "source": {"component": ""}}) == "other"
    assert source({"reportingComponent": "other"}) == "other"
    assert source({}) == ""
