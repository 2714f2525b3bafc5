"""Admission webhooks, called over TLS for writes through the API."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from moorage.apiserver.server.request_deadlines import CallLimits
from moorage.linux.child import Child
from tests.apiserver.running_server import Answer, Running, serving
from tests.apiserver.webhook_server import (
    ADMISSION,
    CONFIG_MAPS,
    MUTATING,
    VALIDATING,
    WebhookServer,
    patched,
    webhooks,
)

MAPS = "/api/v1/namespaces/default/configmaps"
MERGE = "application/merge-patch+json"
ALLOWED: dict[str, Any] = {"allowed": True}


@pytest.fixture
def call_limits() -> CallLimits:
    return CallLimits()


@pytest.fixture
async def server(tmp_path: Path, call_limits: CallLimits) -> AsyncIterator[Running]:
    async with serving(tmp_path, call_limits=call_limits) as running:
        yield running
    assert not Child.awaited


@pytest.fixture
async def hooks(server: Running) -> AsyncIterator[WebhookServer]:
    async with webhooks(server.authority) as served:
        yield served


async def configure(
    server: Running, hooks: WebhookServer, where: str, *hook: dict[str, Any], name: str = "c"
) -> None:
    """Create a configuration; it is in force with the answer."""
    created = await server.ask("POST", where, hooks.configuration(name, *hook))
    assert created.status == 201, created.text
    assert "Warning" not in created.headers


async def add(server: Running, name: str = "m", query: str = "", **data: str) -> Answer:
    body = {"metadata": {"name": name}, "data": data or {"own": "0"}}
    return await server.ask("POST", MAPS + query, body)


def put(key: str, value: str) -> dict[str, str]:
    return {"op": "add", "path": f"/data/{key}", "value": value}


async def test_a_webhook_denies_a_write_in_its_words(server: Running, hooks: WebhookServer) -> None:
    details = {"causes": [{"message": "m", "field": "f", "reason": "r"}]}
    hooks.answers["deny"] = lambda _: {
        "allowed": False, "status": {"code": 418, "message": "no", "reason": "Teapot",
                                     "details": details},
    }  # fmt: skip
    await configure(server, hooks, VALIDATING, {"path": "deny"})
    denied = await add(server)
    assert denied.status == 418
    assert denied.json == {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": 'admission webhook "deny.hooks.example" denied the request: no',
        "reason": "Teapot", "details": details, "code": 418,
    }  # fmt: skip
    assert (await server.ask("GET", f"{MAPS}/m")).status == 404


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (None, 400, " without explanation"),
        ({"code": 200}, 400, " without explanation"),
        ({"code": 99999, "reason": "Why"}, 400, ": Why"),
        ({"code": -1, "message": "m"}, 400, ": m"),
        ({"code": 503, "message": "m", "details": {"retryAfterSeconds": 7}}, 503, ": m"),
    ],
)
async def test_codes_and_texts_of_denials(
    server: Running, hooks: WebhookServer, status: Any, code: int, message: str
) -> None:
    hooks.answers["deny"] = lambda _: {"allowed": False, "status": status}
    await configure(server, hooks, VALIDATING, {"path": "deny"})
    denied = await add(server)
    assert denied.status == code
    expected = f'admission webhook "deny.hooks.example" denied the request{message}'
    assert denied.json["message"] == expected


async def test_what_a_webhook_is_asked(server: Running, hooks: WebhookServer) -> None:
    hooks.answers["see"] = lambda _: ALLOWED
    await configure(server, hooks, VALIDATING, {"path": "see"})
    assert (await add(server, query="?fieldManager=me", a="b")).status == 201
    change = {"data": {"a": "c"}}
    assert (await server.ask("PATCH", f"{MAPS}/m", change, Content_Type=MERGE)).status == 200
    assert (await server.ask("DELETE", f"{MAPS}/m")).status == 200
    path, review = hooks.asked[0]
    assert (path, review["kind"]) == ("see", "AdmissionReview")
    assert review["apiVersion"] == "admission.k8s.io/v1"
    created, updated, deleted = hooks.requests("see")
    kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
    resource = {"group": "", "version": "v1", "resource": "configmaps"}
    assert created["kind"] == created["requestKind"] == kind
    assert created["resource"] == created["requestResource"] == resource
    assert (created["name"], created["namespace"]) == ("m", "default")
    assert (created["operation"], created["dryRun"]) == ("CREATE", False)
    assert created["userInfo"]["username"] == "admin"
    assert created["object"]["kind"] == "ConfigMap"
    assert created["object"]["data"] == {"a": "b"}
    assert created["oldObject"] is None
    assert created["options"] == {
        "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me",
    }  # fmt: skip
    assert updated["operation"] == "UPDATE"
    assert (updated["object"]["data"], updated["oldObject"]["data"]) == ({"a": "c"}, {"a": "b"})
    assert (deleted["operation"], deleted["object"]) == ("DELETE", None)
    assert deleted["oldObject"]["data"] == {"a": "c"}
    assert len({request["uid"] for request in (created, updated, deleted)}) == 3


async def test_reviews_have_the_wire_form_of_upstream(
    server: Running, hooks: WebhookServer
) -> None:
    """What is empty is left out, but for what Go always writes; objects that are not are null."""
    hooks.answers["see"] = lambda _: ALLOWED
    rules = {
        "operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"],
        "resources": ["configmaps", "namespaces", "namespaces/finalize", "pods/exec"],
    }  # fmt: skip
    await configure(server, hooks, VALIDATING, {"path": "see", "rules": [rules]})
    query = "?fieldManager=me&fieldValidation=Strict&dryRun=All"
    assert (await add(server, query=query, a="b")).status == 201
    space = {"metadata": {"name": "n", "finalizers": ["a.b/c"]}}
    assert (await server.ask("POST", "/api/v1/namespaces", space)).status == 201
    options = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
    assert (await server.ask("DELETE", "/api/v1/namespaces/n", options)).status == 200
    reviews = [review for _, review in hooks.asked]
    assert [set(review) for review in reviews] == [{"kind", "apiVersion", "request"}] * 3
    always = {
        "uid", "kind", "resource", "requestKind", "requestResource", "operation", "userInfo",
        "dryRun", "object", "oldObject", "options", "name", "namespace",
    }  # fmt: skip
    requests = hooks.requests("see")
    assert [set(request) for request in requests] == [always] * 3
    for request in requests:
        assert request["userInfo"] == {
            "username": "admin", "groups": ["system:masters", "system:authenticated"],
        }  # fmt: skip
        assert set(request["kind"]) == {"group", "version", "kind"}
        assert set(request["resource"]) == {"group", "version", "resource"}
    created, made, deleted = requests
    assert created["dryRun"] is True
    assert created["options"] == {
        "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"],
        "fieldManager": "me", "fieldValidation": "Strict",
    }  # fmt: skip
    assert made["options"] == {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}
    assert (made["name"], made["namespace"]) == ("n", "n")
    assert deleted["object"] is None
    assert deleted["options"] == {
        "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", **options,
    }  # fmt: skip


async def test_a_review_of_a_subresource_of_a_cluster_scoped_object(
    server: Running, hooks: WebhookServer
) -> None:
    hooks.answers["see"] = lambda _: ALLOWED
    rules = {
        "operations": ["UPDATE"], "apiGroups": [""], "apiVersions": ["v1"],
        "resources": ["nodes/status"],
    }  # fmt: skip
    await configure(server, hooks, VALIDATING, {"path": "see", "rules": [rules]})
    node = {"metadata": {"name": "n1"}}
    assert (await server.ask("POST", "/api/v1/nodes", node)).status == 201
    change = {"status": {"phase": "x"}}
    path = "/api/v1/nodes/n1/status"
    changed = await server.ask("PATCH", path, change, token="agent-token", Content_Type=MERGE)
    assert changed.status == 200, changed.text
    (request,) = hooks.requests("see")
    assert (request["subResource"], request["requestSubResource"]) == ("status", "status")
    assert (request["name"], "namespace" in request) == ("n1", False)


async def test_webhooks_change_objects_one_after_the_other(
    server: Running, hooks: WebhookServer
) -> None:
    hooks.answers["first"] = lambda _: patched(put("first", "1"))
    hooks.answers["second"] = lambda request: patched(
        put("seen", ",".join(request["object"]["data"]))
    )
    await configure(server, hooks, MUTATING, {"path": "first"}, {"path": "second"})
    made = await add(server)
    assert made.json["data"] == {"own": "0", "first": "1", "seen": "own,first"}
    assert len(hooks.asked) == 2


async def test_what_a_webhook_writes_is_validated_and_defaulted(
    server: Running, hooks: WebhookServer
) -> None:
    rule = {**CONFIG_MAPS, "resources": ["services"]}
    services = "/api/v1/namespaces/default/services"
    port = {"op": "add", "path": "/spec/ports/-", "value": {"name": "b", "port": 81}}
    hooks.answers["port"] = lambda _: patched(port)
    await configure(server, hooks, MUTATING, {"path": "port", "rules": [rule]})
    body = {"metadata": {"name": "s"}, "spec": {"ports": [{"name": "a", "port": 80}]}}
    made = await server.ask("POST", services, body)
    assert made.status == 201, made.text
    assert made.json["spec"]["ports"][1] == {
        "name": "b", "port": 81, "protocol": "TCP", "targetPort": 81
    }  # fmt: skip
    # The cluster IP is chosen after the webhooks, and once.
    assert "clusterIP" not in hooks.requests("port")[0]["object"]["spec"]
    port["value"] = {"name": "b", "port": 0}
    refused = await server.ask("POST", services, {**body, "metadata": {"name": "t"}})
    assert refused.status == 422
    assert "spec.ports[1].port" in refused.json["message"]


async def test_a_webhook_cannot_change_what_the_server_decides(
    server: Running, hooks: WebhookServer
) -> None:
    fields = {"name": "other", "namespace": "kube-system", "uid": "u", "generation": 7,
              "resourceVersion": "9", "creationTimestamp": "2000-01-01T00:00:00Z"}  # fmt: skip
    hooks.answers["take"] = lambda _: patched(
        *({"op": "add", "path": f"/metadata/{key}", "value": value}
          for key, value in fields.items()),
        {"op": "remove", "path": "/metadata/managedFields"},
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
    )  # fmt: skip
    await configure(server, hooks, MUTATING, {"path": "take"})
    metadata = (await add(server)).json["metadata"]
    assert metadata["labels"] == {"a": "b"}
    assert metadata["managedFields"]
    assert all(metadata.get(key) != value for key, value in fields.items())
    assert (metadata["name"], metadata["namespace"]) == ("m", "default")


async def test_a_pod_that_a_webhook_gives_a_class_has_its_overhead(
    server: Running, hooks: WebhookServer
) -> None:
    """The plugins run again after a change, so that the pod is what its class says."""
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await server.ask("POST", accounts, {"metadata": {"name": "default"}})
    overhead = {"podFixed": {"memory": "9Mi"}}
    made = await server.ask(
        "POST", "/apis/node.k8s.io/v1/runtimeclasses",
        {"metadata": {"name": "vm"}, "handler": "vm", "overhead": overhead},
    )  # fmt: skip
    assert made.status == 201
    side = {"op": "add", "path": "/spec/containers/-", "value": {"name": "side", "image": "i"}}
    name = {"op": "add", "path": "/spec/runtimeClassName", "value": "vm"}
    hooks.answers["class"] = lambda _: patched(name, side)
    rule = {**CONFIG_MAPS, "resources": ["pods"]}
    await configure(server, hooks, MUTATING, {"path": "class", "rules": [rule]})
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    pod = (await server.ask("POST", "/api/v1/namespaces/default/pods", body)).json
    assert pod["spec"]["overhead"] == {"memory": "9Mi"}
    token = [volume["name"] for volume in pod["spec"]["volumes"]]
    assert len(token) == 1
    mounts = [container["volumeMounts"] for container in pod["spec"]["containers"]]
    assert [[mount["name"] for mount in own] for own in mounts] == [token, token]
    assert len(hooks.asked) == 1


async def test_a_webhook_is_called_again_after_a_later_change_if_it_asks_for_it(
    server: Running, hooks: WebhookServer
) -> None:
    for path in ("again", "once"):
        hooks.answers[path] = lambda _: ALLOWED
    hooks.answers["late"] = lambda _: patched(put("late", "1"))
    await configure(
        server, hooks, MUTATING,
        {"path": "again", "reinvocationPolicy": "IfNeeded"}, {"path": "once"}, {"path": "late"},
    )  # fmt: skip
    assert (await add(server)).status == 201
    assert [path for path, _ in hooks.asked] == ["again", "once", "late", "again"]
    assert hooks.requests("again")[1]["object"]["data"] == {"own": "0", "late": "1"}


async def test_webhooks_that_change_for_ever_are_called_twice(
    server: Running, hooks: WebhookServer
) -> None:
    numbers = iter(range(100))
    grow = lambda _: patched(put(f"k{next(numbers)}", "x"))  # noqa: E731
    hooks.answers |= {"a": grow, "b": grow}
    again = {"reinvocationPolicy": "IfNeeded"}
    await configure(server, hooks, MUTATING, {"path": "a", **again}, {"path": "b", **again})
    made = await add(server)
    assert [path for path, _ in hooks.asked] == ["a", "b", "a", "b"]
    assert sorted(made.json["data"]) == ["k0", "k1", "k2", "k3", "own"]


async def test_a_webhook_that_a_change_selects_is_called(
    server: Running, hooks: WebhookServer
) -> None:
    label = {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}
    hooks.answers["label"] = lambda _: patched(label)
    hooks.answers["labelled"] = lambda _: ALLOWED
    selector = {"objectSelector": {"matchLabels": {"a": "b"}}}
    await configure(server, hooks, MUTATING, {"path": "label"}, {"path": "labelled", **selector})
    assert (await add(server)).status == 201
    assert [path for path, _ in hooks.asked] == ["label", "labelled"]


@pytest.mark.parametrize("where", [MUTATING, VALIDATING])
async def test_selectors_and_rules(server: Running, hooks: WebhookServer, where: str) -> None:
    for path in ("namespace", "object", "operation", "all"):
        hooks.answers[path] = lambda _: ALLOWED
    await configure(
        server, hooks, where,
        {"path": "namespace", "namespaceSelector": {"matchLabels": {"team": "x"}}},
        {"path": "object", "objectSelector": {"matchLabels": {"a": "b"}}},
        {"path": "operation", "rules": [{**CONFIG_MAPS, "operations": ["UPDATE"]}]},
        {"path": "all", "rules": [{**CONFIG_MAPS, "resources": ["*"], "apiGroups": ["*"],
                                   "apiVersions": ["*"], "operations": ["*"]}]},
    )  # fmt: skip
    assert (await add(server)).status == 201
    assert [path for path, _ in hooks.asked] == ["all"]
    hooks.asked.clear()
    change = {"metadata": {"labels": {"a": "b"}}}
    await server.ask("PATCH", f"{MAPS}/m", change, Content_Type=MERGE)
    assert [path for path, _ in hooks.asked] == ["object", "operation", "all"]
    hooks.asked.clear()
    change = {"metadata": {"labels": {"team": "x"}}}
    await server.ask("PATCH", "/api/v1/namespaces/default", change, Content_Type=MERGE)
    await add(server, "n")
    assert [path for path, _ in hooks.asked] == ["all", "namespace", "all"]


async def test_match_conditions(server: Running, hooks: WebhookServer) -> None:
    hooks.answers["see"] = lambda _: ALLOWED
    conditions = [
        {"name": "not-agents", "expression": "!request.userInfo.username.startsWith('system:')"},
        {"name": "has-a", "expression": "object == null || 'a' in object.data"},
    ]
    await configure(server, hooks, VALIDATING, {"path": "see", "matchConditions": conditions})
    assert (await add(server, b="1")).status == 201
    assert hooks.asked == []
    assert (await add(server, "n", a="1")).status == 201
    assert len(hooks.asked) == 1
    # No value: the write is refused, as the failure policy says.
    refused = await server.ask("POST", MAPS, {"metadata": {"name": "o"}})
    assert refused.status == 403
    assert "no such key: data" in refused.json["message"]


async def test_a_match_condition_without_a_value_is_ignored_by_policy(
    server: Running, hooks: WebhookServer
) -> None:
    condition = {"name": "a", "expression": "object.data.missing == 'x'"}
    hook = {"path": "see", "matchConditions": [condition], "failurePolicy": "Ignore"}
    await configure(server, hooks, MUTATING, hook)
    assert (await add(server, a="1")).status == 201
    assert hooks.asked == []


async def test_a_match_condition_that_does_not_compile_is_refused(
    server: Running, hooks: WebhookServer
) -> None:
    condition = {"name": "a", "expression": "object.data ==="}
    body = hooks.configuration("c", {"path": "see", "matchConditions": [condition]})
    refused = await server.ask("POST", VALIDATING, body)
    assert refused.status == 422
    assert "webhooks[0].matchConditions[0].expression" in refused.json["message"]
    assert "compilation failed" in refused.json["message"]


_FAILURES = {
    "not-json": (b"hello", "received invalid webhook response: not an AdmissionReview"),
    "deep": (b'{"x":' + b"[" * 100_000, "received invalid webhook response: not an Admission"),
    "empty": (b"{}", "received invalid webhook response: webhook response was absent"),
    "uid": ({"uid": "other", **ALLOWED}, "invalid webhook response: expected response.uid="),
    "types": (b'{"response": {"allowed": "yes"}}', "received invalid webhook response: not an"),
    "patch-type": ({**ALLOWED, "patch": "W10="},
                   "webhook returned response.patch but not response.patchType"),
    "no-patch": ({**ALLOWED, "patchType": "JSONPatch"},
                 "webhook returned response.patchType but not response.patch"),
    "other-patch": ({**ALLOWED, "patch": "W10=", "patchType": "Merge"},
                    'unsupported patch type "Merge"'),
    "base64": ({**ALLOWED, "patch": "%%", "patchType": "JSONPatch"},
               "received undecodable patch in webhook response: response.patch is not base64"),
    "no-list": ({**ALLOWED, "patch": base64.b64encode(b"{}").decode(), "patchType": "JSONPatch"},
                "received undecodable patch in webhook response"),
    "status": (lambda: web.Response(status=500, text="broken"),
               'failed to call webhook: an error on the server ("broken") has prevented the '
               "request from succeeding"),
    "not-found": (lambda: web.Response(status=404),
                  "failed to call webhook: the server could not find the requested resource"),
    "redirect": (lambda: web.Response(status=302, headers={"Location": "https://127.0.0.1:1/"}),
                 "failed to call webhook: the server rejected our request"),
}  # fmt: skip


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
@pytest.mark.parametrize("failure", sorted(_FAILURES))
async def test_answers_that_are_none(
    server: Running, hooks: WebhookServer, failure: str, policy: str
) -> None:
    answer: Any
    answer, text = _FAILURES[failure]
    # A response can be sent once.
    hooks.answers[failure] = lambda _: answer() if callable(answer) else answer
    await configure(server, hooks, MUTATING, {"path": failure, "failurePolicy": policy})
    written = await add(server, a="b")
    if policy == "Ignore":
        assert (written.status, written.json["data"]) == (201, {"a": "b"})
        return
    assert written.status == 500
    start = f'Internal error occurred: failed calling webhook "{failure}.hooks.example": '
    assert written.json["message"].startswith(start)
    assert text in written.json["message"]


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "remove", "path": "/data/none"}],
        [{"op": "test", "path": "/data/a", "value": "c"}],
        [{"op": "dance", "path": "/data/a"}],
        [{"op": "replace", "path": "", "value": 7}],
        [{"op": "replace", "path": "/kind", "value": "Secret"}],
        [{"op": "replace", "path": "/apiVersion", "value": "v2"}],
        [{"op": "remove", "path": "/metadata"}],
        [{"op": "add", "path": "/data", "value": ["x"]}],
        [{"op": "add", "path": "/data/a", "value": json.loads("[" * 200 + "]" * 200)}],
    ],
)
async def test_patches_that_cannot_be_applied(
    server: Running, hooks: WebhookServer, operations: list[Any]
) -> None:
    hooks.answers["patch"] = lambda _: patched(*operations)
    hook = {"path": "patch", "failurePolicy": "Ignore"}
    await configure(server, hooks, MUTATING, hook)
    refused = await add(server, a="b")
    assert (refused.status, refused.json["reason"]) == (500, "InternalError")
    assert refused.json["message"].startswith("Internal error occurred: ")


async def test_a_deletion_cannot_be_changed(server: Running, hooks: WebhookServer) -> None:
    assert (await add(server)).status == 201
    hooks.answers["patch"] = lambda _: patched(put("a", "b"))
    await configure(server, hooks, MUTATING, {"path": "patch"})
    refused = await server.ask("DELETE", f"{MAPS}/m")
    assert refused.status == 500
    assert "attempted to modify the object, which is not supported" in refused.json["message"]


async def test_a_large_patch_is_applied_in_the_background(
    server: Running, hooks: WebhookServer
) -> None:
    hooks.answers["grow"] = lambda _: patched(put("big", "x" * 900_000))
    await configure(server, hooks, MUTATING, {"path": "grow"})
    made = await add(server)
    assert (made.status, len(made.json["data"]["big"])) == (201, 900_000)


@pytest.mark.parametrize("call_limits", [CallLimits(answer_bytes=100_000)])
async def test_an_answer_is_bounded(server: Running, hooks: WebhookServer) -> None:
    hooks.answers["huge"] = lambda _: b" " * 200_000
    await configure(server, hooks, VALIDATING, {"path": "huge"})
    refused = await add(server)
    assert refused.status == 500
    assert "the answer has more than 100000 bytes" in refused.json["message"]


async def test_a_webhook_that_is_silent_times_out(server: Running, hooks: WebhookServer) -> None:
    async def wait(_: Any) -> Any:
        await asyncio.Event().wait()

    hooks.answers["silent"] = wait
    await configure(server, hooks, VALIDATING, {"path": "silent", "timeoutSeconds": 1})
    refused = await add(server)
    assert refused.status == 500
    assert refused.json["message"] == (
        'Internal error occurred: failed calling webhook "silent.hooks.example": failed to call '
        f'webhook: Post "{hooks.url}/silent?timeout=1s": context deadline exceeded'
    )


async def test_an_answer_byte_by_byte_ends_with_the_timeout(
    server: Running, hooks: WebhookServer
) -> None:
    async def drip() -> AsyncIterator[bytes]:
        never = asyncio.Event()
        while True:
            yield b" "
            # A pause between bytes, as short as the connection allows.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    await never.wait()

    hooks.answers["drip"] = lambda _: web.Response(body=drip())
    await configure(server, hooks, MUTATING, {"path": "drip", "timeoutSeconds": 1})
    refused = await add(server)
    assert refused.status == 500
    assert "context deadline exceeded" in refused.json["message"]


@pytest.mark.parametrize(
    ("head", "text"),
    [
        ({"kind": "Pod"}, "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview"),
        ({"apiVersion": "admission.k8s.io/v2"}, "got admission.k8s.io/v2, Kind=AdmissionReview"),
    ],
)
async def test_an_answer_of_another_kind_is_no_answer(
    server: Running, hooks: WebhookServer, head: dict[str, str], text: str
) -> None:
    def lie(request: dict[str, Any]) -> bytes:
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", **head}
        return json.dumps({**review, "response": {"uid": request["uid"], **ALLOWED}}).encode()

    hooks.answers["lie"] = lie
    await configure(server, hooks, VALIDATING, {"path": "lie"})
    refused = await add(server)
    assert refused.status == 500
    assert text in refused.json["message"]


async def test_a_patch_of_too_many_operations_is_not_applied(
    server: Running, hooks: WebhookServer
) -> None:
    hooks.answers["many"] = lambda _: patched(*[put("a", "b")] * 10_001)
    await configure(server, hooks, MUTATING, {"path": "many"})
    refused = await add(server)
    assert refused.status == 500
    assert "more than 10000 operations" in refused.json["message"]


async def test_an_object_that_copies_of_itself_fill_is_refused(
    server: Running, hooks: WebhookServer
) -> None:
    doubling = [{"op": "copy", "from": "/data", "path": f"/data/x{index}"} for index in range(40)]
    hooks.answers["double"] = lambda _: patched(*doubling)
    await configure(server, hooks, MUTATING, {"path": "double"})
    assert (await add(server)).status == 500
    assert (await server.ask("DELETE", f"{MUTATING}/c")).status == 200
    assert (await add(server)).status == 201


async def test_a_webhook_that_writes_what_it_is_asked_about_ends_with_its_timeout(
    server: Running, hooks: WebhookServer
) -> None:
    """Each call of the webhook makes the write that it is called for again."""

    async def loop(request: dict[str, Any]) -> dict[str, Any]:
        depth = len(request["name"])
        if depth < 30:
            await server.ask("POST", MAPS, {"metadata": {"name": "m" * (depth + 1)}})
        return ALLOWED

    hooks.answers["loop"] = loop
    hook = {"path": "loop", "timeoutSeconds": 1, "failurePolicy": "Ignore"}
    await configure(server, hooks, VALIDATING, hook)
    assert (await add(server)).status == 201


async def test_a_webhook_that_is_not_there(server: Running, hooks: WebhookServer) -> None:
    hook = hooks.webhook("none", clientConfig={"url": "https://127.0.0.1:1/x"})
    body = {"metadata": {"name": "c"}, "webhooks": [hook]}
    assert (await server.ask("POST", VALIDATING, body)).status == 201
    refused = await add(server)
    assert refused.status == 500
    assert (
        'failed to call webhook: Post "https://127.0.0.1:1/x?timeout=10s": '
        in (refused.json["message"])
    )
    # Configurations are never subject to webhooks: this one can be deleted.
    assert (await server.ask("DELETE", f"{VALIDATING}/c")).status == 200
    assert (await add(server)).status == 201


async def test_a_certificate_of_another_authority_is_refused(
    server: Running, hooks: WebhookServer
) -> None:
    hooks.answers["see"] = lambda _: ALLOWED
    hook = hooks.webhook("see", clientConfig={"url": f"{hooks.url}/see"})
    body = {"metadata": {"name": "c"}, "webhooks": [hook]}
    assert (await server.ask("POST", VALIDATING, body)).status == 201
    refused = await add(server)
    assert refused.status == 500
    assert "CERTIFICATE_VERIFY_FAILED" in refused.json["message"]
    assert hooks.asked == []


@pytest.mark.parametrize(
    ("service", "text"),
    [
        ({"name": "none"}, 'services "none" not found'),
        ({"name": "s"}, 'no endpoints available for service "s"'),
        ({"name": "s", "port": 99}, 'no service port 99 found for service "s"'),
    ],
)
async def test_a_service_without_pods(
    server: Running, hooks: WebhookServer, service: dict[str, Any], text: str
) -> None:
    spec = {"ports": [{"port": 443}], "selector": {"a": "b"}}
    services = "/api/v1/namespaces/default/services"
    await server.ask("POST", services, {"metadata": {"name": "s"}, "spec": spec})
    config = {"service": {"namespace": "default", "path": "/x", **service}}
    body = {"metadata": {"name": "c"}, "webhooks": [hooks.webhook("see", clientConfig=config)]}
    assert (await server.ask("POST", VALIDATING, body)).status == 201
    refused = await add(server)
    port = service.get("port", 443)
    url = f"https://{service['name']}.default.svc:{port}/x?timeout=10s"
    assert refused.json["message"].endswith(f'failed to call webhook: Post "{url}": {text}')


async def test_dry_runs_reach_webhooks_without_side_effects(
    server: Running, hooks: WebhookServer
) -> None:
    hooks.answers["see"] = lambda _: ALLOWED
    await configure(server, hooks, VALIDATING, {"path": "see", "sideEffects": "NoneOnDryRun"})
    assert (await add(server, query="?dryRun=All")).status == 201
    (request,) = hooks.requests("see")
    assert request["dryRun"] is True
    assert request["options"]["dryRun"] == ["All"]


async def test_reviews_of_the_old_version(server: Running, hooks: WebhookServer) -> None:
    hooks.answers["old"] = lambda _: {**patched(put("a", "b")), "uid": "any", "patchType": None}
    versions = ["v2", "v1beta1", "v1"]
    await configure(server, hooks, MUTATING, {"path": "old", "admissionReviewVersions": versions})
    assert (await add(server, b="c")).json["data"] == {"a": "b", "b": "c"}
    assert hooks.asked[0][1]["apiVersion"] == "admission.k8s.io/v1beta1"


async def test_warnings_reach_the_client(server: Running, hooks: WebhookServer) -> None:
    text = 'mind "this"\r\nX-Header: no'
    hooks.answers["warn"] = lambda _: {**ALLOWED, "warnings": [text]}
    await configure(server, hooks, VALIDATING, {"path": "warn"})
    made = await add(server)
    assert made.status == 201
    assert made.headers["Warning"].startswith('299 - "mind \\"this\\"')
    assert "X-Header" not in made.headers


async def test_a_webhook_gets_the_version_of_its_rule(
    server: Running, hooks: WebhookServer
) -> None:
    hooks.answers["see"] = lambda _: ALLOWED
    rule = {"operations": ["*"], "apiGroups": ["node.k8s.io"], "apiVersions": ["v1alpha1"],
            "resources": ["runtimeclasses"]}  # fmt: skip
    await configure(server, hooks, VALIDATING, {"path": "see", "rules": [rule]})
    classes = "/apis/node.k8s.io/v1/runtimeclasses"
    made = await server.ask("POST", classes, {"metadata": {"name": "c"}, "handler": "h"})
    assert made.status == 201, made.text
    (request,) = hooks.requests("see")
    assert request["kind"]["version"] == "v1alpha1"
    assert request["requestKind"]["version"] == "v1"
    assert request["object"]["spec"] == {"runtimeHandler": "h"}


async def test_validating_webhooks_are_called_together(
    server: Running, hooks: WebhookServer
) -> None:
    both = asyncio.Barrier(2)

    async def wait(_: Any) -> dict[str, Any]:
        async with both:
            return ALLOWED

    hooks.answers |= {"a": wait, "b": wait}
    await configure(server, hooks, VALIDATING, {"path": "a"}, {"path": "b"})
    assert (await add(server)).status == 201


async def test_configurations_are_in_the_order_of_their_names_and_end_at_once(
    server: Running, hooks: WebhookServer
) -> None:
    for path in ("x", "y"):
        hooks.answers[path] = lambda _: ALLOWED
    await configure(server, hooks, MUTATING, {"path": "y"}, name="b")
    await configure(server, hooks, MUTATING, {"path": "x"}, name="a")
    assert (await add(server)).status == 201
    assert [path for path, _ in hooks.asked] == ["x", "y"]
    assert (await server.ask("DELETE", f"{MUTATING}/a")).status == 200
    hooks.asked.clear()
    assert (await add(server, "n")).status == 201
    assert [path for path, _ in hooks.asked] == ["y"]


async def test_configurations_and_policies_are_exempt(
    server: Running, hooks: WebhookServer
) -> None:
    rule = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
    hooks.answers["deny"] = lambda _: {"allowed": False}
    await configure(server, hooks, VALIDATING, {"path": "deny", "rules": [rule]})
    policy = {"metadata": {"name": "p"}, "spec": {"validations": [{"expression": "true"}]}}
    policy["spec"]["matchConstraints"] = {"resourceRules": [CONFIG_MAPS]}  # type: ignore[index]
    made = await server.ask("POST", f"{ADMISSION}/validatingadmissionpolicies", policy)
    assert made.status == 201, made.text
    assert (await add(server)).status == 400
    assert (await server.ask("DELETE", f"{VALIDATING}/c")).status == 200
