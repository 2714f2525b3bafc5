"""Audit events of real requests: fields, stages and levels as upstream writes them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from moorage.apiserver.audit.policy import parse_policy
from tests.apiserver.audit.test_policy import document
from tests.apiserver.running_server import Running, serving

MAPS = "/api/v1/namespaces/default/configmaps"
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "b"}}
MINE = {"users": ["admin", "alice"]}
APPLY = {"Content_Type": "application/apply-patch+yaml"}


async def recorded(tmp_path: Path, ask: Any, *rules: Any, **policy: Any) -> list[Any]:
    """Return the events that a policy selects of what `ask` does."""
    log = tmp_path / "audit.log"
    selected = parse_policy(document(*rules, **policy))
    async with serving(tmp_path, audit_policy=selected, audit_log=log) as server:
        await ask(server)
    return [msgspec.json.decode(text) for text in log.read_bytes().splitlines()]


async def test_a_request_is_recorded_when_received_and_when_complete(tmp_path: Path) -> None:
    async def ask(server: Running) -> None:
        answer = await server.ask(
            "GET", f"{MAPS}/m?pretty=1", User_Agent="curl/8", X_Real_Ip="10.1.1.1"
        )
        assert answer.status == 404

    received, complete = await recorded(tmp_path, ask, {"level": "Metadata", **MINE})
    assert (received["stage"], complete["stage"]) == ("RequestReceived", "ResponseComplete")
    assert received["stageTimestamp"] == received["requestReceivedTimestamp"]
    assert received["auditID"] == complete["auditID"]
    assert "responseStatus" not in received
    assert "annotations" not in received
    for name in ("auditID", "requestReceivedTimestamp", "stageTimestamp"):
        del complete[name]
    assert complete == {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "stage": "ResponseComplete",
        "requestURI": f"{MAPS}/m?pretty=1",
        "verb": "get",
        "user": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
        "sourceIPs": ["10.1.1.1", "127.0.0.1"],
        "userAgent": "curl/8",
        "objectRef": {
            "resource": "configmaps", "namespace": "default", "name": "m", "apiVersion": "v1",
        },
        "responseStatus": {
            "metadata": {},
            "status": "Failure",
            "message": 'configmaps "m" not found',
            "reason": "NotFound",
            "details": {"name": "m", "kind": "configmaps"},
            "code": 404,
        },
        "annotations": {
            "authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "",
        },
    }  # fmt: skip


async def test_levels_add_the_objects(tmp_path: Path) -> None:
    async def ask(server: Running) -> None:
        assert (await server.ask("POST", MAPS, MAP)).status == 201
        patch = {"data": {"a": "c"}}
        kind = "application/merge-patch+json"
        assert (await server.ask("PATCH", f"{MAPS}/m", patch, Content_Type=kind)).status == 200
        applied = b"{apiVersion: v1, kind: ConfigMap, metadata: {name: other}}"
        path = f"{MAPS}/other?fieldManager=me"
        assert (await server.ask("PATCH", path, applied, **APPLY)).status == 201
        assert (await server.ask("GET", f"{MAPS}/m", Accept="application/yaml")).status == 200
        protobuf = "application/vnd.kubernetes.protobuf"
        assert (await server.ask("GET", f"{MAPS}/m", Accept=protobuf)).status == 200
        assert (await server.ask("GET", MAPS, Accept=protobuf)).status == 200
        assert (await server.ask("DELETE", f"{MAPS}/m")).status == 200

    created, patched, applied, yaml, message, listed, deleted = await recorded(
        tmp_path,
        ask,
        {"level": "Metadata", "verbs": ["create"], **MINE},
        {"level": "Request", "verbs": ["patch"], **MINE},
        {"level": "RequestResponse", **MINE},
        omitStages=["RequestReceived"],
        omitManagedFields=True,
    )
    assert created["objectRef"]["name"] == "m"
    assert created["responseStatus"] == {"metadata": {}, "code": 201}
    assert "requestObject" not in created
    assert patched["requestObject"] == {"data": {"a": "c"}}
    assert "responseObject" not in patched
    assert applied["requestObject"]["metadata"] == {"name": "other"}
    for shown in (yaml, message):
        assert shown["responseObject"]["kind"] == "ConfigMap"
        assert shown["responseObject"]["data"] == {"a": "c"}
        assert "managedFields" not in shown["responseObject"]["metadata"]
    assert listed["annotations"]["audit.k8s.io/truncated"] == "true"
    assert deleted["responseStatus"]["status"] == "Success"
    assert deleted["responseObject"]["kind"] == "Status"


async def test_events_are_counted(tmp_path: Path) -> None:
    async def ask(server: Running) -> None:
        assert (await server.ask("GET", MAPS)).status == 200
        text = ""
        async with asyncio.timeout(20):
            while "apiserver_audit_event_total 2\n" not in text:
                text = await metrics(server)
        assert 'apiserver_audit_error_total{plugin="log"} 0\n' in text

    async def metrics(server: Running) -> str:
        return (await server.ask("GET", "/metrics")).text

    rule = {"level": "Metadata", "resources": [{"resources": ["configmaps"]}]}
    assert len(await recorded(tmp_path, ask, rule)) == 2


async def test_a_refusal_is_recorded_with_the_decision(tmp_path: Path) -> None:
    async def ask(server: Running) -> None:
        assert (await server.ask("GET", MAPS, token="alice-token")).status == 403

    (event,) = await recorded(
        tmp_path, ask, {"level": "Metadata", **MINE}, omitStages=["RequestReceived"]
    )
    assert event["annotations"]["authorization.k8s.io/decision"] == "forbid"
    assert event["responseStatus"]["reason"] == "Forbidden"


async def test_a_failed_authentication_is_recorded_once(tmp_path: Path) -> None:
    async def ask(server: Running) -> None:
        assert (await server.ask("GET", MAPS, token="wrong")).status == 401
        assert (await server.ask("GET", MAPS, token="")).status == 401

    wrong, none = await recorded(tmp_path, ask, {"level": "Metadata", "verbs": ["list"]})
    assert wrong["stage"] == none["stage"] == "ResponseStarted"
    assert wrong["user"] == {}
    assert wrong["responseStatus"] == {
        "metadata": {}, "message": "Authentication failed, attempted: bearer", "code": 401
    }  # fmt: skip
    message = "Authentication failed, no credentials provided"
    assert none["responseStatus"]["message"] == message


async def test_an_impersonated_user_stands_beside_the_real_one(tmp_path: Path) -> None:
    async def ask(server: Running) -> None:
        answer = await server.ask("GET", MAPS, Impersonate_User="bob", Impersonate_Group="ops")
        assert answer.status == 403

    (event,) = await recorded(
        tmp_path, ask, {"level": "Metadata", "users": ["admin"]}, omitStages=["RequestReceived"]
    )
    assert event["user"]["username"] == "admin"
    assert event["impersonatedUser"] == {
        "username": "bob", "groups": ["ops", "system:authenticated"]
    }  # fmt: skip


async def test_a_watch_is_recorded_when_its_answer_starts(tmp_path: Path) -> None:
    async def ask(server: Running) -> None:
        assert (await server.ask("GET", f"{MAPS}?watch=1&timeoutSeconds=1")).status == 200

    events = await recorded(tmp_path, ask, {"level": "RequestResponse", **MINE})
    stages = [event["stage"] for event in events]
    assert stages == ["RequestReceived", "ResponseStarted", "ResponseComplete"]
    assert {event["verb"] for event in events} == {"watch"}
    assert events[1]["stageTimestamp"] < events[2]["stageTimestamp"]


async def test_a_body_that_is_no_object_leaves_an_event_without_it(tmp_path: Path) -> None:
    async def ask(server: Running) -> None:
        json = "application/json"
        assert (await server.ask("POST", MAPS, b"{", Content_Type=json)).status == 400

    (event,) = await recorded(
        tmp_path, ask, {"level": "Request", **MINE}, omitStages=["RequestReceived"]
    )
    assert event["responseStatus"]["code"] == 400
    assert "requestObject" not in event
    assert event["annotations"]["audit.k8s.io/truncated"] == "true"


async def test_annotations_of_admission_are_recorded(tmp_path: Path) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "hostNetwork": True},
    }

    async def ask(server: Running) -> None:
        labels = {"pod-security.kubernetes.io/audit": "baseline"}
        space = {"apiVersion": "v1", "kind": "Namespace"}
        space["metadata"] = {"name": "audited", "labels": labels}  # type: ignore[assignment]
        assert (await server.ask("POST", "/api/v1/namespaces", space)).status == 201
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        path = "/api/v1/namespaces/audited"
        assert (await server.ask("POST", f"{path}/serviceaccounts", account)).status == 201
        answer = await server.ask("POST", f"{path}/pods", pod)
        assert answer.status == 201, answer.text

    (event,) = await recorded(
        tmp_path,
        ask,
        {"level": "Metadata", "resources": [{"resources": ["pods"]}]},
        omitStages=["RequestReceived"],
    )
    assert any(name.startswith("pod-security.kubernetes.io/") for name in event["annotations"])
