"""Keys and certificates: loading PEM files from disk."""

from __future__ import annotations

import ssl
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key


def load_signing_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Load the service account signing key. Raises ValueError when it is not P-256."""
    key = load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
        raise ValueError(f"{path}: not a P-256 private key")
    return key


def server_context(certificate: Path, key: Path, client_ca: Path) -> ssl.SSLContext:
    """Return a TLS context that requests a client certificate but does not require one.

    A certificate that fails verification fails the handshake: bad credentials never fall back.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(client_ca)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.set_alpn_protocols(["http/1.1"])
    return context
