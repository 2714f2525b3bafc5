"""Certificates that the cluster's authority signs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.certificate_requests import parse_request
from moorage.cluster.access.identities import Authority
from moorage.controllers.certificates.signing import (
    ExpiredAuthorityError,
    SigningAuthority,
    validity,
)
from tests.certificates import certificate_pem, request_der

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FAR = NOW + timedelta(days=3650)
MINUTES, HOURS, DAYS = (timedelta(minutes=1), timedelta(hours=1), timedelta(days=1))
NODE = ("system:node:n", "system:nodes")


@pytest.mark.parametrize(
    ("seconds", "authority_end", "life"),
    [
        (None, FAR, 365 * DAYS - 5 * MINUTES),
        (3600, FAR, HOURS),
        (8 * 3600 - 1, FAR, timedelta(seconds=8 * 3600 - 1)),
        (8 * 3600, FAR, 8 * HOURS - 5 * MINUTES),
        (1, FAR, 10 * MINUTES),
        (2**31 - 1, FAR, 365 * DAYS - 5 * MINUTES),
        (None, NOW + DAYS, DAYS),
    ],
)
def test_validity(seconds: int | None, authority_end: datetime, life: timedelta) -> None:
    assert validity(seconds, NOW, authority_end) == (NOW - 5 * MINUTES, NOW + life)


@given(st.none() | st.integers(0, 2**31 - 1), st.integers(1, 10**9))
def test_no_certificate_outlives_the_authority(seconds: int | None, left_s: int) -> None:
    authority_end = NOW + timedelta(seconds=left_s)
    start, end = validity(seconds, NOW, authority_end)
    assert start < NOW < end <= authority_end


def test_an_expired_authority_signs_nothing() -> None:
    with pytest.raises(ExpiredAuthorityError):
        validity(None, NOW, NOW)


@pytest.fixture
def authority(tmp_path: Path) -> SigningAuthority:
    pair = Authority(tmp_path / "pki", NOW).pair
    return SigningAuthority.load(pair.certificate.read_text(), pair.key)


def signed(authority: SigningAuthority, *subject: str, **options: Any) -> x509.Certificate:
    usages = options.pop("usages", ("digital signature", "client auth"))
    request = parse_request(request_der(*subject, **options))
    return x509.load_pem_x509_certificate(authority.sign(request, usages, 3600, NOW))


def test_what_is_asked_for_is_in_the_certificate(authority: SigningAuthority) -> None:
    names = ["h.example.com", "10.0.0.1", "a@example.com", "spiffe://a/b"]
    certificate = signed(authority, *NODE, names=names)
    certificate.verify_directly_issued_by(authority.certificate)
    assert certificate.subject.rfc4514_string() == "CN=system:node:n,O=system:nodes"
    assert certificate.not_valid_after_utc == NOW + HOURS
    extensions = certificate.extensions
    alternatives = extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert [str(name.value) for name in alternatives.value] == names
    constraints = extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert not constraints.value.ca
    key_usage = extensions.get_extension_for_class(x509.KeyUsage)
    assert key_usage.critical
    assert key_usage.value.digital_signature
    assert not key_usage.value.key_encipherment
    purposes = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_extensions_of_the_request_are_dropped(authority: SigningAuthority) -> None:
    builder = x509.CertificateSigningRequestBuilder(parse_request(request_der()).subject)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    key = ed25519.Ed25519PrivateKey.generate()
    der = builder.sign(key, None).public_bytes(serialization.Encoding.DER)
    text = authority.sign(parse_request(der), ("client auth",), None, NOW)
    extensions = x509.load_pem_x509_certificate(text).extensions
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    # A request without uses of its key leads to no such extension: an empty one is invalid.
    assert len(extensions) == 2


def test_keys_of_every_kind_are_certified(authority: SigningAuthority) -> None:
    for key in (rsa.generate_private_key(65537, 2048), ed25519.Ed25519PrivateKey.generate()):
        certificate = signed(authority, "alice", private_key=key)
        assert certificate.public_key() == key.public_key()


def test_keys_that_are_not_the_clusters_are_refused(tmp_path: Path) -> None:
    key = rsa.generate_private_key(65537, 2048)
    form = (
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )  # fmt: skip
    (tmp_path / "key").write_bytes(key.private_bytes(*form))
    with pytest.raises(ValueError, match="not an elliptic curve key"):
        SigningAuthority.load(certificate_pem().decode(), tmp_path / "key")
