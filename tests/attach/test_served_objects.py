"""Objects of any kind as a server serves them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from moorage.api.errors import ConflictError, ExpiredError, NotFoundError
from moorage.attach.manifests.identity import Obj
from moorage.attach.served_objects import FIELD_MANAGER, ServedObjects, key_of, name_of
from moorage.wire.client.discovery import NotServedError
from moorage.wire.client.rest import PatchType
from tests.attach.object_server import running


class Compacting(ServedObjects):
    """A server whose lists expire after two objects, as those do that are read slowly."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(cast(Any, None))
        self.names = names

    async def list(self, api_version: str, kind: str, **selectors: str) -> AsyncIterator[Obj]:
        del api_version, kind, selectors
        slow = 0
        for name in tuple(self.names):
            if slow == 2:
                raise ExpiredError("compacted")
            # What is done already takes no time.
            slow += name.islower()
            yield {"metadata": {"name": name}}


async def test_a_list_that_expires_meanwhile_is_read_again_until_all_is_done() -> None:
    served = Compacting(list("abcde"))

    async def change(obj: Obj) -> None:
        name = obj["metadata"]["name"]
        served.names[served.names.index(name)] = name.upper()

    await served.each("v1", "Pod", change)
    assert served.names == list("ABCDE")


async def test_a_list_that_gets_no_further_is_an_error() -> None:
    async def change(obj: Obj) -> None:
        del obj

    with pytest.raises(ExpiredError):
        await Compacting(list("abcde")).each("v1", "Pod", change)


def config(name: str = "c", namespace: str = "ns", **metadata: Any) -> Obj:
    meta = {"name": name, **({"namespace": namespace} if namespace else {}), **metadata}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}


_PATH = "/api/v1/namespaces/ns/configmaps/c"
_UNSERVED = config() | {"apiVersion": "example.com/v1"}


async def test_objects_are_read_by_what_is_served() -> None:
    async with running() as (server, client):
        stored = server.put(config(labels={"a": "b"}))
        served = ServedObjects(client)
        assert await served.get(config()) == stored
        assert await served.get(config("other")) is None
        assert await served.get(_UNSERVED) is None
        with pytest.raises(NotServedError):
            await served.resource("example.com/v1", "ConfigMap")


async def test_an_apply_takes_over_the_fields_of_others() -> None:
    async with running() as (server, client):
        server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})
        served = ServedObjects(client)
        tried = await served.apply(config(), is_dry_run=True)
        assert server.writes == []
        assert server.of("ConfigMap") == {}
        applied = await served.apply(config())
        assert server.writes == [("PATCH", _PATH)]
        assert applied == server.of("ConfigMap")["c"]
        assert tried["metadata"]["managedFields"] == applied["metadata"]["managedFields"]
        query, dry = server.queries[-1], server.queries[-2]
        assert query == {"fieldManager": FIELD_MANAGER, "force": "true"}
        assert dry == query | {"dryRun": "All"}
        with pytest.raises(NotServedError):
            await served.apply(_UNSERVED)


async def test_a_deletion_is_of_the_very_object_that_was_read() -> None:
    async with running() as (server, client):
        served = ServedObjects(client)
        stored = server.put(config())
        with pytest.raises(ConflictError):
            await served.delete(config(uid="another"))
        assert await served.delete(stored)
        assert server.bodies[-1] == {
            "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background",
            "preconditions": {"uid": stored["metadata"]["uid"]},
        }  # fmt: skip
        assert not await served.delete(stored)
        assert not await served.delete(_UNSERVED)
        server.put(config())
        assert await served.delete(config(), propagation="Orphan")
        assert server.bodies[-1] == {
            "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Orphan",
        }  # fmt: skip


async def test_patches_are_of_an_object_or_its_subresource() -> None:
    async with running() as (server, client):
        served = ServedObjects(client)
        server.put(config())
        patched = await served.patch(config(), {"data": {"a": "b"}}, PatchType.MERGE)
        assert patched["data"] == {"a": "b"}
        status = {"status": {"x": "y"}, "data": {"a": "ignored"}}
        patched = await served.patch(config(), status, PatchType.MERGE, subresource="status")
        assert (patched["data"], patched["status"]) == ({"a": "b"}, {"x": "y"})
        assert server.writes == [("PATCH", _PATH), ("PATCH", f"{_PATH}/status")]
        assert server.queries[-1] == {"fieldManager": FIELD_MANAGER}
        with pytest.raises(NotFoundError):
            await served.patch(config("other"), {}, PatchType.MERGE)


@pytest.mark.parametrize(
    ("selectors", "names"),
    [
        ({}, ["a", "b", "c", "d", "e"]),
        ({"namespace": "ns"}, ["a", "b", "c"]),
        ({"label_selector": "side=left"}, ["a", "c", "e"]),
        ({"namespace": "ns", "label_selector": "side=left"}, ["a", "c"]),
    ],
)
async def test_collections_are_read_page_by_page(
    selectors: dict[str, str], names: list[str]
) -> None:
    async with running() as (server, client):
        for position, name in enumerate("abcde"):
            side = "right" if position % 2 else "left"
            namespace = "ns" if position < 3 else "other"
            server.put(config(name, namespace, labels={"side": side}))
        served = ServedObjects(client)
        found = [obj async for obj in served.list("v1", "ConfigMap", **selectors)]
        assert [obj["metadata"]["name"] for obj in found] == names
        assert {(obj["apiVersion"], obj["kind"]) for obj in found} == {("v1", "ConfigMap")}
        assert [obj async for obj in served.list("example.com/v1", "ConfigMap")] == []


async def test_fields_are_selected_by_the_server() -> None:
    async with running() as (server, client):
        served = ServedObjects(client)
        found = served.list("v1", "Event", field_selector="type=Warning")
        assert [obj async for obj in found] == []
        assert server.queries[-1]["fieldSelector"] == "type=Warning"
        assert int(server.queries[-1]["limit"]) > 1


async def test_kinds_that_an_installation_adds_are_served_from_then_on() -> None:
    async with running() as (server, client):
        hidden = [one for one in server.resources if one.group == "runtime.moorage.dev"]
        server.resources = [one for one in server.resources if one not in hidden]
        served = ServedObjects(client)
        place = ("runtime.moorage.dev/v1alpha1", "RuntimePolicy")
        with pytest.raises(NotServedError):
            await served.resource(*place)
        server.resources += hidden
        assert (await served.resource(*place)).plural == "runtimepolicies"


def test_an_object_is_named_by_kind_namespace_and_name() -> None:
    assert name_of(config()) == "ConfigMap ns/c"
    assert name_of(config(namespace="")) == "ConfigMap c"
    assert key_of(config()) == ("ConfigMap", "ns", "c")
    assert key_of(config(namespace="")) == ("ConfigMap", "", "c")
