"""TLS of servers: client certificates are asked for where there is an authority."""

from __future__ import annotations

import ssl
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from moorage.cluster.certificates import Authority, Subject
from moorage.cluster.credentials import Pair
from moorage.serving import server_context


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
    assert {context.minimum_version for context in (alone, asking)} == {ssl.TLSVersion.TLSv1_2}
    with pytest.raises(FileNotFoundError):
        server_context(tmp_path / "none", pair.key)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_connection_is_http_1_and_no_session_can_be_resumed(
    authority: Authority, pair: Pair, version: ssl.TLSVersion
) -> None:
    client = ssl.create_default_context(cafile=str(authority.pair.certificate))
    client.set_alpn_protocols(["h2", "http/1.1"])
    client.maximum_version = version
    user = authority.issue("user", Subject("user"))
    client.load_cert_chain(user.certificate, user.key)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(down, up, server_hostname="127.0.0.1")
    theirs = server_context(pair.certificate, pair.key, authority.pair.certificate).wrap_bio(
        up, down, server_side=True
    )
    for _ in range(4):
        for side in (ours, theirs):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    theirs.write(b"x")
    assert ours.read() == b"x"
    assert ours.selected_alpn_protocol() == "http/1.1"
    assert ours.session is None or not ours.session.has_ticket
