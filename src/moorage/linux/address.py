"""Address of this host towards others, chosen by the kernel's routes."""

from __future__ import annotations

import socket
from collections.abc import Sequence

LOOPBACK = "127.0.0.1"
# Documentation prefixes: no packet is sent, the kernel only selects a source address.
_TARGETS = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}


def own_address(
    families: Sequence[socket.AddressFamily] = (socket.AF_INET, socket.AF_INET6),
) -> str:
    """Return the address on the default route of the first family with one, else 127.0.0.1."""
    for family in families:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((_TARGETS[family], 9))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return LOOPBACK
