"""Addresses of servers: what is one, and that its URL leads there and nowhere else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.apiserver.endpoints.node_agents import (
    ServerAddress,
    host_name,
    is_port,
    port_number,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.5", "10.0.0.5"), ("FD00:0::5", "fd00::5"), ("Node-1.example", "node-1.example"),
        ("x@127.0.0.1", None), ("127.0.0.1:80", None), ("a/b", None), ("a b", None), ("", None),
        ("fe80::1%eth0", None), ("[::1]", None), ("a..b", None), ("-a", None), ("é", None),
        ("a" * 254, None),
    ],
)  # fmt: skip
def test_hosts(text: str, expected: str | None) -> None:
    assert host_name(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", 1), ("65535", 65535), ("0", None), ("65536", None), ("٨٠", None), ("80@h", None)],
)
def test_ports(text: str, expected: int | None) -> None:
    assert port_number(text) == expected
    assert [is_port(number) for number in (0, 1, 65535, 65536, -1)] == [
        False, True, True, False, False,
    ]  # fmt: skip


@given(target=st.text(alphabet="/@:?#[]%\\a.", max_size=20))
def test_no_path_leads_to_another_server(target: str) -> None:
    url = ServerAddress("http", "10.0.0.5", 80).url(f"/{target}")
    assert (url.raw_host, url.port, url.raw_user) == ("10.0.0.5", 80, None)


@pytest.mark.parametrize("host", ["80@127.0.0.77", "127.0.0.77:80@x", "127.0.0.1/", "127.0.0.1#"])
def test_a_host_that_a_parser_divides_differently_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match=r"not the address|Invalid"):
        ServerAddress("http", host, 80).url("/x")
