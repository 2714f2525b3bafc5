"""PKCS#10 requests."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from moorage.api.certificate_requests import (
    CertificateRequestError,
    parse_pem_request,
    parse_request,
)
from moorage.api.certificates import encode_block
from tests.certificates import certificate_pem, request_der, request_pem

KEYS = {
    "x509: ECDSA verification failure": ec.generate_private_key(ec.SECP384R1()),
    "x509: Ed25519 verification failure": ed25519.Ed25519PrivateKey.generate(),
    "crypto/rsa: verification error": rsa.generate_private_key(65537, 2048),
}


def test_subject_and_names_are_read() -> None:
    names = ("h.example.com", "10.0.0.1", "a@example.com", "spiffe://a/b")
    parsed = parse_pem_request(request_pem("system:node:n", "system:nodes", "b", names=names))
    assert parsed.common_name == "system:node:n"
    assert parsed.organizations == ("system:nodes", "b")
    assert [str(name.value) for name in parsed.names] == list(names)
    assert parsed.has_name(x509.DNSName)
    assert parsed.has_name(x509.IPAddress)
    assert not parse_pem_request(request_pem()).has_name(x509.DNSName)
    parsed.check_signature()


@pytest.mark.parametrize(("says", "private_key"), KEYS.items(), ids=list(KEYS))
def test_the_signature_is_the_keys(says: str, private_key: Any) -> None:
    der = request_der(private_key=private_key)
    parse_request(der).check_signature()
    spoilt = der.replace(b"alice", b"mallo")
    with pytest.raises(CertificateRequestError, match=says):
        parse_request(spoilt).check_signature()


@pytest.mark.parametrize(
    "text",
    [b"", b"x", certificate_pem(), certificate_pem() + request_pem()],
)
def test_the_first_block_is_a_request(text: bytes) -> None:
    with pytest.raises(CertificateRequestError, match="block type must be CERTIFICATE REQUEST"):
        parse_pem_request(text)


@pytest.mark.parametrize("der", [b"", b"\x30\x00", request_der()[:-9], request_der() + b"\x00"])
def test_malformed_requests(der: bytes) -> None:
    with pytest.raises(CertificateRequestError, match="x509: malformed certificate request"):
        parse_pem_request(encode_block("CERTIFICATE REQUEST", der))


def test_no_spoilt_byte_is_another_failure() -> None:
    der = request_der("a", "b", names=("h.example.com",))
    for at in range(len(der)):
        spoilt = bytearray(der)
        spoilt[at] ^= 0x55
        try:
            parse_request(bytes(spoilt)).check_signature()
        except CertificateRequestError:
            continue
        raise AssertionError(f"a change of byte {at} went unnoticed")
