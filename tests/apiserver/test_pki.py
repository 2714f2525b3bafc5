"""Keys and certificates that a server is given."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from moorage.apiserver.pki import load_signing_key, server_context
from moorage.cluster.certificates import Authority, Subject


def _written(path: Path, key: Any) -> Path:
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


def test_a_signing_key_is_read(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    loaded = load_signing_key(_written(tmp_path / "key", key))
    assert loaded.private_numbers() == key.private_numbers()


@pytest.mark.parametrize(
    "key", [ec.generate_private_key(ec.SECP384R1()), ed25519.Ed25519PrivateKey.generate()]
)
def test_another_kind_of_key_is_refused(tmp_path: Path, key: Any) -> None:
    with pytest.raises(ValueError, match="not a P-256 private key"):
        load_signing_key(_written(tmp_path / "key", key))


def test_a_client_may_show_a_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki", datetime.now(UTC))
    pair = authority.issue("server", Subject("server", hosts=("127.0.0.1",)))
    context = server_context(pair.certificate, pair.key, authority.pair.certificate)
    assert context.verify_mode is ssl.CERT_OPTIONAL
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert len(context.get_ca_certs()) == 1
    assert context.protocol is ssl.PROTOCOL_TLS_SERVER
    client = ssl.create_default_context(cafile=str(authority.pair.certificate))
    client.set_alpn_protocols(["h2", "http/1.1"])
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(down, up, server_hostname="127.0.0.1")
    theirs = context.wrap_bio(up, down, server_side=True)
    for _ in range(4):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert ours.selected_alpn_protocol() == "http/1.1"
