"""The typed views of the store that admission and authorization read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage.apiserver.endpoints.readers import Readers, bindable_kinds
from moorage.apiserver.registry.kinds import STORED_KINDS
from moorage.apiserver.registry.stored import Stored, StoredFactory, to_value
from moorage.apiserver.storage import SqliteStore, WatchCache

_KINDS = {kind.plural: kind for kind in STORED_KINDS}
OBJECTS: dict[str, dict[str, Any]] = {
    "namespaces/a": {},
    "serviceaccounts/a/b": {},
    "serviceaccounts/b/a": {},
    "services/a/b": {},
    "nodes/a": {},
    "runtimeclasses/a": {"handler": "h"},
    "priorityclasses/a": {"value": 7},
    "storageclasses/a": {"provisioner": "p"},
    "roles/a/b": {},
    "rolebindings/a/b": {},
    "clusterroles/a": {},
    "clusterrolebindings/a": {},
    "pods/a/p": {"spec": {"nodeName": "n1"}},
    "pods/a/q": {"spec": {"nodeName": "n2"}},
    "pods/a/r": {"spec": {}},
    "pods/b/p": {"spec": {"nodeName": "n1"}},
    "secrets/a/b": {},
}


@pytest.fixture
async def readers(tmp_path: Path) -> AsyncIterator[Readers]:
    async with SqliteStore(tmp_path / "s.db") as store:
        cache: WatchCache[Stored] = WatchCache(store, StoredFactory(STORED_KINDS))
        await cache.load()

        async def put(key: str, more: dict[str, Any]) -> None:
            plural, *namespace, name = key.split("/")
            meta = {"name": name, "uid": f"uid of {key}"}
            if namespace:
                meta["namespace"] = namespace[0]
            at = _KINDS[plural].key(meta.get("namespace", ""), name)
            await store.put(at, to_value({"metadata": meta, **more}), 0)

        # At once, so that they share a commit.
        await asyncio.gather(*(put(*key_and_object) for key_and_object in OBJECTS.items()))
        yield Readers(cache)


async def test_every_view_reads_its_kind(readers: Readers) -> None:
    for view, key in (
        ("namespaces", "namespaces/a"), ("accounts", "serviceaccounts/a/b"),
        ("services", "services/a/b"), ("nodes", "nodes/a"), ("classes", "runtimeclasses/a"),
        ("priorities", "priorityclasses/a"), ("storage_classes", "storageclasses/a"),
        ("roles", "roles/a/b"),
        ("role_bindings", "rolebindings/a/b"), ("cluster_roles", "clusterroles/a"),
        ("cluster_role_bindings", "clusterrolebindings/a"),
    ):  # fmt: skip
        _, *namespace, name = key.split("/")
        obj = getattr(readers, view).get(name, *namespace)
        assert obj is not None, view
        assert obj.metadata.uid == f"uid of {key}"


async def test_pods_of_a_node_are_those_bound_to_it(readers: Readers) -> None:
    def names(node_name: str, namespace: str) -> list[str]:
        return [
            f"{pod.metadata.namespace}/{pod.metadata.name}"
            for pod in readers.pods_of_node(node_name, namespace)
        ]

    assert names("n1", "") == ["a/p", "b/p"]
    assert names("n1", "b") == ["b/p"]
    assert names("n2", "a") == ["a/q"]
    assert names("n3", "") == []
    read_pod = readers.find_pod("p", "b")
    assert read_pod is not None
    assert read_pod.metadata.uid == "uid of pods/b/p"
    assert readers.find_pod("q", "b") is None


@pytest.mark.parametrize(
    ("plural", "namespace", "name"),
    [("pods", "a", "p"), ("secrets", "a", "b"), ("nodes", "", "a"),
     ("serviceaccounts", "a", "b"), ("serviceaccounts", "b", "a")],
)  # fmt: skip
async def test_uids_of_what_tokens_are_bound_to(
    readers: Readers, plural: str, namespace: str, name: str
) -> None:
    key = "/".join(filter(None, (plural, namespace, name)))
    assert readers.uid_of(plural, namespace, name) == f"uid of {key}"
    assert readers.uid_of(plural, namespace, "none") is None


def test_tokens_are_bound_to_three_kinds() -> None:
    assert {name: kind.plural for name, kind in bindable_kinds().items()} == {
        "Pod": "pods", "Secret": "secrets", "Node": "nodes",
    }  # fmt: skip
