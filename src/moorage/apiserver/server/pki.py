"""Keys: loading PEM files from disk."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key


def load_signing_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Load the service account signing key. Raises ValueError when it is not P-256."""
    key = load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
        raise ValueError(f"{path}: not a P-256 private key")
    return key
