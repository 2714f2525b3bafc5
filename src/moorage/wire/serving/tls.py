"""TLS of servers: their certificate, and how clients may prove theirs."""

from __future__ import annotations

import ssl
from pathlib import Path


def server_context(
    certificate: Path, key: Path, client_authority: Path | None = None
) -> ssl.SSLContext:
    """Return a server's TLS context, for HTTP/1.1.

    With `client_authority`, certificates of clients are optional, and verified when presented: a
    client without one gets an HTTP status instead of a failed handshake, and bad credentials never
    fall back. Clients need TLS 1.3 then, else 1.2. Raises OSError for files that are missing or
    unusable.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    if client_authority is not None:
        context.load_verify_locations(client_authority)
        context.verify_mode = ssl.CERT_OPTIONAL
        # With 1.2 OpenSSL keeps 20,480 sessions in memory, each with the chain that its client
        # sent, and resumes them; Python cannot turn that off.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["http/1.1"])
    # A resumed session verifies no certificate again, be it expired meanwhile. Clients of the API
    # resume none, and to write tickets takes a tenth of a handshake's processor time.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    return context
