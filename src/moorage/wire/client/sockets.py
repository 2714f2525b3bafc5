"""Sockets of the client, on which the kernel finds out that a server is gone.

A watch may be silent for hours: kube-apiserver sends no bookmark of a collection that has not
changed since its own start (`cacher.go`, lastProcessedResourceVersion). Silence therefore says
nothing of the connection; probes of the kernel do, and keep it known to what is between.
"""

from __future__ import annotations

import socket
from typing import Any

_IDLE_S, _INTERVAL_S, _PROBES = 30, 10, 5
"""A server that is gone without a word is found out after 80 s. Source: tcp(7)."""


def kept_alive(address: tuple[Any, ...]) -> socket.socket:
    """Return a new socket for an address as `getaddrinfo` has it. Raises OSError."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _INTERVAL_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    return made
