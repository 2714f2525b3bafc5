"""TokenRequest: whose token, bound to what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.apiserver.access import grant
from tests.apiserver.running_server import Answer, Running, serving

CORE = "/api/v1/namespaces/default"
ACCOUNTS = f"{CORE}/serviceaccounts"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    """Two accounts, a pod of the first on the node n1, and a secret."""
    async with serving(tmp_path) as running:
        for name in ("sa", "admin"):
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
            assert (await running.ask("POST", ACCOUNTS, account)).status == 201
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
        assert (await running.ask("POST", f"{CORE}/secrets", secret)).status == 201
        pod = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"serviceAccountName": "sa", "nodeName": "n1",
                     "containers": [{"name": "c", "image": "i"}]},
        }  # fmt: skip
        assert (await running.ask("POST", f"{CORE}/pods", pod)).status == 201
        yield running


async def request(
    server: Running,
    account: str = "sa",
    *,
    token: str = "admin-token",
    meta: dict[str, Any] | None = None,
    **spec: Any,
) -> Answer:
    body = {
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "metadata": meta or {}, "spec": spec,
    }  # fmt: skip
    return await server.ask("POST", f"{ACCOUNTS}/{account}/token", body, token=token)


async def uid_of(server: Running, path: str) -> str:
    uid: str = (await server.ask("GET", f"{CORE}/{path}")).json["metadata"]["uid"]
    return uid


def bound_to(kind: str, name: str, uid: str = "") -> dict[str, str]:
    reference = {"apiVersion": "v1", "kind": kind, "name": name}
    return {**reference, "uid": uid} if uid else reference


async def test_a_token_is_bound_to_a_pod_of_its_own_account(server: Running) -> None:
    uid = await uid_of(server, "pods/p")
    answer = await request(server, boundObjectRef=bound_to("Pod", "p", uid))
    assert answer.status == 201
    account = (await server.ask("GET", f"{ACCOUNTS}/sa")).json["metadata"]
    assert answer.json["metadata"] == {
        key: account[key] for key in ("name", "namespace", "creationTimestamp")
    }
    claims = jwt.decode(answer.json["status"]["token"], options={"verify_signature": False})
    assert claims["kubernetes.io"]["pod"] == {"name": "p", "uid": uid}
    refused = await request(server, "admin", boundObjectRef=bound_to("Pod", "p", uid))
    assert refused.status == 400
    assert refused.json["message"] == (
        'cannot bind token for serviceaccount "admin" to pod running with different '
        "serviceaccount name."
    )


@pytest.mark.parametrize(
    ("kind", "path", "name"), [("Pod", "pods/p", "p"), ("Secret", "secrets/s", "s")]
)
async def test_the_uid_of_what_it_is_bound_to_must_match(
    server: Running, kind: str, path: str, name: str
) -> None:
    refused = await request(server, boundObjectRef=bound_to(kind, name, "old"))
    assert refused.status == 409
    assert refused.json["message"] == (
        f'Operation cannot be fulfilled on {kind} "{name}": the UID in the bound object reference '
        "(old) does not match the UID in record. The object might have been deleted and then "
        "recreated"
    )
    uid = await uid_of(server, path)
    assert (await request(server, boundObjectRef=bound_to(kind, name, uid))).status == 201
    assert (await request(server, boundObjectRef=bound_to(kind, name))).status == 201


async def test_what_it_cannot_be_bound_to(server: Running) -> None:
    refused = await request(server, boundObjectRef=bound_to("ConfigMap", "c"))
    assert refused.status == 400
    assert refused.json["message"] == "cannot bind token to object of type v1, Kind=ConfigMap"
    absent = await request(server, boundObjectRef=bound_to("Pod", "absent"))
    assert absent.status == 404
    assert absent.json["message"] == 'pods "absent" not found'


async def test_the_body_means_the_account_of_the_url(server: Running) -> None:
    for field, value in (("name", "admin"), ("namespace", "kube-system")):
        refused = await request(server, meta={field: value})
        assert refused.status == 422
        assert refused.json["message"] == (
            f'TokenRequest.authentication.k8s.io "sa" is invalid: metadata.{field}: Invalid value: '
            f'"{value}": must match the service account {field} if specified'
        )
    uid = await uid_of(server, "serviceaccounts/sa")
    refused = await request(server, meta={"uid": "old"})
    assert refused.status == 409
    assert refused.json["message"] == (
        'Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "sa": the UID in the '
        f"token request (old) does not match the UID of the service account ({uid})"
    )
    meta = {"name": "sa", "namespace": "default", "uid": uid}
    assert (await request(server, meta=meta)).status == 201


async def test_a_node_asks_for_its_pods_audiences_only(server: Running) -> None:
    uid = await uid_of(server, "pods/p")
    bound = bound_to("Pod", "p", uid)

    async def ask(account: str = "sa", **spec: Any) -> Answer:
        spec = {"boundObjectRef": bound, **spec}
        return await request(server, account, token="agent-token", **spec)

    # The volume that every pod gets has no audience: the API's own.
    assert (await ask()).status == 201
    refused = await ask(audiences=["bank"])
    assert refused.status == 403
    assert refused.json["message"] == (
        'serviceaccounts "sa" is forbidden: audience "bank" not found in pod spec volume, '
        "system:node:n1 is not authorized to request tokens for this audience"
    )
    several = await ask(audiences=["bank", "https://kubernetes.default.svc"])
    assert several.json["message"].endswith("node may only request 0 or 1 audiences")
    other = await ask("admin")
    assert other.status == 403
    assert "no relationship found between node 'n1' and this object" in other.json["message"]
    await grant(server, "system:node:n1", ["request-serviceaccounts-token-audience"], "bank")
    assert (await ask(audiences=["bank"])).status == 201


async def test_others_are_not_held_to_the_pods_audiences(server: Running) -> None:
    assert (await request(server, audiences=["bank", "vault"])).status == 201


async def test_options_are_those_of_a_creation(server: Running) -> None:
    refused = await server.ask("POST", f"{ACCOUNTS}/sa/token?fieldValidation=Loud", {})
    assert refused.status == 422
    assert "CreateOptions.meta.k8s.io" in refused.json["message"]
