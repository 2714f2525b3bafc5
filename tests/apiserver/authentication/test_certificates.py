"""Users in client certificates, from subjects of every kind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from moorage.api.certificate_requests import parse_request
from moorage.apiserver.authentication.certificates import user_of_certificate

CN, O, OU = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME  # noqa: E741
CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH
ANY, CODE = ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE, ExtendedKeyUsageOID.CODE_SIGNING


def certificate(
    *names: tuple[ObjectIdentifier, str], usages: tuple[ObjectIdentifier, ...] | None = (CLIENT,)
) -> bytes:
    """A self-signed certificate (DER) with this subject."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(x509.NameAttribute(*name) for name in names)
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.Name([x509.NameAttribute(CN, "ca")]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
    )
    if usages is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    "names",
    [(), ((O, "system:masters"),), ((OU, "alice"), (O, "dev"))],
    ids=["empty", "only a group", "another kind of name"],
)
def test_certificate_without_common_name_names_no_user(
    names: tuple[tuple[ObjectIdentifier, str], ...],
) -> None:
    # Not even its groups: its holder would be an administrator without a name.
    assert user_of_certificate(certificate(*names)) is None


def test_the_last_common_name_counts_and_every_organization() -> None:
    names = ((O, "dev"), (CN, "alice"), (CN, "bob"), (O, "ops"), (OU, "unit"))
    user = user_of_certificate(certificate(*names))
    assert user is not None
    assert user.name == "bob"
    assert user.groups == ("dev", "ops", "system:authenticated")
    assert user.uid == ""


@pytest.mark.parametrize(
    ("usages", "is_known"),
    [
        (None, True),
        ((CLIENT,), True),
        ((ANY,), True),
        ((SERVER, CLIENT), True),
        ((SERVER,), False),
        ((CODE, SERVER), False),
    ],
)
def test_only_certificates_for_clients_name_a_user(
    usages: tuple[ObjectIdentifier, ...] | None, is_known: bool
) -> None:
    user = user_of_certificate(certificate((CN, "alice"), usages=usages))
    assert (user is not None) is is_known


def test_the_credential_is_named_by_its_fingerprint() -> None:
    der = certificate((CN, "alice"))
    user, other = user_of_certificate(der), user_of_certificate(certificate((CN, "alice")))
    fingerprint = x509.load_der_x509_certificate(der).fingerprint(hashes.SHA256()).hex()
    assert user is not None
    assert other is not None
    key = "authentication.kubernetes.io/credential-id"
    assert user.extra == {key: (f"X509SHA256={fingerprint}",)}
    assert other.extra != user.extra


def test_a_certificate_request_is_judged_by_the_name_that_its_certificate_will_give() -> None:
    names = [x509.NameAttribute(CN, "system:kube-controller-manager"),
             x509.NameAttribute(CN, "system:node:one")]  # fmt: skip
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(names))
    requested = parse_request(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER))
    user = user_of_certificate(certificate(*((name.oid, str(name.value)) for name in names)))
    assert user is not None
    assert user.name == requested.common_name == "system:node:one"
