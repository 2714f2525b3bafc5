"""Signing of certificate requests with the cluster's authority.

A certificate has the request's subject, key and alternative names, and the usages that were
approved; every other extension is dropped. Source: kube-controller-manager `csrsigning`, its
`PermissiveSigningPolicy`, of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from moorage.api.certificate_requests import CertificateRequest
from moorage.api.issued_certificates import certificate_builder
from moorage.controllers.certificates.rules import CLIENT_AUTH, SERVER_AUTH

LONGEST = timedelta(days=365)
"""`--cluster-signing-duration`: the default and the limit of what requests ask for."""
SHORTEST = timedelta(minutes=10)
_BACKDATE = timedelta(minutes=5)
_SHORT = timedelta(hours=8)
"""Below this, the end of a certificate is not moved to the past with its start."""

_PURPOSES = {
    SERVER_AUTH: ExtendedKeyUsageOID.SERVER_AUTH,
    CLIENT_AUTH: ExtendedKeyUsageOID.CLIENT_AUTH,
}


class ExpiredAuthorityError(Exception):
    """The authority's certificate has expired: what it signs would be refused."""


def validity(
    seconds: int | None, now: datetime, authority_end: datetime
) -> tuple[datetime, datetime]:
    """Return start and end of a certificate that is to last so many seconds, None for the default.

    Raises ExpiredAuthorityError.
    """
    if now >= authority_end:
        raise ExpiredAuthorityError(
            f"refusing to sign a certificate that expired in the past: NotAfter={authority_end}"
        )
    wanted = LONGEST if seconds is None else timedelta(seconds=seconds)
    life = max(SHORTEST, min(LONGEST, wanted))
    end = now + life if life < _SHORT else now + life - _BACKDATE
    return now - _BACKDATE, min(end, authority_end)


@dataclass(frozen=True, slots=True)
class SigningAuthority:
    """The cluster's certificate authority with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def load(cls, certificate: str, key: Path) -> Self:
        """Return the authority of a certificate in PEM. Raises OSError and ValueError."""
        private = serialization.load_pem_private_key(key.read_bytes(), password=None)
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{key}: not an elliptic curve key")
        return cls(x509.load_pem_x509_certificate(certificate.encode()), private)

    def sign(
        self,
        request: CertificateRequest,
        usages: Collection[str],
        seconds: int | None,
        now: datetime,
    ) -> bytes:
        """Return a certificate in PEM. Raises ExpiredAuthorityError, CertificateRequestError."""
        request.check_signature()
        start, end = validity(seconds, now, self.certificate.not_valid_after_utc)
        builder = certificate_builder(
            request.subject, self.certificate.subject, request.public_key, start, end
        ).add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        if (key_usage := _key_usage(usages)) is not None:
            builder = builder.add_extension(key_usage, critical=True)
        purposes = [oid for usage, oid in _PURPOSES.items() if usage in usages]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        if request.names:
            names = x509.SubjectAlternativeName(request.names)
            builder = builder.add_extension(names, critical=not list(request.subject))
        certificate = builder.sign(self.key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM)


def _key_usage(usages: Collection[str]) -> x509.KeyUsage | None:
    """Return the key's usages; None without one, as an empty extension is invalid."""
    signs, encrypts = "digital signature" in usages, "key encipherment" in usages
    if not signs and not encrypts:
        return None
    return x509.KeyUsage(
        digital_signature=signs,
        key_encipherment=encrypts,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
