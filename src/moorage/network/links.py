"""Links of pods: the host's interfaces that lead to pods' addresses.

Source: proc(5) `/proc/net/route`; each pod of a routed network has a route of its own.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROUTES: Final = Path("/proc/net/route")
_HOST_MASK: Final = "FFFFFFFF"


def pod_links(routes: Path = ROUTES) -> Mapping[str, str]:
    """Return the interface of each address that has a route of its own. Raises OSError."""
    links = {}
    for line in routes.read_text().splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[7] == _HOST_MASK:
            links[_address(fields[1])] = fields[0]
    return links


def _address(number: str) -> str:
    # The kernel prints the four bytes as one number in host byte order.
    return socket.inet_ntoa(struct.pack("=I", int(number, 16)))
