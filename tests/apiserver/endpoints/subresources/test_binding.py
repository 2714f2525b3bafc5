"""Binding a pod to a node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.endpoints.subresources.pods import CORE, MERGE, POD, add_pod, stored
from tests.apiserver.running_server import Answer, Running, serving


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path) as running:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        assert (await running.ask("POST", f"{CORE}/serviceaccounts", account)).status == 201
        yield running


async def bind(server: Running, name: str = "p", kind: str = "Node", **meta: Any) -> Answer:
    binding = {
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **meta},
        "target": {"kind": kind, "name": "n1"},
    }  # fmt: skip
    return await server.ask("POST", f"{POD}/binding", binding)


async def test_a_binding_gives_the_pod_its_node_labels_and_condition(server: Running) -> None:
    await add_pod(server)
    uid = (await stored(server))["metadata"]["uid"]
    done = await bind(server, uid=uid, labels={"both": "new"}, annotations={"a": "b"})
    assert (done.status, done.json["status"]) == (201, "Success")
    pod = await stored(server)
    assert pod["spec"]["nodeName"] == "n1"
    assert pod["metadata"]["labels"] == {"kept": "1", "both": "new"}
    assert pod["metadata"]["annotations"] == {"a": "b"}
    (condition,) = pod["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert condition["lastTransitionTime"].endswith("Z")


async def test_a_binding_of_the_older_path_names_its_pod_in_the_body(server: Running) -> None:
    await add_pod(server)
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
    done = await server.ask("POST", f"{CORE}/bindings", binding)
    assert (done.status, done.json["status"]) == (201, "Success")
    assert (await stored(server))["spec"]["nodeName"] == "n1"
    again = await server.ask("POST", f"{CORE}/bindings", binding)
    assert (again.status, again.json["details"]["name"]) == (409, "p")
    del binding["target"]["name"]
    refused = await server.ask("POST", f"{CORE}/bindings", binding)
    assert (refused.status, refused.json["details"]["causes"][0]["field"]) == (422, "target.name")
    nameless = await server.ask("POST", f"{CORE}/bindings", {"target": {"name": "n1"}})
    assert nameless.status == 400, nameless.text
    assert (await server.ask("GET", f"{CORE}/bindings")).status == 405


async def test_a_pod_that_changes_meanwhile_is_bound_all_the_same(server: Running) -> None:
    await add_pod(server)
    changes = [
        server.ask("PATCH", POD, {"metadata": {"labels": {"n": str(n)}}}, Content_Type=MERGE)
        for n in range(20)
    ]
    binding = asyncio.create_task(bind(server))
    await asyncio.gather(*changes)
    done = await binding
    assert done.status == 201, done.text
    assert (await stored(server))["spec"]["nodeName"] == "n1"


@pytest.mark.parametrize(("was", "is_kept"), [("True", True), ("False", False)])
async def test_a_condition_keeps_its_time_while_it_does_not_change(
    server: Running, was: str, is_kept: bool
) -> None:
    since = "2020-01-01T00:00:00Z"
    conditions = [
        {"type": "Other", "status": "True", "lastTransitionTime": since},
        {"type": "PodScheduled", "status": was, "reason": "x", "lastTransitionTime": since},
    ]
    await add_pod(server, {"conditions": conditions})
    assert (await bind(server)).status == 201
    other, scheduled = (await stored(server))["status"]["conditions"]
    assert other == conditions[0]
    assert (scheduled["type"], scheduled["status"]) == ("PodScheduled", "True")
    assert "reason" not in scheduled
    assert (scheduled["lastTransitionTime"] == since) is is_kept


async def test_invalid_bindings_are_rejected(server: Running) -> None:
    await add_pod(server, schedulingGates=[{"name": "example.com/gate"}])
    prefix = 'Operation cannot be fulfilled on pods/binding "p": '

    async def refused(code: int, message: str, **how: Any) -> None:
        answer = await bind(server, **how)
        assert (answer.status, answer.json["message"]) == (code, message)

    await refused(409, f"{prefix}pod p has non-empty .spec.schedulingGates")
    uid = (await stored(server))["metadata"]["uid"]
    why = f"Precondition failed: UID in precondition: other, UID in object meta: {uid}"
    await refused(409, prefix + why, uid="other")
    await refused(400, "the name of the binding does not match the name on the URL", name="q")
    assert (await bind(server, kind="Pod")).status == 422
    assert "nodeName" not in (await stored(server))["spec"]
    gates: dict[str, Any] = {"spec": {"schedulingGates": []}}
    assert (await server.ask("PATCH", POD, gates, Content_Type=MERGE)).status == 200
    assert (await bind(server)).status == 201
    await refused(409, f'{prefix}pod p is already assigned to node "n1"')
    assert (await bind(server)).json["details"] == {"name": "p", "kind": "pods/binding"}


async def test_a_pod_that_is_being_deleted_is_not_bound(server: Running) -> None:
    await add_pod(server)
    finalizers = {"metadata": {"finalizers": ["example.com/keep"]}}
    assert (await server.ask("PATCH", POD, finalizers, Content_Type=MERGE)).status == 200
    assert (await server.ask("DELETE", POD)).status == 200
    answer = await bind(server)
    assert answer.status == 409
    assert answer.json["message"].endswith("pod p is being deleted, cannot be assigned to a host")
