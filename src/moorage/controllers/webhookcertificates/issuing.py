"""Issuing: a private authority for one serving certificate, and reading such pairs back.

Each certificate has an authority of its own, whose key is forgotten once it has signed: what a
Secret can lose is one serving key. Keys are P-256. Source: API docs "Dynamic Admission Control".
"""

from __future__ import annotations

import enum
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


# Plan of a rotation: which step of the webhook's certificate is due. Pure.
#
#     KEEP ──30 days before expiry──▶ PREPARE ──10 minutes──▶ PROMOTE ──1 hour──▶ RETIRE ──▶ KEEP
#      any state ──the pair is missing, damaged, expiring, not valid yet or of other names──▶ ISSUE
#
# PREPARE makes the next pair and has API servers trust both authorities, while replicas serve the
# present one; PROMOTE has replicas serve the next one, each when it sees the file change; RETIRE
# drops the old authority once no replica can serve its certificate. So neither replica is refused
# in between. ISSUE cannot wait: the authorities that API servers trust are kept beside the new
# one.

RENEW_BEFORE = timedelta(days=30)
TRUSTED_AFTER = timedelta(minutes=10)
"""Time for all API servers to see a webhook configuration."""
UNUSED_AFTER = timedelta(hours=1)
"""Time for all replicas to see a Secret in their files."""
_URGENT = TRUSTED_AFTER + timedelta(hours=1)
_MOST_OLD = 2
_LOOK_AGAIN = timedelta(hours=12)


class Step(enum.Enum):
    """What is done next."""

    KEEP = "keep"
    ISSUE = "issue"
    PREPARE = "prepare"
    PROMOTE = "promote"
    RETIRE = "retire"


class Certificates(msgspec.Struct, frozen=True):
    """The certificates of a webhook: what it serves, what it will serve, what is still trusted.

    `changed` is when the last step was taken, None if that is not known.
    """

    current: ServingPair | None = None
    next: ServingPair | None = None
    old: tuple[str, ...] = ()
    changed: datetime | None = None

    @property
    def bundle(self) -> str:
        """Return the authorities that API servers must trust, as PEM text."""
        pairs = (self.current, self.next)
        present = [pair.authority for pair in pairs if pair is not None]
        return "".join(dict.fromkeys([*present, *self.old]))


def next_step(
    present: Certificates, hosts: frozenset[str], now: datetime
) -> tuple[Step, timedelta]:
    """Return the step that is due, and after which time to look again."""
    current = present.current
    if current is None or current.hosts != hosts or current.expires - now < _URGENT:
        return Step.ISSUE, timedelta()
    if current.begins > now:
        # Issued by a clock that was ahead by more than the skew that certificates allow.
        return Step.ISSUE, timedelta()
    since = now - present.changed if present.changed is not None else timedelta()
    # A clock that was set back must not stop a rotation for ever.
    since = max(since, timedelta())
    if present.next is not None:
        following = present.next
        is_due = following.expires - now < RENEW_BEFORE
        if following.hosts != hosts or is_due or following.begins > now:
            return Step.PREPARE, timedelta()
        if present.changed is not None and since >= TRUSTED_AFTER:
            return Step.PROMOTE, timedelta()
        return Step.KEEP, TRUSTED_AFTER - since
    if current.expires - now < RENEW_BEFORE:
        return Step.PREPARE, timedelta()
    if present.old:
        if present.changed is not None and since >= UNUSED_AFTER:
            return Step.RETIRE, timedelta()
        return Step.KEEP, UNUSED_AFTER - since
    return Step.KEEP, min(_LOOK_AGAIN, current.expires - RENEW_BEFORE - now)


def after_step(
    present: Certificates, step: Step, issued: ServingPair | None, now: datetime
) -> Certificates:
    """Return the certificates after a step; `issued` is the new pair of ISSUE and PREPARE."""
    current = present.current
    match step:
        case Step.ISSUE:
            pairs = (current, present.next)
            kept = [pair.authority for pair in pairs if pair is not None and pair.expires > now]
            old = tuple(dict.fromkeys([*kept, *present.old]))[:_MOST_OLD]
            return Certificates(issued, None, old, now)
        case Step.PREPARE:
            return Certificates(current, issued, present.old, now)
        case Step.PROMOTE:
            assert current is not None
            old = tuple(dict.fromkeys([current.authority, *present.old]))[:_MOST_OLD]
            return Certificates(present.next, None, old, now)
        case Step.RETIRE:
            return Certificates(current, present.next, (), now)
    # The time of the last step was lost.
    return msgspec.structs.replace(present, changed=present.changed or now)
