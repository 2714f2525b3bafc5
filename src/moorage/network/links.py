"""Links of pods: the host's interface that leads to a pod's address.

Source: proc(5) `/proc/net/route`; each pod of a routed network has a route of its own.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROUTES: Final = Path("/proc/net/route")
_HOST_MASK: Final = "FFFFFFFF"


def link_of(addresses: Iterable[str], routes: Path = ROUTES) -> str:
    """Return the interface of the route to one of these addresses alone, empty without one.

    Raises OSError.
    """
    wanted = {_number(address) for address in addresses if ":" not in address}
    for line in routes.read_text().splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[7] == _HOST_MASK and fields[1] in wanted:
            return fields[0]
    return ""


def _number(address: str) -> str:
    # The kernel prints the four bytes as one number in host byte order.
    return f"{struct.unpack('=I', socket.inet_aton(address))[0]:08X}"
