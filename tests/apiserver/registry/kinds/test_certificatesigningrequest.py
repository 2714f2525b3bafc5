"""CertificateSigningRequests: rules of creation, of each subresource, rows."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.certificates import encode_block
from moorage.apiserver.registry.kind import Obj
from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import KINDS, changed, complaint, decoded, update_complaint
from tests.certificates import certificate_pem, encoded, request_der, request_pem

KIND = "CertificateSigningRequest"
REQUEST, SIGNER, USAGES = "spec.request", "spec.signerName", "spec.usages"
CONDITIONS, CERTIFICATE = "status.conditions", "status.certificate"
SPOILT = encoded(
    request_pem().replace(b"-----BEGIN CERTIFICATE REQUEST", b"-----BEGIN CERTIFICATE")
    .replace(b"-----END CERTIFICATE REQUEST", b"-----END CERTIFICATE")
)  # fmt: skip
ISSUED = encoded(certificate_pem())
RESIGNED = encoded(encode_block("CERTIFICATE REQUEST", request_der().replace(b"alice", b"mallo")))
"""A request whose subject is not the one that was signed."""
APPROVED = {"type": "Approved", "status": "True", "reason": "r"}
DENIED = {"type": "Denied", "status": "True"}
FAILED = {"type": "Failed", "status": "True"}
OTHER = {"type": "Other", "status": "Unknown"}


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({}, None),
        ({"metadata.name": "Not_a:subdomain"}, None),
        ({"metadata.name": "a/b"}, 'metadata.name: Invalid value: "a/b": may not contain \'/\''),
        ({REQUEST: SPOILT},
         f'{REQUEST}: Invalid value: "{SPOILT}": PEM block type must be CERTIFICATE REQUEST'),
        ({REQUEST: RESIGNED},
         f'{REQUEST}: Invalid value: "{RESIGNED}": x509: ECDSA verification failure'),
        ({USAGES: []}, f"{USAGES}: Required value"),
        ({USAGES: ["client auth", "server auth", "any"]}, None),
        ({USAGES: ["client auth", "client auth"]},
         f'{USAGES}[1]: Duplicate value: "client auth"'),
        ({USAGES: ["magic"]},
         f'{USAGES}[0]: Unsupported value: "magic": supported values: "any", "cert sign", '),
        ({SIGNER: "signer"}, f'{SIGNER}: Invalid value: "signer": must be a fully qualified'),
        ({SIGNER: "kubernetes.io/legacy-unknown"},
         f'{SIGNER}: Invalid value: "kubernetes.io/legacy-unknown": the legacy signerName is not '
         "allowed via this API version"),
        ({"spec.expirationSeconds": 599},
         "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 "
         "seconds (10 minutes)"),
    ],
)  # fmt: skip
def test_rules_of_creation(sets: dict[str, Any], says: str | None) -> None:
    refusal = complaint(KIND, changed(KIND, sets))
    if says is None:
        assert refusal is None
        return
    prefix = "CertificateSigningRequest.certificates.k8s.io"
    name = sets.get("metadata.name", "r")
    assert str(refusal).startswith(f'{prefix} "{name}" is invalid: {says}')


def test_a_new_request_has_no_status() -> None:
    request = decoded(KINDS[KIND], changed(KIND, {CONDITIONS: [APPROVED], CERTIFICATE: ISSUED}))
    KINDS[KIND].strategy.prepare_create(request)
    assert request["status"] == {}


def with_status(*conditions: Obj, certificate: str = "") -> Obj:
    sets: dict[str, Any] = {CONDITIONS: list(conditions)}
    return changed(KIND, sets | ({CERTIFICATE: certificate} if certificate else {}))


def added(condition: str) -> str:
    return f'{CONDITIONS}: Forbidden: updates may not add a condition of type "{condition}"'


def removed(condition: str) -> str:
    return f'{CONDITIONS}: Forbidden: updates may not remove a condition of type "{condition}"'


@pytest.mark.parametrize(
    ("part", "old", "new", "says"),
    [
        ("approval", [], [APPROVED], None),
        ("approval", [], [OTHER, DENIED], None),
        ("approval", [APPROVED], [{**APPROVED, "reason": "other"}], None),
        ("approval", [APPROVED], [], removed("Approved")),
        ("approval", [FAILED], [], removed("Failed")),
        ("approval", [OTHER], [], None),
        ("approval", [APPROVED], [APPROVED, DENIED],
         f'{CONDITIONS}: Invalid value: "Denied": Approved and Denied conditions are mutually '
         "exclusive"),
        ("approval", [APPROVED, DENIED], [APPROVED, DENIED, OTHER], None),
        ("approval", [], [{**APPROVED, "status": "False"}],
         f'{CONDITIONS}[0].status: Unsupported value: "False": supported values: "True"'),
        ("approval", [], [{**OTHER, "status": "Maybe"}],
         f'{CONDITIONS}[0].status: Unsupported value: "Maybe": supported values: "False", "True", '
         '"Unknown"'),
        ("approval", [], [{"type": "", "status": ""}],
         f"[{CONDITIONS}[0].type: Required value, {CONDITIONS}[0].status: Required value]"),
        ("approval", [], [OTHER, OTHER], f'{CONDITIONS}[1].type: Duplicate value: "Other"'),
        ("status", [], [OTHER, FAILED], None),
        ("status", [], [APPROVED], added("Approved")),
        ("status", [], [DENIED], added("Denied")),
        ("status", [APPROVED], [FAILED], removed("Approved")),
        ("status", [APPROVED], [{**APPROVED, "reason": "other"}, FAILED], None),
        ("", [APPROVED], [], None),
        ("", [], [APPROVED], None),
    ],
)  # fmt: skip
def test_rules_of_conditions(part: str, old: list[Obj], new: list[Obj], says: str | None) -> None:
    assert update_complaint(KIND, with_status(*new), with_status(*old), part) == says


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("", ISSUED, None),
        ("", encoded(certificate_pem() * 2 + b"text\n"), None),
        (ISSUED, ISSUED, None),
        (ISSUED, encoded(certificate_pem("bob")), "updates may not modify existing certificate"),
        (ISSUED, "", "updates may not modify existing certificate content"),
        ("", SPOILT, "x509: malformed certificate"),
        ("", encoded(request_pem()),
         'only CERTIFICATE PEM blocks are allowed, found "CERTIFICATE REQUEST"'),
        ("", encoded(certificate_pem().replace(b"E-----\n", b"E-----\nK: v\n\n", 1)),
         "no PEM block headers are permitted"),
        ("", encoded(b"x"), "must contain at least one CERTIFICATE PEM block"),
    ],
)  # fmt: skip
def test_rules_of_the_certificate(old: str, new: str, says: str | None) -> None:
    before, after = with_status(certificate=old), with_status(certificate=new)
    refusal = update_complaint(KIND, after, before, "status")
    assert says is None if refusal is None else str(says) in refusal
    # Through the other endpoints it stays as it is.
    assert update_complaint(KIND, after, before, "approval") is None
    assert update_complaint(KIND, after, before) is None


def prepared(part: str, new: Obj, old: Obj) -> Obj:
    after, before = decoded(KINDS[KIND], new), decoded(KINDS[KIND], old)
    strategy = KINDS[KIND].strategy
    prepare = strategy.parts[part].prepare if part else strategy.prepare_update
    prepare(after, before)
    return after


def test_each_endpoint_writes_its_part() -> None:
    old = with_status(APPROVED)
    new = changed(
        KIND,
        {CONDITIONS: [{**APPROVED, "reason": "other"}, FAILED], CERTIFICATE: ISSUED,
         SIGNER: "a.b/c", "metadata.annotations": {"a": "b"}},
    )  # fmt: skip
    status = prepared("status", new, old)["status"]
    assert status == {"conditions": [APPROVED, FAILED], "certificate": ISSUED}
    status = prepared("approval", new, old)["status"]
    assert status == {"conditions": [{**APPROVED, "reason": "other"}, FAILED]}
    assert prepared("", new, old)["status"] == {"conditions": [APPROVED]}
    for part in ("", "status", "approval"):
        after = prepared(part, new, old)
        assert after["spec"] == decoded(KINDS[KIND], old)["spec"]
        assert after["metadata"]["annotations"] == {"a": "b"}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, "Pending"),
        ({"conditions": [APPROVED]}, "Approved"),
        ({"conditions": [DENIED, APPROVED]}, "Denied"),
        ({"conditions": [APPROVED, FAILED]}, "Approved,Failed"),
        ({"conditions": [APPROVED], "certificate": "x"}, "Approved,Issued"),
    ],
)
def test_states(status: Obj, expected: str) -> None:
    assert row(KIND, {"status": status})[-1] == expected


def test_row() -> None:
    assert columns(KIND) == "Name Age SignerName Requestor RequestedDuration Condition |"
    spec = {"signerName": "a.b/c", "username": "alice", "expirationSeconds": 86400}
    assert row(KIND, {"spec": spec}) == ["x", "90s", "a.b/c", "alice", "24h", "Pending"]
    for fields in ({}, {"spec": {"signerName": ""}}):
        assert row(KIND, fields) == ["x", "90s", "<none>", "", "<none>", "Pending"]
