"""PodCertificateRequests: rules of creation and of the status, rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

from moorage.api.clock import format_time
from moorage.apiserver.registry.kind import Obj
from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import changed, complaint, update_complaint
from tests.certificates import certificate_pem, encoded, request_der

KIND = "PodCertificateRequest"
SIGNER, SECONDS, STUB = "spec.signerName", "spec.maxExpirationSeconds", "spec.stubPKCS10Request"
NOTES = "spec.unverifiedUserAnnotations"
CHAIN = "status.certificateChain"
START = datetime(2026, 1, 1, tzinfo=UTC)
RESIGNED = encoded(request_der().replace(b"alice", b"mallo"))


def stub(key: Any) -> str:
    return encoded(request_der(private_key=key))


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({}, None),
        ({SIGNER: ""}, f"{SIGNER}: Required value"),
        ({SECONDS: None}, f"{SECONDS}: Required value: must be set"),
        ({SECONDS: 3599}, f"{SECONDS}: Invalid value: 3599: must be in the range [3600, 7862400]"),
        ({SECONDS: 7862400}, None),
        ({SIGNER: "kubernetes.io/a", SECONDS: 86401},
         f"{SECONDS}: Invalid value: 86401: must be in the range [3600, 86400]"),
        ({"spec.podName": "P"}, 'spec.podName: Invalid value: "P": a lowercase RFC 1123'),
        ({"spec.podUID": ""}, 'spec.podUID: Invalid value: "": must not be empty'),
        ({"spec.nodeUID": "u" * 129}, "spec.nodeUID: Too long: may not be more than 128 bytes"),
        ({"spec.serviceAccountName": "/"}, 'spec.serviceAccountName: Invalid value: "/": a lower'),
        ({NOTES: {"Example.com/Key": "any value"}}, None),
        ({NOTES: {"key": "v"}},
         f'{NOTES}: Invalid value: "key": must be a domain-prefixed key (such as "acme.io/foo")'),
        ({NOTES: {"-/k": "v"}}, f'{NOTES}: Invalid value: "-/k": prefix part'),
        ({STUB: ""},
         "spec: Invalid value: exactly one of (stubPKCS10Request) or (pkixPublicKey, "
         "proofOfPossession) must be set"),
        ({STUB: encoded(b"x" * 10241)}, f"{STUB}: Too long: may not be more than 10240 bytes"),
        ({STUB: encoded(b"x")}, f"{STUB}: Invalid value: must be a valid PKCS#10 CSR"),
        ({STUB: RESIGNED}, f"{STUB}: Invalid value: invalid signature"),
        ({STUB: stub(ed25519.Ed25519PrivateKey.generate())}, None),
        ({STUB: stub(rsa.generate_private_key(65537, 3072))}, None),
        ({STUB: stub(rsa.generate_private_key(65537, 2048))},
         f'{STUB}: Invalid value: "2048-bit modulus": RSA keys must have modulus size 3072 or '
         "4096"),
        ({STUB: stub(ec.generate_private_key(ec.SECP521R1()))}, None),
        ({STUB: stub(ec.generate_private_key(ec.SECP224R1()))},
         f'{STUB}: Invalid value: "curve P-224": elliptic public keys must use curve P256, P384, '
         "or P521"),
        ({STUB: stub(ec.generate_private_key(ec.SECP256K1()))},
         f"{STUB}: Invalid value: must be a valid PKCS#10 CSR"),
        ({STUB: stub(ed448.Ed448PrivateKey.generate())},
         f"{STUB}: Invalid value: unknown public key type; supported types are Ed25519, ECDSA, "
         "and RSA"),
    ],
)  # fmt: skip
def test_rules_of_creation(sets: dict[str, Any], says: str | None) -> None:
    refusal = complaint(KIND, changed(KIND, sets))
    prefix = 'PodCertificateRequest.certificates.k8s.io "r" is invalid: '
    assert refusal is None if says is None else str(refusal).startswith(prefix + says)


def test_the_specification_is_immutable() -> None:
    new = changed(KIND, {SECONDS: 7200})
    assert "field is immutable" in str(update_complaint(KIND, new, changed(KIND)))
    new = changed(KIND, {"metadata.labels": {"a": "b"}})
    assert update_complaint(KIND, new, changed(KIND)) is None


def condition(condition_type: str, status: str = "True", **more: str) -> Obj:
    return {
        "type": condition_type, "status": status, "reason": "R",
        "lastTransitionTime": "2026-01-01T00:00:00Z", **more,
    }  # fmt: skip


def issued(life: timedelta = timedelta(hours=24), tail: str = "", **sets: Any) -> Obj:
    """A status with a certificate for the request's key; fields that are None are missing."""
    leaf = certificate_pem(starts=START, life=life, names=sets.pop("names", ()),
                           private_key=sets.pop("private_key", None))  # fmt: skip
    status = {
        "conditions": [condition("Issued")],
        "certificateChain": leaf.decode() + tail,
        "notBefore": format_time(START),
        "notAfter": format_time(START + life),
        "beginRefreshAt": format_time(START + timedelta(minutes=10)),
        **sets,
    }
    return {field: value for field, value in status.items() if value is not None}


OTHER_KEY = ec.generate_private_key(ec.SECP256R1())
KEY_BLOCK = "-----BEGIN KEY-----\nMA==\n-----END KEY-----\n"
IMMUTABLE = 'status is immutable unless transitioning to "Issued", "Denied", or "Failed"'
FINAL = "immutable after PodCertificateRequest is issued, denied, or failed"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ({}, {}, None),
        ({}, {"notAfter": "2026-01-01T00:00:00Z"}, f"status: Invalid value: {IMMUTABLE}"),
        ({}, {"conditions": [condition("Denied")]}, None),
        ({}, {"conditions": [condition("Failed")]}, None),
        ({}, {"conditions": [condition("Denied")], "certificateChain": "x"},
         "status: Invalid value: non-condition status fields must be empty"),
        ({"conditions": [condition("Denied")]}, {"conditions": [condition("Denied")]}, None),
        ({"conditions": [condition("Denied")]}, {"conditions": [condition("Failed")]},
         f"status: Invalid value: {FINAL}"),
        ({}, {"conditions": [condition("Other")]},
         'status.conditions[0].type: Unsupported value: "Other": supported values: "Issued", '
         '"Denied", "Failed"'),
        ({}, {"conditions": [condition("Denied"), condition("Failed")]},
         'status.conditions[1].type: Invalid value: "Failed": There may be at most one condition '
         'with type "Issued", "Denied", or "Failed"'),
        ({}, {"conditions": [condition("Denied", "False")]},
         'status.conditions[0].status: Unsupported value: "False": supported values: "True"'),
        ({}, {"conditions": [condition("Denied", reason="")]},
         "status.conditions[0].reason: Required value"),
        ({}, issued(), None),
        ({}, issued(tail=certificate_pem("ca").decode()), None),
        ({}, issued(certificateChain="x" * 102401),
         f"{CHAIN}: Too long: may not be more than 102400 bytes"),
        ({}, issued(certificateChain="x"), "must contain at least one certificate"),
        ({}, issued(certificateChain=KEY_BLOCK), "must consist entirely of CERTIFICATE PEM blocks"),
        ({}, issued(certificateChain=KEY_BLOCK.replace("KEY", "CERTIFICATE")),
         "leaf certificate does not parse as valid X.509"),
        ({}, issued(private_key=OTHER_KEY),
         "leaf certificate was not issued to the requested public key"),
        ({}, issued(names=["a..b"]), f'{CHAIN}: Invalid value: "a..b": leaf certificate\'s DNSName '
         "should not contain '..'"),
        ({}, issued(names=["a."]), "DNSName should not start or end with '.'"),
        ({}, issued(names=["@b"]), "should not contain invalid EmailAddress"),
        ({}, issued(notBefore=None),
         "status.notBefore: Required value: must be present and consistent with the issued"),
        ({}, issued(beginRefreshAt=None), "in the range [notbefore+10min, notafter-10min]"),
        ({}, issued(notBefore="2026-01-01T00:00:01Z"),
         'status.notBefore: Invalid value: "2026-01-01T00:00:01Z": must be set to the NotBefore'),
        ({}, issued(notAfter="2026-01-03T00:00:00Z"), "must be set to the NotAfter time encoded"),
        ({}, issued(timedelta(minutes=59)),
         f"{CHAIN}: Invalid value: 3540000000000: leaf certificate lifetime must be >= 1 hour"),
        ({}, issued(timedelta(hours=25)),
         "leaf certificate lifetime must be <= spec.maxExpirationSeconds (86400)"),
        ({}, issued(beginRefreshAt="2026-01-01T00:09:59Z"),
         "must be at least 10 minutes after status.notBefore"),
        ({}, issued(beginRefreshAt="2026-01-01T23:50:01Z"),
         "must be at least 10 minutes before status.notAfter"),
        ({}, issued(tail=KEY_BLOCK), "must consist entirely of CERTFICATE PEM blocks"),
        ({}, issued(tail=KEY_BLOCK.replace("KEY", "CERTIFICATE")),
         "intermediate certificate does not parse as valid X.509"),
    ],
)  # fmt: skip
def test_rules_of_the_status(old: Obj, new: Obj, says: str | None) -> None:
    after, before = changed(KIND, {"status": new}), changed(KIND, {"status": old})
    refusal = update_complaint(KIND, after, before, "status")
    assert refusal is None if says is None else says in str(refusal)


def test_row() -> None:
    assert columns(KIND) == (
        "Name PodName ServiceAccountName NodeName SignerName State | UnverifiedUserAnnotations"
    )
    assert row(KIND, {}) == ["x", "", "", "", "", "Pending", "<none>"]
    spec = {"podName": "p", "serviceAccountName": "sa", "nodeName": "n", "signerName": "s"}
    status = {"conditions": [condition("Denied")]}
    fields = {"spec": {**spec, "unverifiedUserAnnotations": {"a/b": "c"}}, "status": status}
    assert row(KIND, fields) == ["x", "p", "sa", "n", "s", "Denied", "a/b=c"]
