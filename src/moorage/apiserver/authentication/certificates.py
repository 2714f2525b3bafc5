"""X.509 client certificates: user from the common name, groups from the organizations.

The TLS layer has verified the chain; a certificate without client usage is refused here.
Of several common names the last counts, as where certificate requests are judged: a request must
not be approved for one name and let its holder call as another.

Source: API docs "X509 client certificates"; Go's `pkix.Name`.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from moorage.apiserver.registry.request import AUTHENTICATED, User

if TYPE_CHECKING:
    from cryptography import x509

CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"


def user_of_certificate(der: bytes) -> User | None:
    """Return the user of a verified certificate (DER), None if it has no common name."""
    # Imported at the first certificate: it takes a tenth of a server's start.
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    certificate = x509.load_der_x509_certificate(der)
    if not _is_for_clients(certificate):
        return None
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if not names or not str(names[-1].value):
        return None
    organizations = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    groups = tuple(str(organization.value) for organization in organizations)
    fingerprint = hashlib.sha256(der).hexdigest()
    return User(
        name=str(names[-1].value),
        groups=(*groups, AUTHENTICATED),
        extra={CREDENTIAL_ID: (f"X509SHA256={fingerprint}",)},
    )


def _is_for_clients(certificate: x509.Certificate) -> bool:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return any(
        usage in (ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE)
        for usage in usages
    )
