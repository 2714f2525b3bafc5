"""Certificates of our own authorities: what all of them have in common, and keys in PEM.

Source: RFC 5280 section 4.2.1.3 (key usage), API docs "PKI certificates and requirements".
"""

from __future__ import annotations

from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes


def certificate_builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: CertificatePublicKeyTypes,
    begins: datetime,
    ends: datetime,
) -> x509.CertificateBuilder:
    """Return the builder of a certificate for a key, with a serial number and no extensions."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
    )


def with_role(builder: x509.CertificateBuilder, *, is_authority: bool) -> x509.CertificateBuilder:
    """Add what the key may do: sign certificates (of none further down), or prove who has it."""
    usage = x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    constraints = x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None)
    return builder.add_extension(constraints, critical=True).add_extension(usage, critical=True)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a key in PEM, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
