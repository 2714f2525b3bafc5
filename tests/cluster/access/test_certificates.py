from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from moorage.cluster.access.credentials import Pair
from moorage.cluster.access.identities import Authority, AuthorityError, LostKeyError, Subject

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SERVER = Subject("apiserver", hosts=("localhost", "127.0.0.1"))
CLIENT = Subject("admin", "system:masters")


def certificate(pair: Pair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate.read_bytes())


def test_a_second_start_uses_what_the_first_one_made(tmp_path: Path) -> None:
    first = Authority(tmp_path, NOW)
    before = first.issue("server", SERVER).certificate.read_bytes()
    second = Authority(tmp_path, NOW + timedelta(days=100))
    assert second.issue("server", SERVER).certificate.read_bytes() == before
    assert first.signing_key().read_bytes() == second.signing_key().read_bytes()


@pytest.mark.parametrize(
    ("days", "subject"),
    [(300, SERVER), (0, Subject("apiserver", hosts=("localhost", "10.0.0.1"))), (0, CLIENT)],
)
def test_certificate_near_expiry_or_for_other_names_is_issued_again(
    tmp_path: Path, days: int, subject: Subject
) -> None:
    before = Authority(tmp_path, NOW).issue("x", SERVER).certificate.read_bytes()
    later = Authority(tmp_path, NOW + timedelta(days=days))
    assert later.issue("x", subject).certificate.read_bytes() != before


def test_keys_are_for_their_owner_only(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki", NOW)
    pair = authority.issue("admin", CLIENT)
    for path in (pair.key, pair.certificate, authority.pair.key, authority.signing_key()):
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_client_is_its_common_name_and_organization(tmp_path: Path) -> None:
    made = certificate(Authority(tmp_path, NOW).issue("admin", CLIENT))
    assert made.subject.rfc4514_string() == "CN=admin,O=system:masters"


def test_both_sides_of_a_connection_trust_what_was_issued(tmp_path: Path) -> None:
    authority = Authority(tmp_path, datetime.now(UTC))
    server, client = authority.issue("server", SERVER), authority.issue("admin", CLIENT)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(server.certificate, server.key)
    serving.load_verify_locations(authority.pair.certificate)
    serving.verify_mode = ssl.CERT_REQUIRED
    asking = ssl.create_default_context(cafile=authority.pair.certificate)
    asking.load_cert_chain(client.certificate, client.key)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        asking.wrap_bio(to_client, to_server, server_hostname="localhost"),
        serving.wrap_bio(to_server, to_client, server_side=True),
    )
    done = [False, False]
    for _ in range(10):
        for index, side in enumerate(sides):
            try:
                side.do_handshake()
                done[index] = True
            except ssl.SSLWantReadError:
                continue
    assert done == [True, True]
    assert sides[1].getpeercert() is not None


_USES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
    "key_agreement", "key_cert_sign", "crl_sign",
)  # fmt: skip


def _uses(made: x509.Certificate) -> set[str]:
    usage = made.extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    return {name for name in _USES if getattr(usage.value, name)}


def test_the_authority_signs_and_does_nothing_else(tmp_path: Path) -> None:
    made = certificate(Authority(tmp_path, NOW).pair)
    assert made.subject.rfc4514_string() == made.issuer.rfc4514_string() == "CN=moorage-ca"
    basic = made.extensions.get_extension_for_class(x509.BasicConstraints)
    # It signs no other authority. RFC 5280 §4.2.1.9.
    assert (basic.critical, basic.value.ca, basic.value.path_length) == (True, True, 0)
    assert _uses(made) == {"key_cert_sign", "crl_sign"}


@pytest.mark.parametrize(
    ("subject", "use", "names"),
    [
        (SERVER, ExtendedKeyUsageOID.SERVER_AUTH, ["localhost", "127.0.0.1"]),
        (CLIENT, ExtendedKeyUsageOID.CLIENT_AUTH, None),
    ],
)
def test_what_a_certificate_is_for(
    tmp_path: Path, subject: Subject, use: x509.ObjectIdentifier, names: list[str] | None
) -> None:
    authority = Authority(tmp_path, NOW)
    made = certificate(authority.issue("x", subject))
    made.verify_directly_issued_by(certificate(authority.pair))
    basic = made.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (basic.critical, basic.value.ca, basic.value.path_length) == (True, False, None)
    assert _uses(made) == {"digital_signature"}
    extended = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    assert (extended.critical, list(extended.value)) == (False, [use])
    if names is None:
        with pytest.raises(x509.ExtensionNotFound):
            made.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        return
    alternative = made.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert [str(name.value) for name in alternative.value] == names
    assert not alternative.critical


def test_how_long_certificates_last(tmp_path: Path) -> None:
    authority = Authority(tmp_path, NOW)
    issued = certificate(authority.issue("x", SERVER))
    for made, days in ((certificate(authority.pair), 3650), (issued, 365)):
        assert made.not_valid_before_utc == NOW - timedelta(minutes=5)
        assert made.not_valid_after_utc == NOW + timedelta(days=days)
    assert isinstance(issued.public_key(), ec.EllipticCurvePublicKey)


@pytest.mark.parametrize(
    ("later", "is_renewed"),
    [
        # 90 days before its end.
        (timedelta(days=275) - timedelta(seconds=1), False),
        (timedelta(days=275), True),
        # The clock was put back: before its beginning no client accepts it.
        (-timedelta(minutes=5), False),
        (-timedelta(minutes=5, seconds=1), True),
    ],
)
def test_when_a_certificate_is_renewed(tmp_path: Path, later: timedelta, is_renewed: bool) -> None:
    before = Authority(tmp_path, NOW).issue("x", SERVER).certificate.read_bytes()
    after = Authority(tmp_path, NOW + later).issue("x", SERVER).certificate.read_bytes()
    assert (after != before) is is_renewed


@pytest.mark.parametrize("file_name", ["ca.crt", "ca.key"])
def test_lost_authority_is_refused_with_what_to_do(tmp_path: Path, file_name: str) -> None:
    Authority(tmp_path, NOW)
    (tmp_path / file_name).unlink()
    with pytest.raises(LostKeyError) as refused:
        Authority(tmp_path, NOW, is_new=False)
    assert str(refused.value) == (
        f"{tmp_path / file_name} is gone; put it back from a copy, or let a new one be made with "
        "`moor up --accept-loss`: every kubeconfig then has to be replaced, and pods that trust "
        "the old authority have to be made again"
    )


def test_replacement_of_an_expired_authority_survives_a_crash(tmp_path: Path) -> None:
    first = Authority(tmp_path, NOW)
    expired = first.pair.certificate.read_bytes()
    later = NOW + timedelta(days=365 * 30)
    second = Authority(tmp_path, later)
    assert second.pair.certificate.read_bytes() != expired
    # The crash: the new key is written, the new certificate is not.
    second.pair.certificate.write_bytes(expired)
    third = Authority(tmp_path, later)
    assert third.pair.certificate.read_bytes() != expired
    assert third.issue("client", CLIENT).certificate.exists()


def test_lost_signing_key_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = Authority(tmp_path, NOW).signing_key()
    path.unlink()
    with pytest.raises(LostKeyError) as refused:
        Authority(tmp_path, NOW, is_new=False).signing_key()
    assert str(refused.value) == (
        f"{path} is gone; put it back from a copy, or let a new one be made with "
        "`moor up --accept-loss`: service account tokens given out before are then refused"
    )
    assert not path.exists()


def test_authority_with_another_key_is_refused_with_what_to_do(tmp_path: Path) -> None:
    pair = Authority(tmp_path / "a", NOW).pair
    pair.key.write_bytes(Authority(tmp_path / "b", NOW).pair.key.read_bytes())
    with pytest.raises(AuthorityError) as refused:
        Authority(tmp_path / "a", NOW)
    assert str(refused.value) == (
        f"{pair.certificate} and {pair.key} are damaged (the key is not the certificate's); put "
        "them back as they were, or remove both and run `moor up --accept-loss`: the cluster then "
        "gets a new authority, and every kubeconfig has to be replaced"
    )
