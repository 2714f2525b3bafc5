"""The typed views of the store that admission and authorization read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage.api.host_ports import Listener
from moorage.apiserver.assembly import _bindable, _Readers
from moorage.registry.kinds import STORED_KINDS
from moorage.registry.stored import Stored, StoredFactory, to_value
from moorage.storage import SqliteStore, WatchCache
from tests.apiserver.access import RBAC, ROOT, grant
from tests.apiserver.server import serving

_KINDS = {kind.plural: kind for kind in STORED_KINDS}
OBJECTS: dict[str, dict[str, Any]] = {
    "namespaces/a": {},
    "serviceaccounts/a/b": {},
    "serviceaccounts/b/a": {},
    "services/a/b": {},
    "nodes/a": {},
    "runtimeclasses/a": {"handler": "h"},
    "priorityclasses/a": {"value": 7},
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
async def readers(tmp_path: Path) -> AsyncIterator[_Readers]:
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
        yield _Readers(cache)


async def test_every_view_reads_its_kind(readers: _Readers) -> None:
    for view, key in (
        ("namespaces", "namespaces/a"), ("accounts", "serviceaccounts/a/b"),
        ("services", "services/a/b"), ("nodes", "nodes/a"), ("classes", "runtimeclasses/a"),
        ("priorities", "priorityclasses/a"), ("roles", "roles/a/b"),
        ("role_bindings", "rolebindings/a/b"), ("cluster_roles", "clusterroles/a"),
        ("cluster_role_bindings", "clusterrolebindings/a"),
    ):  # fmt: skip
        _, *namespace, name = key.split("/")
        obj = getattr(readers, view).get(name, *namespace)
        assert obj is not None, view
        assert obj.metadata.uid == f"uid of {key}"


async def test_pods_of_a_node_are_those_bound_to_it(readers: _Readers) -> None:
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
    readers: _Readers, plural: str, namespace: str, name: str
) -> None:
    key = "/".join(filter(None, (plural, namespace, name)))
    assert readers.uid_of(plural, namespace, name) == f"uid of {key}"
    assert readers.uid_of(plural, namespace, "none") is None


def test_tokens_are_bound_to_three_kinds() -> None:
    assert {name: kind.plural for name, kind in _bindable().items()} == {
        "Pod": "pods", "Secret": "secrets", "Node": "nodes",
    }  # fmt: skip


_CORE = "/api/v1"
_CONTAINER = {"name": "c", "image": "i"}


def _pod(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p"},
        "spec": {"containers": [_CONTAINER], **spec},
    }  # fmt: skip


async def test_every_admission_plugin_is_at_work(tmp_path: Path) -> None:
    listener = Listener("API server", "127.0.0.1", 6443)
    async with serving(tmp_path, listeners=(listener,)) as server:

        async def created(path: str, body: Any, **how: Any) -> Any:
            answer = await server.ask("POST", path, body, **how)
            assert answer.status == 201, answer.text
            return answer.json

        async def refused(path: str, body: Any, why: str, **how: Any) -> None:
            answer = await server.ask("POST", path, body, **how)
            assert answer.status in (403, 404, 422), answer.text
            assert why in answer.json["message"]

        pods = f"{_CORE}/namespaces/default/pods"
        await refused(f"{_CORE}/namespaces/none/configmaps", {"metadata": {"name": "m"}},
                      'namespaces "none" not found')  # fmt: skip
        await refused(pods, _pod(), "error looking up service account default/default")
        await created(
            f"{_CORE}/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}}
        )
        await refused(f"{_CORE}/nodes", {"metadata": {"name": "n2"}}, "is not allowed",
                      token="agent-token")  # fmt: skip
        node = await created(f"{_CORE}/nodes", {"metadata": {"name": "n1"}}, token="agent-token")
        assert [taint["key"] for taint in node["spec"]["taints"]] == [
            "node.kubernetes.io/not-ready"
        ]
        classes = "/apis/node.k8s.io/v1/runtimeclasses"
        await created(
            classes,
            {"metadata": {"name": "vm"}, "handler": "vm", "overhead": {"podFixed": {"cpu": "1"}}},
        )
        await refused(pods, _pod(runtimeClassName="none"), 'RuntimeClass "none" not found')
        spec = (await created(pods, _pod(runtimeClassName="vm")))["spec"]
        assert (spec["overhead"], spec["priority"]) == ({"cpu": "1"}, 0)
        assert [toleration["tolerationSeconds"] for toleration in spec["tolerations"]] == [300, 300]
        port = {"containerPort": 1, "hostPort": 6443}
        await refused(pods, _pod(containers=[{**_CONTAINER, "ports": [port]}]), "API server")
        service = await created(
            f"{_CORE}/namespaces/default/services",
            {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}},
        )
        assert service["spec"]["clusterIP"].startswith("10.96.")
        await grant(server, "alice", ["create"], "clusterroles", group=RBAC)
        rules = [{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}]
        await refused(
            f"{ROOT}/clusterroles", {"metadata": {"name": "more"}, "rules": rules},
            "attempting to grant", token="alice-token",
        )  # fmt: skip


async def test_service_with_chosen_addresses_is_created_again_at_once(tmp_path: Path) -> None:
    services = f"{_CORE}/namespaces/default/services"
    spec = {
        "type": "NodePort",
        "clusterIP": "10.96.0.77",
        "ports": [{"port": 80, "nodePort": 30080}],
    }
    body = {"metadata": {"name": "s"}, "spec": spec}
    wrong = {"metadata": {"name": "s"}, "spec": {**spec, "externalName": "-"}}
    async with serving(tmp_path) as server:
        # A refusal after the addresses were claimed releases them too.
        refused = await server.ask("POST", services, {**wrong, "metadata": {"name": "S"}})
        assert refused.status == 422, refused.text
        for _ in range(2):
            assert (await server.ask("POST", services, body)).status == 201
            assert (await server.ask("DELETE", f"{services}/s")).status == 200
