"""Keys, certificate requests and certificates for tests."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Key = Any
"""A private key of any kind."""


@cache
def key() -> ec.EllipticCurvePrivateKey:
    """The key of all requests that name none."""
    return ec.generate_private_key(ec.SECP256R1())


def subject(name: str, *organizations: str) -> x509.Name:
    attributes = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)
        for organization in organizations
    ]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def general_name(text: str) -> x509.GeneralName:
    """An alternative name: an address, `scheme:…`, `user@host` or a host."""
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    if ":" in text:
        return x509.UniformResourceIdentifier(text)
    return x509.RFC822Name(text) if "@" in text else x509.DNSName(text)


def request(
    name: str = "alice",
    *organizations: str,
    names: Sequence[str] = (),
    private_key: Key | None = None,
) -> x509.CertificateSigningRequest:
    builder = x509.CertificateSigningRequestBuilder(subject(name, *organizations))
    if names:
        alternatives = x509.SubjectAlternativeName([general_name(text) for text in names])
        builder = builder.add_extension(alternatives, critical=False)
    signing = private_key or key()
    is_edwards = not isinstance(signing, ec.EllipticCurvePrivateKey) and not hasattr(
        signing, "decrypt"
    )
    return builder.sign(signing, None if is_edwards else hashes.SHA256())


def request_der(*args: Any, **options: Any) -> bytes:
    return request(*args, **options).public_bytes(serialization.Encoding.DER)


def request_pem(*args: Any, **options: Any) -> bytes:
    return request(*args, **options).public_bytes(serialization.Encoding.PEM)


def certificate_pem(
    name: str = "alice",
    *,
    is_authority: bool = False,
    starts: datetime | None = None,
    life: timedelta = timedelta(days=1),
    names: Sequence[str] = (),
    private_key: Key | None = None,
) -> bytes:
    """A certificate signed by its own key."""
    own = private_key or key()
    start = starts or datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject(name))
        .issuer_name(subject(name))
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + life)
        .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
    )
    if names:
        alternatives = x509.SubjectAlternativeName([general_name(text) for text in names])
        builder = builder.add_extension(alternatives, critical=False)
    return builder.sign(key(), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def key_pem(private_key: Key | None = None) -> bytes:
    encrypted = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    return (private_key or key()).private_bytes(serialization.Encoding.PEM, form, encrypted)


def encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()
