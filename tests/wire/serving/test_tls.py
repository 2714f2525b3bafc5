"""TLS of servers: client certificates are asked for where there is an authority."""

from __future__ import annotations

import ssl
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from moorage.cluster.access.credentials import Pair
from moorage.cluster.access.identities import Authority, Subject
from moorage.wire.serving import server_context


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki", datetime.now(UTC))


@pytest.fixture
def pair(authority: Authority) -> Pair:
    return authority.issue("server", Subject("server", hosts=("127.0.0.1",)))


def test_client_certificates_are_optional_where_there_is_an_authority(
    authority: Authority, pair: Pair, tmp_path: Path
) -> None:
    alone = server_context(pair.certificate, pair.key)
    asking = server_context(pair.certificate, pair.key, authority.pair.certificate)
    assert (alone.verify_mode, asking.verify_mode) == (ssl.CERT_NONE, ssl.CERT_OPTIONAL)
    assert [len(context.get_ca_certs()) for context in (alone, asking)] == [0, 1]
    versions = [context.minimum_version for context in (alone, asking)]
    assert versions == [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
    with pytest.raises(FileNotFoundError):
        server_context(tmp_path / "none", pair.key)


def _connected(client: ssl.SSLContext, server: ssl.SSLContext) -> ssl.SSLObject:
    """Return the client's side of a connection over which the server wrote."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(down, up, server_hostname="127.0.0.1")
    theirs = server.wrap_bio(up, down, server_side=True)
    for _ in range(4):
        for side in (ours, theirs):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    theirs.write(b"x")
    assert ours.read() == b"x"
    return ours


def test_a_connection_is_http_1_and_no_session_of_a_clients_certificate_is_kept(
    authority: Authority, pair: Pair
) -> None:
    server = server_context(pair.certificate, pair.key, authority.pair.certificate)
    client = ssl.create_default_context(cafile=str(authority.pair.certificate))
    client.set_alpn_protocols(["h2", "http/1.1"])
    user = authority.issue("user", Subject("user"))
    client.load_cert_chain(user.certificate, user.key)
    ours = _connected(client, server)
    assert ours.selected_alpn_protocol() == "http/1.1"
    assert ours.session is None or not ours.session.has_ticket
    assert server.session_stats()["number"] == 0
    # Such sessions would be resumed without a look at the certificate, and fill the memory.
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        _connected(client, server)


def test_servers_without_client_certificates_speak_1_2_too(
    authority: Authority, pair: Pair
) -> None:
    client = ssl.create_default_context(cafile=str(authority.pair.certificate))
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    ours = _connected(client, server_context(pair.certificate, pair.key))
    assert ours.version() == "TLSv1.2"
    assert ours.session is not None
    assert not ours.session.has_ticket
