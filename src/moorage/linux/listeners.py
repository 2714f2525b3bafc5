"""Listening sockets: a process's TCP ports, and the process behind a Unix socket.

Source: proc(5) `/proc/PID/net/tcp`, unix(7) SO_PEERCRED.
"""

from __future__ import annotations

import os
import socket
import struct
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Final

IP_FREEBIND: Final = 15
"""Lets a socket bind an address that no interface has yet; see ip(7). `socket` lacks it."""

_LISTENING, _UNCONNECTED = "0A", "07"
_CREDENTIALS = "3i"
_TIMEOUT_S = 2.0


def listener_of(path: Path, timeout_s: float = _TIMEOUT_S) -> int:
    """Return the process that listens on a Unix socket. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(timeout_s)
        client.connect(str(path))
        size = struct.calcsize(_CREDENTIALS)
        credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid: int = struct.unpack(_CREDENTIALS, credentials)[0]
    return pid


def tcp_listeners(pid: int) -> tuple[tuple[IPv4Address, int], ...]:
    """Return address and port of each listening TCP socket in this network namespace.

    IPv6 sockets count where they accept IPv4 too. Raises OSError.
    """
    process = Path(f"/proc/{pid}")
    if os.stat(process / "ns/net").st_ino != os.stat("/proc/self/ns/net").st_ino:
        return ()
    own = set(map(_target, (process / "fd").iterdir()))
    listeners = set()
    for table in ("tcp", "tcp6"):
        for line in (process / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()
            address = parse_address(fields[1].partition(":")[0])
            if fields[3] == _LISTENING and f"socket:[{fields[9]}]" in own and address is not None:
                listeners.add((address, int(fields[1].partition(":")[2], 16)))
    return tuple(sorted(listeners))


def is_local(address: str) -> bool:
    """Return whether an IPv4 address is one of this network namespace's own."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.bind((address, 0))
        except OSError:
            return False
    return True


def is_listening(address: str, protocol: str, port: int) -> bool:
    """Return whether a program of this network namespace has a port of an IPv4 address.

    `protocol` is TCP or UDP; there is no table of others. Raises OSError.
    """
    name = protocol.lower()
    wanted = (IPv4Address(address), IPv4Address(0))
    for table in (name, f"{name}6"):
        path = Path("/proc/net", table)
        if not path.exists():
            continue
        for line in path.read_text().splitlines()[1:]:
            fields = line.split()
            place, _, number = fields[1].partition(":")
            # A UDP socket that is connected serves its peer alone.
            is_open = fields[3] == (_LISTENING if name == "tcp" else _UNCONNECTED)
            if is_open and int(number, 16) == port and parse_address(place) in wanted:
                return True
    return False


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except FileNotFoundError:
        # Closed after the directory was read.
        return ""


def parse_address(digits: str) -> IPv4Address | None:
    """Return an address from /proc/net/tcp: words of four bytes in host byte order."""
    words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    if len(packed) == 4:
        return IPv4Address(packed)
    address = IPv6Address(packed)
    return IPv4Address(0) if not int(address) else address.ipv4_mapped
