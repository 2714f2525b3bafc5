"""What holds of a directory of certificates whatever happened to it."""

from __future__ import annotations

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization


def assert_pairs_fit(directory: Path) -> None:
    """Every certificate is of the directory's authority, and has its own key beside it."""
    authority = x509.load_pem_x509_certificate((directory / "ca.crt").read_bytes())
    for path in directory.glob("*.crt"):
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        key = serialization.load_pem_private_key(path.with_suffix(".key").read_bytes(), None)
        assert certificate.public_key() == key.public_key(), path
        certificate.verify_directly_issued_by(authority)
