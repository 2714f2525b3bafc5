"""Who listens where: read from /proc of a process that listens."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from moorage.linux.listeners import (
    _target,
    is_listening,
    listener_of,
    parse_address,
    tcp_listeners,
)

LOOPBACK, ANY = IPv4Address("127.0.0.1"), IPv4Address("0.0.0.0")
LISTENS = """
import socket, sys
sockets = [socket.create_server(("127.0.0.1", 0)), socket.create_server(("0.0.0.0", 0))]
sockets.append(socket.create_server(("127.0.0.2", 0)))
own = socket.socket(socket.AF_UNIX)
own.bind(sys.argv[1])
own.listen()
# One that is bound and does not listen, and one that is connected.
bound = socket.socket(); bound.bind(("127.0.0.1", 0))
client = socket.create_connection(sockets[0].getsockname())
print(*(each.getsockname()[1] for each in sockets), flush=True)
sys.stdin.read()
"""


def test_the_ports_of_the_process_behind_a_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with subprocess.Popen(
        [sys.executable, "-c", LISTENS, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        ports = [int(port) for port in process.stdout.readline().split()]
        assert listener_of(path) == process.pid
        listeners = tcp_listeners(process.pid)
        process.communicate("", timeout=30)
    addresses = (LOOPBACK, ANY, IPv4Address("127.0.0.2"))
    assert listeners == tuple(sorted(zip(addresses, ports, strict=True)))
    with pytest.raises(OSError, match="No such file"):
        tcp_listeners(process.pid)
    with pytest.raises(ConnectionRefusedError):
        listener_of(path)


def test_closed_sockets_are_not_listed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours:
        port = ours.getsockname()[1]
        assert (LOOPBACK, port) in tcp_listeners(os.getpid())
    assert (LOOPBACK, port) not in tcp_listeners(os.getpid())


@pytest.mark.skipif(sys.byteorder != "little", reason="as a little-endian machine prints them")
@pytest.mark.parametrize(
    ("digits", "address"),
    [
        ("0100007F", LOOPBACK),
        ("00000000", ANY),
        ("0" * 32, ANY),
        ("0000000000000000FFFF00000100007F", LOOPBACK),
        ("00000000000000000000000001000000", None),
    ],
)
def test_addresses_are_those_that_ipv4_reaches(digits: str, address: IPv4Address | None) -> None:
    assert parse_address(digits) == address


def test_a_socket_of_both_families_takes_ipv4_too() -> None:
    try:
        server = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    except OSError:
        pytest.skip("no IPv6 here")
    with server:
        assert (ANY, server.getsockname()[1]) in tcp_listeners(os.getpid())


@pytest.mark.skipif(os.geteuid() != 0, reason="making a network namespace needs root")
def test_what_listens_in_another_network_is_not_reached_here() -> None:
    with subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec cat"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        assert tcp_listeners(process.pid) == ()
        process.communicate(b"", timeout=30)


def test_a_descriptor_that_is_closed_meanwhile_is_no_socket(tmp_path: Path) -> None:
    assert _target(tmp_path / "absent") == ""


def test_a_listener_that_accepts_nothing_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(path))
        server.listen(0)
        client.connect(str(path))
        with pytest.raises(OSError, match=r"timed out|temporarily unavailable"):
            listener_of(path, 0.05)


def test_ports_of_programs_are_known_by_address_and_protocol() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("", 0)) as every,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
    ):
        datagrams.bind(("127.0.0.1", 0))
        port, wildcard = one.getsockname()[1], every.getsockname()[1]
        assert is_listening("127.0.0.1", "TCP", port)
        assert not is_listening("127.0.0.2", "TCP", port)
        assert is_listening("127.0.0.2", "TCP", wildcard)
        assert is_listening("127.0.0.1", "UDP", datagrams.getsockname()[1])
        # There is no such table in many kernels.
        assert not is_listening("127.0.0.1", "NONE", port)
    assert not is_listening("127.0.0.1", "TCP", port)
