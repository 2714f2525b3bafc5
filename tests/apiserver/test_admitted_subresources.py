"""Webhooks and policies see requests that write no object of the resource: what they are shown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage.linux.child import Child
from tests.apiserver.endpoints.test_connect import Cluster
from tests.apiserver.endpoints.test_connect import cluster as cluster
from tests.apiserver.running_server import Running, serving
from tests.apiserver.test_mutating_policies import configure as mutation
from tests.apiserver.test_mutating_policies import enforce as enforce_mutation
from tests.apiserver.test_mutating_policies import patch as json_patch
from tests.apiserver.webhook_server import MUTATING, VALIDATING, WebhookServer, patched, webhooks

PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
ALLOWED: dict[str, Any] = {"allowed": True}


@pytest.fixture
async def hooks(server: Running) -> AsyncIterator[WebhookServer]:
    async with webhooks(server.authority) as served:
        yield served


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path) as running:
        account = {"metadata": {"name": "default"}}
        assert (await running.ask("POST", ACCOUNTS, account)).status == 201
        yield running
    assert not Child.awaited


def rule(*resources: str, group: str = "", operation: str = "*") -> dict[str, Any]:
    return {
        "operations": [operation], "apiGroups": [group], "apiVersions": ["*"],
        "resources": list(resources),
    }  # fmt: skip


async def watch(
    server: Running, hooks: WebhookServer, *rules: dict[str, Any], where: str = VALIDATING
) -> None:
    """Configure the webhook `see`, which allows all."""
    hooks.answers.setdefault("see", lambda _: ALLOWED)
    body = hooks.configuration("c", {"path": "see", "rules": list(rules)})
    assert (await server.ask("POST", where, body)).status == 201


async def add_pod(server: Running, name: str = "p") -> None:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    made = await server.ask("POST", PODS, {"metadata": {"name": name}, "spec": spec})
    assert made.status == 201, made.text


async def test_evictions(server: Running, hooks: WebhookServer) -> None:
    await add_pod(server)
    await watch(server, hooks, rule("pods", "pods/*"))
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    assert (await server.ask("POST", f"{PODS}/p/eviction", body)).status == 201
    (seen,) = hooks.requests("see")
    assert seen["kind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}
    assert seen["resource"] == {"group": "", "version": "v1", "resource": "pods"}
    assert (seen["subResource"], seen["operation"]) == ("eviction", "CREATE")
    assert seen["object"]["kind"] == "Eviction"
    assert seen["object"]["metadata"]["name"] == seen["name"] == "p"
    assert seen["options"]["kind"] == "CreateOptions"


async def test_an_eviction_that_is_denied_leaves_the_pod(
    server: Running, hooks: WebhookServer
) -> None:
    await add_pod(server)
    hooks.answers["see"] = lambda _: {"allowed": False, "status": {"message": "stay"}}
    await watch(server, hooks, rule("pods/eviction"))
    denied = await server.ask("POST", f"{PODS}/p/eviction", {"metadata": {"name": "p"}})
    assert denied.json["message"].endswith("denied the request: stay")
    assert (await server.ask("GET", f"{PODS}/p")).status == 200


async def test_bindings(server: Running, hooks: WebhookServer) -> None:
    await add_pod(server)
    await watch(server, hooks, rule("pods", "pods/*"))
    body = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    assert (await server.ask("POST", f"{PODS}/p/binding", body)).status == 201
    (seen,) = hooks.requests("see")
    assert seen["kind"] == {"group": "", "version": "v1", "kind": "Binding"}
    assert (seen["subResource"], seen["operation"]) == ("binding", "CREATE")
    assert seen["object"]["target"] == {"kind": "Node", "name": "n"}


async def test_bindings_of_the_older_path(server: Running, hooks: WebhookServer) -> None:
    await add_pod(server)
    await watch(server, hooks, rule("pods/*", "bindings"))
    body = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    done = await server.ask("POST", "/api/v1/namespaces/default/bindings", body)
    assert done.status == 201, done.text
    (seen,) = hooks.requests("see")
    assert seen["kind"] == {"group": "", "version": "v1", "kind": "Binding"}
    assert seen["resource"]["resource"] == "bindings"
    assert (seen["name"], seen["object"]["target"]) == ("p", {"kind": "Node", "name": "n"})


async def test_token_requests_and_a_change_of_theirs(server: Running, hooks: WebhookServer) -> None:
    assert (await server.ask("POST", ACCOUNTS, {"metadata": {"name": "sa"}})).status == 201
    change = {"op": "add", "path": "/spec/expirationSeconds", "value": 700}
    hooks.answers["see"] = lambda _: patched(change)
    await watch(server, hooks, rule("serviceaccounts/token"), where=MUTATING)
    issued = await server.ask("POST", f"{ACCOUNTS}/sa/token", {"spec": {"audiences": ["a"]}})
    assert issued.status == 201, issued.text
    assert issued.json["spec"]["expirationSeconds"] == 700
    (seen,) = hooks.requests("see")
    assert seen["kind"]["kind"] == seen["object"]["kind"] == "TokenRequest"
    assert seen["name"] == "sa"


def deployment() -> dict[str, Any]:
    labels = {"a": "b"}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "metadata": {"name": "d"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


async def test_a_scale_stands_for_the_scaled_object(server: Running, hooks: WebhookServer) -> None:
    assert (await server.ask("POST", DEPLOYMENTS, deployment())).status == 201
    await watch(server, hooks, rule("deployments/scale", group="apps"))
    scale = (await server.ask("GET", f"{DEPLOYMENTS}/d/scale")).json
    scale["spec"] = {"replicas": 3}
    assert (await server.ask("PUT", f"{DEPLOYMENTS}/d/scale", scale)).status == 200
    (seen,) = hooks.requests("see")
    assert seen["kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert seen["resource"]["resource"] == "deployments"
    assert (seen["object"]["spec"], seen["oldObject"]["spec"]) == (
        {"replicas": 3}, {"replicas": 1},
    )  # fmt: skip


async def test_what_a_webhook_makes_of_a_scale_is_the_scaled_objects(
    server: Running, hooks: WebhookServer
) -> None:
    assert (await server.ask("POST", DEPLOYMENTS, deployment())).status == 201
    hooks.answers["see"] = lambda _: patched(
        {"op": "replace", "path": "/spec/replicas", "value": 5},
        {"op": "replace", "path": "/metadata/name", "value": "other"},
    )
    await watch(server, hooks, rule("deployments/scale", group="apps"), where=MUTATING)
    patch = {"spec": {"replicas": 3}}
    kind = "application/merge-patch+json"
    scaled = await server.ask("PATCH", f"{DEPLOYMENTS}/d/scale", patch, Content_Type=kind)
    assert scaled.json["spec"] == {"replicas": 5}, scaled.text
    assert (await server.ask("GET", f"{DEPLOYMENTS}/d")).json["spec"]["replicas"] == 5


async def test_options_of_a_deletion(server: Running, hooks: WebhookServer) -> None:
    await add_pod(server)
    await watch(server, hooks, rule("pods", operation="DELETE"))
    options = {"propagationPolicy": "Background", "gracePeriodSeconds": 0}
    assert (await server.ask("DELETE", f"{PODS}/p", options)).status == 200
    (seen,) = hooks.requests("see")
    assert seen["options"] == {
        "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", **options
    }  # fmt: skip


async def test_ephemeral_containers_and_statuses_are_updates_of_the_pod(
    server: Running, hooks: WebhookServer
) -> None:
    await add_pod(server)
    await watch(server, hooks, rule("pods/ephemeralcontainers", "pods/status"))
    kind = "application/merge-patch+json"
    body = {"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}]}}
    patched_ = await server.ask("PATCH", f"{PODS}/p/ephemeralcontainers", body, Content_Type=kind)
    assert patched_.status == 200, patched_.text
    status = {"status": {"phase": "Running"}}
    assert (await server.ask("PATCH", f"{PODS}/p/status", status, Content_Type=kind)).status == 200
    seen = hooks.requests("see")
    assert [one["subResource"] for one in seen] == ["ephemeralcontainers", "status"]
    assert {one["kind"]["kind"] for one in seen} == {"Pod"}


async def test_connections_are_shown_with_their_options(cluster: Cluster) -> None:
    """As e2e `should be able to deny attaching pod`, for each way into a pod."""
    await cluster.add_pod("p")
    async with webhooks(cluster.server.authority) as hooks:
        await watch(cluster.server, hooks, rule("pods/*", operation="CONNECT"))
        for path in (
            "p/exec?command=ls&command=-l&stdout=true&container=app",
            "p/attach?stdin=1&tty=true", "p/portforward?ports=80,443",
        ):  # fmt: skip
            async with cluster.connection(path) as (head, _, _):
                assert head.startswith("HTTP/1.1 101 "), head
        (exec_, attach, forward) = hooks.requests("see")
        assert exec_["object"] == {
            "apiVersion": "v1", "kind": "PodExecOptions", "stdout": True, "container": "app",
            "command": ["ls", "-l"],
        }  # fmt: skip
        assert exec_["kind"] == {"group": "", "version": "v1", "kind": "PodExecOptions"}
        assert (exec_["operation"], exec_["name"], exec_["options"]) == ("CONNECT", "p", None)
        assert attach["object"] == {
            "apiVersion": "v1", "kind": "PodAttachOptions", "stdin": True, "tty": True
        }  # fmt: skip
        assert forward["object"]["ports"] == [80, 443]


async def test_a_connection_is_denied_before_the_node_is_asked(
    cluster: Cluster,
) -> None:
    await cluster.add_pod("p")
    async with webhooks(cluster.server.authority) as hooks:
        hooks.answers["see"] = lambda request: {
            "allowed": request["object"]["kind"] != "PodAttachOptions",
            "status": {"message": "attaching to pod 'p' is not allowed"},
        }
        await watch(cluster.server, hooks, rule("pods/attach", "pods/proxy", operation="CONNECT"))
        code, text = await cluster.refusal("p/attach?stdout=true")
        assert code == 400
        assert "attaching to pod 'p' is not allowed" in text
        assert cluster.agent.heads == []


async def test_policies_decide_about_connections_and_change_them(
    cluster: Cluster,
) -> None:
    await cluster.add_pod("p")
    await enforce_mutation(
        cluster.server,
        json_patch("[JSONPatch{op: 'add', path: '/command/-', value: 'added'}]"),
        rule=rule("pods/exec", operation="CONNECT"),
    )
    async with cluster.connection("p/exec?command=ls&stdout=true") as (head, _, _):
        assert head.startswith("HTTP/1.1 101 ")
    assert cluster.agent.lines[-1].endswith("output=1&command=ls&command=added")
    await enforce_mutation(
        cluster.server,
        mutation("Object{command: ['x']}"),
        name="q",
        rule=rule("pods/exec", operation="CONNECT"),
    )
    code, text = await cluster.refusal("p/exec?command=ls")
    assert code == 403
    assert "PodExecOptions has no merge rules" in text


async def test_proxied_requests_are_shown_with_their_path(cluster: Cluster) -> None:
    await cluster.add_pod("p")
    server = cluster.server
    async with webhooks(server.authority) as hooks:
        hooks.answers["see"] = lambda _: {"allowed": False, "status": {"message": "no"}}
        await watch(
            server, hooks, rule("pods/proxy", "nodes/proxy", "services/proxy", operation="CONNECT")
        )
        for path in (f"{PODS}/p:80/proxy/a/b", "/api/v1/nodes/n1/proxy/pods"):
            denied = await server.ask("GET", path)
            assert denied.json["message"].endswith("denied the request: no")
        pod, node = hooks.requests("see")
        assert pod["object"] == {"apiVersion": "v1", "kind": "PodProxyOptions", "path": "/a/b"}
        assert node["object"]["kind"] == "NodeProxyOptions"


async def test_a_connection_has_no_dry_run(cluster: Cluster) -> None:
    await cluster.add_pod("p")
    code, text = await cluster.refusal("p/exec?command=ls&dryRun=All")
    assert code == 400
    assert "dryRun is not supported" in text
