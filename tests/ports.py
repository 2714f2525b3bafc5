"""Ports for servers of tests."""

from __future__ import annotations

import random
import socket

# Below those that the kernel gives to outgoing connections: a server that starts again finds its
# port still free. Above those that clusters take by themselves.
_FIRST, _LAST = 20_000, 32_000
_random = random.SystemRandom()


def free_port() -> int:
    """Return a TCP port of loopback that is free, and that no cluster takes by itself."""
    while True:
        port = _random.randint(_FIRST, _LAST)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
