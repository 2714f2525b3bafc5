"""Sockets: a server that is gone is found out without a word from it."""

from __future__ import annotations

import socket

from moorage.wire.client.sockets import kept_alive


def test_the_kernel_probes_a_silent_connection() -> None:
    (address, *_) = socket.getaddrinfo("127.0.0.1", 6443, type=socket.SOCK_STREAM)
    with kept_alive(address) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
        assert made.family is socket.AF_INET
