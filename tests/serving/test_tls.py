"""TLS of servers: client certificates are asked for where there is an authority."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from moorage.cluster.certificates import Authority, Subject
from moorage.serving import server_context


def test_client_certificates_are_optional_where_there_is_an_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path, datetime.now(UTC))
    pair = authority.issue("server", Subject("server", hosts=("127.0.0.1",)))
    alone = server_context(pair.certificate, pair.key)
    asking = server_context(pair.certificate, pair.key, authority.pair.certificate)
    assert (alone.verify_mode, asking.verify_mode) == (ssl.CERT_NONE, ssl.CERT_OPTIONAL)
    assert [len(context.get_ca_certs()) for context in (alone, asking)] == [0, 1]
    assert {context.minimum_version for context in (alone, asking)} == {ssl.TLSVersion.TLSv1_2}
    with pytest.raises(FileNotFoundError):
        server_context(tmp_path / "none", pair.key)
