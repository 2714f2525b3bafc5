"""Requests that are more than the verb they came with: they need the other verb too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.access import RBAC, ROOT, grant
from tests.apiserver.running_server import Answer, Running, serving

CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
PODS = "/api/v1/namespaces/default/pods"
APPLY = "application/apply-patch+yaml"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path) as running:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        path = "/api/v1/namespaces/default/serviceaccounts"
        assert (await running.ask("POST", path, account)).status == 201
        yield running


def runtime_class() -> dict[str, Any]:
    return {
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "fast"},
        "handler": "fast",
    }  # fmt: skip


def privileged_pod(name: str = "p") -> dict[str, Any]:
    container = {"name": "c", "image": "i", "securityContext": {"privileged": True}}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [container]},
    }  # fmt: skip


async def apply(server: Running, path: str, obj: dict[str, Any], query: str = "") -> Answer:
    return await server.ask(
        "PATCH", f"{path}?fieldManager=alice{query}", obj, token="alice-token", Content_Type=APPLY
    )


@pytest.mark.parametrize("query", ["", "&dryRun=All", "&force=true"])
@pytest.mark.parametrize(
    ("collection", "obj", "group", "resource", "where"),
    [
        (CLASSES, runtime_class(), "node.k8s.io", "runtimeclasses", "at the cluster scope"),
        (PODS, privileged_pod(), "", "pods", 'in the namespace "default"'),
    ],
)
async def test_an_apply_that_creates_needs_create(
    server: Running, collection: str, obj: dict[str, Any], group: str, resource: str, where: str,
    query: str,
) -> None:  # fmt: skip
    await grant(server, "alice", ["get", "patch", "update"], resource, group=group)
    path = f"{collection}/{obj['metadata']['name']}"
    refused = await apply(server, path, obj, query)
    assert refused.status == 403
    qualified = f"{resource}.{group}" if group else resource
    assert refused.json["reason"] == "Forbidden"
    assert refused.json["message"] == (
        f'{qualified} "{obj["metadata"]["name"]}" is forbidden: User "alice" cannot create '
        f'resource "{resource}" in API group "{group}" {where}'
    )
    assert (await server.ask("GET", path)).status == 404
    await grant(server, "alice", ["create"], resource, group=group)
    assert (await apply(server, path, obj, query)).status == 201


async def test_an_apply_of_what_exists_needs_no_create(server: Running) -> None:
    await grant(server, "alice", ["patch"], "runtimeclasses", group="node.k8s.io")
    assert (await server.ask("POST", CLASSES, runtime_class())).status == 201
    assert (await apply(server, f"{CLASSES}/fast", runtime_class())).status == 200


@pytest.mark.parametrize("query", ["", "?dryRun=All"])
@pytest.mark.parametrize(
    ("collection", "kind", "group", "body"),
    [
        (CLASSES, "RuntimeClass", "node.k8s.io", {"handler": "fast"}),
        ("/apis/coordination.k8s.io/v1/namespaces/default/leases", "Lease",
         "coordination.k8s.io", {}),
        ("/api/v1/namespaces/default/endpoints", "Endpoints", "", {}),
        (f"{ROOT}/namespaces/default/roles", "Role", RBAC, {}),
        (f"{ROOT}/clusterroles", "ClusterRole", RBAC, {}),
    ],
)  # fmt: skip
async def test_a_put_that_creates_needs_create(
    server: Running, collection: str, kind: str, group: str, body: dict[str, Any], query: str
) -> None:
    resource = collection.rpartition("/")[2]
    await grant(server, "alice", ["update", "patch"], resource, group=group)
    api_version = f"{group}/v1" if group else "v1"
    # Kinds that must name a revision on an update take any for an object that is absent.
    meta = {"name": "x", "resourceVersion": "1"}
    obj = {"apiVersion": api_version, "kind": kind, "metadata": meta, **body}
    path = f"{collection}/x"
    refused = await server.ask("PUT", path + query, obj, token="alice-token")
    assert refused.status == 403
    assert f'cannot create resource "{resource}"' in refused.json["message"]
    assert (await server.ask("GET", path)).status == 404
    await grant(server, "alice", ["create"], resource, group=group)
    answer = await server.ask("PUT", path + query, obj, token="alice-token")
    assert answer.status == 201, answer.text


async def test_a_name_that_one_may_create_is_enough(server: Running) -> None:
    """The check is on the name in the URL, as any other of an update."""
    await grant(server, "alice", ["patch"], "runtimeclasses", group="node.k8s.io")
    role = {
        "apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "one"},
        "rules": [{"verbs": ["create"], "apiGroups": ["node.k8s.io"],
                   "resources": ["runtimeclasses"], "resourceNames": ["fast"]}],
    }  # fmt: skip
    binding = {
        "apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "one"},
        "roleRef": {"kind": "ClusterRole", "name": "one"},
        "subjects": [{"kind": "User", "name": "alice"}],
    }  # fmt: skip
    await server.ask("POST", f"{ROOT}/clusterroles", role)
    await server.ask("POST", f"{ROOT}/clusterrolebindings", binding)
    other = runtime_class() | {"metadata": {"name": "slow"}}
    assert (await apply(server, f"{CLASSES}/slow", other)).status == 403
    assert (await apply(server, f"{CLASSES}/fast", runtime_class())).status == 201


@pytest.mark.parametrize("subresource", ["status", "ephemeralcontainers", "scale", "binding"])
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_a_subresource_never_creates(server: Running, subresource: str, method: str) -> None:
    answer = await server.ask(
        method,
        f"{PODS}/absent/{subresource}?fieldManager=x",
        privileged_pod("absent"),
        Content_Type=APPLY if method == "PATCH" else "application/json",
    )
    assert answer.status in (404, 405)
    assert (await server.ask("GET", f"{PODS}/absent")).status == 404


@pytest.mark.parametrize("subresource", ["exec", "attach", "portforward"])
async def test_a_stream_by_websocket_needs_create(server: Running, subresource: str) -> None:
    await grant(server, "alice", ["get"], f"pods/{subresource}", "pods")
    upgrade = {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip
    path = f"{PODS}/p/{subresource}?command=id&ports=80"

    async def ask(**headers: str) -> Answer:
        return await server.ask("GET", path, token="alice-token", **headers)

    for headers in (upgrade, {}):
        refused = await ask(**headers)
        assert refused.status == 403
        assert refused.json["message"] == (
            f'pods "p" is forbidden: User "alice" cannot create resource "pods/{subresource}" in '
            'API group "" in the namespace "default"'
        )
    await grant(server, "alice", ["create"], f"pods/{subresource}")
    assert (await ask(**upgrade)).status == 404  # Let in: now the pod is what is missing.


async def test_a_log_needs_get_alone(server: Running) -> None:
    await grant(server, "alice", ["get"], "pods/log")
    assert (await server.ask("GET", f"{PODS}/p/log", token="alice-token")).status == 404


async def test_user_who_may_write_roles_does_not_become_administrator(server: Running) -> None:
    """The way of the attack: an empty role, a binding to it, then rules gathered into it."""
    verbs = ["create", "get", "list", "patch", "update"]
    await grant(server, "alice", verbs, "clusterroles", "clusterrolebindings", group=RBAC)
    role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "mine"}}
    binding = {
        "apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "mine"},
        "roleRef": {"kind": "ClusterRole", "name": "mine"},
        "subjects": [{"kind": "User", "name": "alice"}],
    }  # fmt: skip
    everything = {"matchLabels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}
    gathering = {"aggregationRule": {"clusterRoleSelectors": [everything]}}

    async def ask(method: str, path: str, body: Any, media: str = "application/json") -> Answer:
        return await server.ask(method, path, body, token="alice-token", Content_Type=media)

    roles = f"{ROOT}/clusterroles"
    assert (await ask("POST", roles, role)).status == 201
    assert (await ask("POST", f"{ROOT}/clusterrolebindings", binding)).status == 201
    merge, strategic = "application/merge-patch+json", "application/strategic-merge-patch+json"
    added = [{"op": "add", "path": "/aggregationRule", "value": gathering["aggregationRule"]}]
    ways = [
        ("PATCH", f"{roles}/mine", gathering, merge),
        ("PATCH", f"{roles}/mine?dryRun=All", gathering, merge),
        ("PATCH", f"{roles}/mine", gathering, strategic),
        ("PATCH", f"{roles}/mine", added, "application/json-patch+json"),
        ("PATCH", f"{roles}/mine?fieldManager=a", {**role, **gathering}, APPLY),
        ("PUT", f"{roles}/mine", {**role, **gathering}, "application/json"),
        ("PUT", f"{roles}/other", {**role, "metadata": {"name": "other"}, **gathering},
         "application/json"),
        ("POST", roles, {**role, "metadata": {"name": "another"}, **gathering},
         "application/json"),
    ]  # fmt: skip
    for method, path, body, media in ways:
        answer = await ask(method, path, body, media)
        assert answer.status == 403, (method, path, media)
        why = "must have cluster-admin privileges to use the aggregationRule"
        assert answer.json["message"].endswith(f" is forbidden: {why}")
    label = {"metadata": {"labels": {f"{RBAC}/aggregate-to-view": "true"}}}
    labelled = await ask("PATCH", f"{roles}/cluster-admin", label, merge)
    assert labelled.status == 403
    assert "is attempting to grant RBAC permissions not currently held" in labelled.json["message"]
    moved = {"roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"}}
    assert (await ask("PATCH", f"{ROOT}/clusterrolebindings/mine", moved, merge)).status == 422


@pytest.mark.parametrize("api_version", ["meta.k8s.io/v1", "v1", "node.k8s.io/v1", ""])
async def test_options_of_a_deletion_come_in_any_of_their_versions(
    server: Running, api_version: str
) -> None:
    assert (await server.ask("POST", CLASSES, runtime_class())).status == 201
    options = {"kind": "DeleteOptions", "apiVersion": api_version, "dryRun": ["All"]}
    if not api_version:
        del options["kind"], options["apiVersion"]
    assert (await server.ask("DELETE", f"{CLASSES}/fast", options)).status == 200
    assert (await server.ask("GET", f"{CLASSES}/fast")).status == 200
    other = {"kind": "DeleteOptions", "apiVersion": "apps/v1"}
    assert (await server.ask("DELETE", f"{CLASSES}/fast", other)).status == 400


async def test_applying_to_an_object_that_is_gone_does_not_create_another(server: Running) -> None:
    path = f"{CLASSES}/fast?fieldManager=m"
    applied = runtime_class()
    applied["metadata"]["uid"] = "0b8b9b62-0000-0000-0000-000000000000"
    answer = await server.ask("PATCH", path, applied, Content_Type=APPLY)
    assert (answer.status, answer.json["reason"]) == (409, "Conflict")
    assert answer.json["message"].endswith(
        "uid mismatch: the provided object specified uid 0b8b9b62-0000-0000-0000-000000000000, "
        "and no existing object was found"
    )
    assert (await server.ask("GET", f"{CLASSES}/fast")).status == 404
    status = await server.ask(
        "PATCH", f"{PODS}/absent/status?fieldManager=m", privileged_pod("absent"),
        Content_Type=APPLY,
    )  # fmt: skip
    assert status.status == 404
