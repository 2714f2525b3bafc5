"""PKCS#10 requests: what API server and signers read of them.

Source: RFC 2986; apis `certificates.ParseCSR`, and Go's `x509.ParseCertificateRequest`, whose
texts of failed signatures are used.
"""

from __future__ import annotations

from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import NameOID

from moorage.api.certificates import first_block

_BLOCK_TYPE = "CERTIFICATE REQUEST"
_MALFORMED = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
_SIGNED_NAMES = (
    x509.DNSName,
    x509.RFC822Name,
    x509.IPAddress,
    x509.UniformResourceIdentifier,
)


class CertificateRequestError(ValueError):
    """A request cannot be read, or its signature is not its key's."""


@dataclass(frozen=True, slots=True)
class CertificateRequest:
    """A parsed request: the subject and the alternative names of the kinds that get signed."""

    subject: x509.Name
    public_key: CertificatePublicKeyTypes
    names: tuple[x509.GeneralName, ...]
    raw: x509.CertificateSigningRequest

    @property
    def common_name(self) -> str:
        """The last common name of the subject, `""` without any."""
        return next(reversed(self._values(NameOID.COMMON_NAME)), "")

    @property
    def organizations(self) -> tuple[str, ...]:
        return self._values(NameOID.ORGANIZATION_NAME)

    def has_name(self, name_type: type[x509.GeneralName]) -> bool:
        """Return whether an alternative name of that type is requested."""
        return any(isinstance(name, name_type) for name in self.names)

    def check_signature(self) -> None:
        """Raise CertificateRequestError unless the request is signed with the key in it."""
        try:
            is_valid = self.raw.is_signature_valid
        except (UnsupportedAlgorithm, InvalidSignature, ValueError, TypeError) as error:
            detail = "x509: cannot verify signature: algorithm unimplemented"
            raise CertificateRequestError(detail) from error
        if not is_valid:
            raise CertificateRequestError(_failure_of(self.public_key))

    def _values(self, oid: x509.ObjectIdentifier) -> tuple[str, ...]:
        return tuple(str(attribute.value) for attribute in self.subject.get_attributes_for_oid(oid))


def parse_pem_request(text: bytes) -> CertificateRequest:
    """Parse the first block of a PEM text. Raises CertificateRequestError."""
    block = first_block(text)
    if block is None or block.type != _BLOCK_TYPE:
        raise CertificateRequestError(f"PEM block type must be {_BLOCK_TYPE}")
    return parse_request(block.content)


def parse_request(der: bytes) -> CertificateRequest:
    """Parse a request in DER. Raises CertificateRequestError."""
    try:
        raw = x509.load_der_x509_csr(der)
        return CertificateRequest(raw.subject, raw.public_key(), _names(raw), raw)
    except _MALFORMED as error:
        raise CertificateRequestError("x509: malformed certificate request") from error


def _names(request: x509.CertificateSigningRequest) -> tuple[x509.GeneralName, ...]:
    try:
        extension = request.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    return tuple(name for name in extension.value if isinstance(name, _SIGNED_NAMES))


def _failure_of(key: CertificatePublicKeyTypes) -> str:
    if isinstance(key, rsa.RSAPublicKey):
        return "crypto/rsa: verification error"
    if isinstance(key, ec.EllipticCurvePublicKey):
        return "x509: ECDSA verification failure"
    if isinstance(key, ed25519.Ed25519PublicKey):
        return "x509: Ed25519 verification failure"
    return "x509: cannot verify signature: algorithm unimplemented"
