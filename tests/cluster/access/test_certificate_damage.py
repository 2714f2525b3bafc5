"""Certificates after a crash, a restored backup, or a clock that was wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from moorage.cluster.access.identities import Authority, AuthorityError, LostKeyError, Subject
from tests.cluster.access.certificate_checks import assert_pairs_fit

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SERVER = Subject("apiserver", hosts=("localhost", "127.0.0.1"))


@pytest.mark.parametrize("suffix", ["crt", "key"])
@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN", b"\xff"])
def test_damaged_leaf_is_issued_again(tmp_path: Path, suffix: str, content: bytes | None) -> None:
    Authority(tmp_path, NOW).issue("server", SERVER)
    path = tmp_path / f"server.{suffix}"
    path.unlink() if content is None else path.write_bytes(content)
    Authority(tmp_path, NOW).issue("server", SERVER)
    assert_pairs_fit(tmp_path)


def test_leaf_with_the_key_of_another_is_issued_again(tmp_path: Path) -> None:
    authority = Authority(tmp_path, NOW)
    server, other = authority.issue("server", SERVER), authority.issue("other", SERVER)
    # As a crash leaves it between the key and its certificate.
    server.key.write_bytes(other.key.read_bytes())
    Authority(tmp_path, NOW).issue("server", SERVER)
    assert_pairs_fit(tmp_path)


def test_leaves_of_a_lost_authority_are_issued_again(tmp_path: Path) -> None:
    authority = Authority(tmp_path, NOW)
    authority.issue("server", SERVER)
    authority.pair.certificate.unlink()
    Authority(tmp_path, NOW).issue("server", SERVER)
    assert_pairs_fit(tmp_path)


def test_an_authority_with_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    pair = Authority(tmp_path, NOW).pair
    key = ed25519.Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "moorage-ca")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=1))
        .sign(key, None)
    )
    pair.certificate.write_bytes(made.public_bytes(Encoding.PEM))
    pair.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(AuthorityError, match=r"ca\.key: not an elliptic curve key"):
        Authority(tmp_path, NOW)


@pytest.mark.parametrize("damage", ["key", "certificate", "swap"])
def test_a_damaged_authority_is_not_replaced(tmp_path: Path, damage: str) -> None:
    authority = Authority(tmp_path / "pki", NOW)
    if damage == "key":
        authority.pair.key.write_bytes(b"")
    elif damage == "certificate":
        authority.pair.certificate.write_bytes(b"half of one")
    else:
        other = Authority(tmp_path / "other", NOW)
        authority.pair.key.write_bytes(other.pair.key.read_bytes())
    before = authority.pair.certificate.read_bytes()
    with pytest.raises(AuthorityError, match=r"ca\.crt and .*ca\.key are damaged"):
        Authority(tmp_path / "pki", NOW)
    assert authority.pair.certificate.read_bytes() == before


@pytest.mark.parametrize("suffix", ["crt", "key"])
def test_a_lost_authority_is_not_replaced_once_it_was_used(tmp_path: Path, suffix: str) -> None:
    Authority(tmp_path, NOW).issue("server", SERVER)
    lost = tmp_path / f"ca.{suffix}"
    lost.unlink()
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(LostKeyError, match=rf"ca\.{suffix} is gone; .*--accept-loss"):
        Authority(tmp_path, NOW, is_new=False)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_lost_signing_key_is_not_replaced_once_it_was_used(tmp_path: Path) -> None:
    Authority(tmp_path, NOW).signing_key().unlink()
    with pytest.raises(LostKeyError, match=r"service-accounts\.key is gone; .*--accept-loss"):
        Authority(tmp_path, NOW, is_new=False).signing_key()
    assert not (tmp_path / "service-accounts.key").exists()


@pytest.mark.parametrize("years", [-56, -1, 1, 11])
def test_a_clock_that_was_years_off_is_got_over(tmp_path: Path, years: int) -> None:
    Authority(tmp_path, NOW + timedelta(days=365 * years)).issue("server", SERVER)
    Authority(tmp_path, NOW).issue("server", SERVER)
    assert_pairs_fit(tmp_path)
    for name in ("ca", "server"):
        certificate = x509.load_pem_x509_certificate((tmp_path / f"{name}.crt").read_bytes())
        assert certificate.not_valid_before_utc <= NOW < certificate.not_valid_after_utc
