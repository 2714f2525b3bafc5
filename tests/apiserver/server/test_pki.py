"""Keys that a server is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from moorage.apiserver.server.pki import load_signing_key


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
