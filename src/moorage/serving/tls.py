"""TLS of servers other than the API server: their certificate, and how clients may prove theirs."""

from __future__ import annotations

import ssl
from pathlib import Path


def server_context(
    certificate: Path, key: Path, client_authority: Path | None = None
) -> ssl.SSLContext:
    """Return a server's TLS context.

    With `client_authority`, certificates of clients are optional, and verified when presented: a
    client without one gets an HTTP status instead of a failed handshake. Raises OSError for files
    that are missing or unusable.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    if client_authority is not None:
        context.load_verify_locations(client_authority)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context
