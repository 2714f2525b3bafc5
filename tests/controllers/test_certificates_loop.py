"""The loops of certificates: what is approved, signed, refused, deleted, published."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from moorage.api.errors import ConflictError, NotFoundError
from moorage.cluster.access.identities import Authority
from moorage.controllers.certificates import (
    CertificateController,
    certificate_cleaner,
    pod_certificate_request_cleaner,
    trust_bundle_publisher,
)
from moorage.controllers.certificates.cleaner import bundle_name
from moorage.controllers.objects import POD_CERTIFICATE_REQUESTS
from moorage.wire.client.resources import CERTIFICATE_SIGNING_REQUESTS, CLUSTER_TRUST_BUNDLES
from tests.certificates import certificate_pem, encoded, request_pem
from tests.clocks import START
from tests.controllers.memory import MemoryClient, World

REVIEWS = ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews")
CLIENT = "kubernetes.io/kube-apiserver-client"
KUBELET = f"{CLIENT}-kubelet"
NODE = "system:node:n"
NOW = "2026-01-01T00:00:00Z"
APPROVED = {"type": "Approved", "status": "True", "lastUpdateTime": NOW}
DENIED = {"type": "Denied", "status": "True", "lastUpdateTime": NOW}
FAILED = {"type": "Failed", "status": "True", "lastUpdateTime": NOW}
OTHER = {"type": "Other", "status": "True", "lastUpdateTime": NOW}


@pytest.fixture
def world() -> World:
    return World()


def csr(
    *conditions: dict[str, str],
    signer: str = KUBELET,
    request: bytes | None = None,
    certificate: str = "",
    **spec: Any,
) -> dict[str, Any]:
    body = {
        "request": encoded(request or request_pem(NODE, "system:nodes")),
        "signerName": signer,
        "usages": ["digital signature", "client auth"],
        "username": "bootstrapper",
        "groups": ["system:bootstrappers"],
    }
    status: dict[str, Any] = {"conditions": list(conditions)}
    if certificate:
        status["certificate"] = certificate
    meta = {"name": "r", "creationTimestamp": NOW}
    return {"metadata": meta, "spec": {**body, **spec}, "status": status}


def found(client: MemoryClient) -> dict[str, Any]:
    request = client.find(CERTIFICATE_SIGNING_REQUESTS, "r")
    assert request is not None
    status: dict[str, Any] = request["status"]
    return status


def answer(world: World, *, is_allowed: bool) -> None:
    world.client.answers[REVIEWS] = json.dumps({"status": {"allowed": is_allowed}}).encode()


def reviewed(client: MemoryClient) -> list[tuple[str, str]]:
    """User and subresource of every review that was asked for."""
    bodies = [json.loads(request.more["body"]) for request in client.asked("request")]
    return [
        (body["spec"]["user"], body["spec"]["resourceAttributes"]["subresource"]) for body in bodies
    ]


@asynccontextmanager
async def certificates(world: World, directory: Path | None = None) -> AsyncIterator[MemoryClient]:
    ca, key = "", None
    if directory is not None:
        pair = Authority(directory / "pki", START).pair
        ca, key = pair.certificate.read_text(), pair.key
    controller = CertificateController(world.client, world.informers, ca, key, world.clock)
    async with world.running(controller.run()) as client:
        yield client


async def test_a_new_node_agent_is_approved_if_its_group_may(world: World) -> None:
    answer(world, is_allowed=True)
    world.client.put(CERTIFICATE_SIGNING_REQUESTS, csr())
    async with certificates(world) as client:
        assert reviewed(client) == [("bootstrapper", "nodeclient")]
        (patch,) = client.asked("patch")
        assert patch.more["subresource"] == "approval"
        assert list(found(client)["conditions"]) == [
            {
                "type": "Approved",
                "status": "True",
                "reason": "AutoApproved",
                "message": "Auto approving kubelet client certificate after SubjectAccessReview.",
            }
        ]


async def test_an_agent_that_renews_its_certificate_is_approved(world: World) -> None:
    answer(world, is_allowed=True)
    world.client.put(CERTIFICATE_SIGNING_REQUESTS, csr(username=NODE))
    async with certificates(world) as client:
        assert reviewed(client) == [(NODE, "selfnodeclient")]
        (condition,) = found(client)["conditions"]
        assert "self kubelet client certificate" in condition["message"]


async def test_who_may_not_is_looked_at_again(world: World) -> None:
    answer(world, is_allowed=False)
    world.client.put(CERTIFICATE_SIGNING_REQUESTS, csr(username=NODE))
    async with certificates(world) as client:
        assert reviewed(client) == [(NODE, "selfnodeclient"), (NODE, "nodeclient")]
        assert client.writes == []
        answer(world, is_allowed=True)
        await world.settled(1)
        assert found(client)["conditions"][0]["type"] == "Approved"


@pytest.mark.parametrize(
    "request_body",
    [
        csr(DENIED),
        csr(signer=CLIENT),
        csr(signer="example.com/signer"),
        csr(request=request_pem("alice")),
        csr(usages=["client auth"]),
        csr(request=b"malformed"),
        csr(certificate="eA=="),
    ],
)
async def test_other_requests_wait_for_people(world: World, request_body: dict[str, Any]) -> None:
    world.client.put(CERTIFICATE_SIGNING_REQUESTS, request_body)
    async with certificates(world) as client:
        assert client.asked("request") == []
        assert client.writes == []


async def test_an_approved_request_is_signed(world: World, tmp_path: Path) -> None:
    body = csr(APPROVED, expirationSeconds=3600)
    world.client.put(CERTIFICATE_SIGNING_REQUESTS, body)
    async with certificates(world, tmp_path) as client:
        (patch,) = client.asked("patch")
        assert patch.more["subresource"] == "status"
        assert patch.body["status"].keys() == {"certificate"}
        pem = base64.b64decode(found(client)["certificate"])
    certificate = x509.load_pem_x509_certificate(pem)
    assert certificate.not_valid_after_utc == START + timedelta(hours=1)
    authority = (tmp_path / "pki/ca.crt").read_bytes()
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (csr(APPROVED, signer=CLIENT, usages=["server auth"]),
         "invalid usage for client certificate: server auth"),
        (csr(APPROVED, request=request_pem("alice")), "subject organization is not system:nodes"),
    ],
)  # fmt: skip
async def test_what_the_signer_refuses_has_failed(
    world: World, tmp_path: Path, body: dict[str, Any], message: str
) -> None:
    world.client.put(CERTIFICATE_SIGNING_REQUESTS, body)
    async with certificates(world, tmp_path) as client:
        status = found(client)
        assert "certificate" not in status
        assert list(status["conditions"])[1:] == [
            {
                "type": "Failed",
                "status": "True",
                "reason": "SignerValidationFailure",
                "message": message,
                "lastUpdateTime": NOW,
            }
        ]
        assert len(client.writes) == 1


@pytest.mark.parametrize(
    "body",
    [
        csr(APPROVED, DENIED),
        csr(APPROVED, FAILED),
        csr(APPROVED, signer="example.com/signer"),
        csr(APPROVED, request=b"malformed"),
        csr(APPROVED, certificate="eA=="),
    ],
)
async def test_other_approved_requests_are_left_alone(
    world: World, tmp_path: Path, body: dict[str, Any]
) -> None:
    world.client.put(CERTIFICATE_SIGNING_REQUESTS, body)
    async with certificates(world, tmp_path) as client:
        assert client.writes == []


async def test_without_the_key_nothing_is_signed(world: World) -> None:
    world.client.put(CERTIFICATE_SIGNING_REQUESTS, csr(APPROVED))
    async with certificates(world) as client:
        assert client.writes == []


@pytest.mark.parametrize("error", [ConflictError("changed"), NotFoundError("gone")])
async def test_a_change_in_between_is_no_failure(
    world: World, tmp_path: Path, error: Exception
) -> None:
    world.client.put(CERTIFICATE_SIGNING_REQUESTS, csr(APPROVED))
    world.client.failures.append(("patch", CERTIFICATE_SIGNING_REQUESTS.plural, error))
    async with certificates(world, tmp_path) as client:
        await world.settled(1)
        assert ("certificate" in found(client)) is isinstance(error, ConflictError)


def life(hours: float) -> str:
    return encoded(certificate_pem(starts=START, life=timedelta(hours=hours)))


@pytest.mark.parametrize(
    ("body", "hours"),
    [
        (csr(), 24),
        (csr(APPROVED), 24),
        (csr(DENIED), 1),
        (csr(FAILED), 1),
        (csr(APPROVED, FAILED), 1),
        (csr(APPROVED, certificate=life(100)), 1),
        (csr(APPROVED, certificate=life(0.5)), 0.5),
        (csr(APPROVED, certificate="eA=="), 1),
        (csr(OTHER, certificate=life(0.5)), None),
        (csr(OTHER), None),
        (csr({"type": "Denied", "status": "True"}), None),
    ],
)
async def test_requests_are_deleted_when_their_time_is_over(
    world: World, body: dict[str, Any], hours: float | None
) -> None:
    world.client.put(CERTIFICATE_SIGNING_REQUESTS, body)
    cleaner = certificate_cleaner(world.client, world.informers, world.clock)
    async with world.running(cleaner.run()) as client:
        await world.settled((hours or 1000) * 3600 - 1)
        assert client.writes == []
        await world.settled(1)
        assert (client.all(CERTIFICATE_SIGNING_REQUESTS) == []) is (hours is not None)


async def test_a_pods_request_goes_after_15_minutes(world: World) -> None:
    meta = {"name": "r", "namespace": "default", "creationTimestamp": NOW}
    world.client.put(POD_CERTIFICATE_REQUESTS, {"metadata": meta})
    cleaner = pod_certificate_request_cleaner(world.client, world.clock)
    async with world.running(cleaner.run()) as client:
        await world.settled(899)
        assert client.writes == []
        await world.settled(1)
        (deleted,) = client.asked("delete")
        assert (deleted.key, deleted.more) == ("default/r", {"uid": "r"})


async def test_one_bundle_verifies_the_api_server(world: World) -> None:
    name = bundle_name("PEM")
    assert name == "kubernetes.io:kube-apiserver-serving:384fb9a44fabe158be2757b9"
    for other in ("kubernetes.io:kube-apiserver-serving:old", name):
        body = {"metadata": {"name": other}, "spec": {"trustBundle": "other"}}
        world.client.put(CLUSTER_TRUST_BUNDLES, body)
    publisher = trust_bundle_publisher(world.client, "PEM", world.clock)
    async with world.running(publisher.run()) as client:
        (listing,) = client.asked("list", CLUSTER_TRUST_BUNDLES)
        signer = "kubernetes.io/kube-apiserver-serving"
        assert listing.more["field_selector"] == f"spec.signerName={signer}"
        assert client.names(CLUSTER_TRUST_BUNDLES) == [name]
        bundle = client.find(CLUSTER_TRUST_BUNDLES, name)
        assert bundle is not None
        assert bundle["spec"]["trustBundle"] == "PEM"
        client.drop(CLUSTER_TRUST_BUNDLES, name)
        await world.settled()
        assert client.asked("create")[0].body == {
            "metadata": {"name": name},
            "spec": {"signerName": signer, "trustBundle": "PEM"},
        }
