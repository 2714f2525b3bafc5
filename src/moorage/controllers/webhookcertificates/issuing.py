"""Issuing: a private authority for one serving certificate, and reading such pairs back.

Each certificate has an authority of its own, whose key is forgotten once it has signed: what a
Secret can lose is one serving key. Keys are P-256. Source: API docs "Dynamic Admission Control".
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moorage.api.issued_certificates import certificate_builder, key_pem, with_role

LIFE = timedelta(days=90)
AUTHORITY_NAME = "moorage-webhook-ca"
_SKEW = timedelta(hours=1)
"""How far the clocks of API servers may be behind."""


class ServingPair(msgspec.Struct, frozen=True):
    """A serving certificate with its key and its authority, as PEM text.

    Both are valid from `begins` to `expires`.
    """

    certificate: str
    key: str
    authority: str
    begins: datetime
    expires: datetime
    hosts: frozenset[str]


def issue_pair(hosts: Sequence[str], now: datetime) -> ServingPair:
    """Return a new certificate for DNS names, valid for 90 days, with a new authority."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    # Two authorities of one name and other keys would make verifiers try the wrong one first.
    name = x509.Name([
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, AUTHORITY_NAME),
        x509.NameAttribute(NameOID.COMMON_NAME, f"{AUTHORITY_NAME} {now:%Y%m%d%H%M%S}"),
    ])  # fmt: skip
    authority = _builder(name, name, authority_key.public_key(), now, is_authority=True).sign(
        authority_key, hashes.SHA256()
    )
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    leaf = (
        _builder(subject, name, key.public_key(), now, is_authority=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(map(x509.DNSName, hosts)), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return ServingPair(
        certificate=_pem(leaf),
        key=key_pem(key).decode(),
        authority=_pem(authority),
        begins=leaf.not_valid_before_utc,
        expires=leaf.not_valid_after_utc,
        hosts=frozenset(hosts),
    )


def read_pair(certificate: str, key: str, bundle: str) -> ServingPair | None:
    """Return a pair whose authority is in the bundle; None if it is damaged, or not one pair."""
    try:
        leaf = x509.load_pem_x509_certificate(certificate.encode())
        loaded = serialization.load_pem_private_key(key.encode(), password=None)
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, x509.ExtensionNotFound):
        return None
    if leaf.public_key() != loaded.public_key():
        return None
    for authority in _read_bundle(bundle):
        try:
            leaf.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return ServingPair(
            certificate=certificate,
            key=key,
            authority=_pem(authority),
            begins=max(leaf.not_valid_before_utc, authority.not_valid_before_utc),
            expires=min(leaf.not_valid_after_utc, authority.not_valid_after_utc),
            hosts=frozenset(str(name.value) for name in names),
        )
    return None


def authorities_of(bundle: str, now: datetime) -> tuple[str, ...]:
    """Return the authorities of ours in a bundle that are valid, the newest first, as PEM text."""
    valid = [
        authority
        for authority in _read_bundle(bundle)
        if authority.not_valid_after_utc > now and _is_ours(authority)
    ]
    valid.sort(key=lambda authority: authority.not_valid_before_utc, reverse=True)
    return tuple(dict.fromkeys(map(_pem, valid)))


def _read_bundle(bundle: str) -> Sequence[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(bundle.encode())
    except ValueError:
        return ()


def _is_ours(authority: x509.Certificate) -> bool:
    names = authority.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return [name.value for name in names] == [AUTHORITY_NAME]


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    *,
    is_authority: bool,
) -> x509.CertificateBuilder:
    builder = certificate_builder(subject, issuer, key, now - _SKEW, now + LIFE)
    return with_role(builder, is_authority=is_authority)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
