"""nftables events: rules that are there, and changes by other programs, by netlink.

Cheap where libnftables is not: it reads a whole table to list one chain of it. Source:
linux/netfilter/nf_tables.h, nfnetlink.h; netlink(7).
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from typing import Final

_NETFILTER: Final = 12
_SUBSYSTEM: Final = 10 << 8
_GET_RULE, _NEW_RULE, _NEW_GENERATION = _SUBSYSTEM | 7, _SUBSYSTEM | 6, _SUBSYSTEM | 15
_REQUEST, _DUMP = 0x1, 0x300
_DONE, _ERROR = 3, 2
_NFTABLES_GROUP: Final = 7
_SOL_NETLINK, _ADD_MEMBERSHIP = 270, 1
_TABLE, _CHAIN, _HANDLE, _GENERATION_PROCESS = 1, 2, 3, 2
_HEADER: Final = struct.Struct("=IHHII")
_FAMILY_BYTES: Final = 4
_FAMILIES: Final = {"ip": 2, "ip6": 10}
_RECEIVE_BYTES: Final = 1 << 16
_BPF: Final = struct.Struct("HBBI")
_SO_ATTACH_FILTER: Final = 26


def rule_handles(family: str, table: str, chains: Iterable[str]) -> tuple[int, ...]:
    """Return the kernel's numbers of the rules in chains of a table; none for what is missing.

    A rule that was removed and added has another number. Raises OSError.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER) as one:
        return tuple(
            handle for chain in chains for handle in _handles(one, _FAMILIES[family], table, chain)
        )


def _handles(one: socket.socket, family: int, table: str, chain: str) -> Iterator[int]:
    body = struct.pack("=BBH", family, 0, 0) + _attribute(_TABLE, table) + _attribute(_CHAIN, chain)
    size = _HEADER.size + len(body)
    one.send(_HEADER.pack(size, _GET_RULE, _REQUEST | _DUMP, 1, 0) + body)
    while True:
        for kind, payload in _messages(one.recv(_RECEIVE_BYTES)):
            if kind in (_DONE, _ERROR):
                return
            if kind == _NEW_RULE:
                attributes = _attributes(payload)
                # An older kernel may send other chains too.
                if attributes.get(_CHAIN) == chain.encode() + b"\0":
                    yield int.from_bytes(attributes[_HANDLE], "big")


class NftablesEvents:
    """Reports transactions of other processes on the packet filter."""

    def __init__(self) -> None:
        """Subscribe. Raises OSError."""
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, _NETFILTER
        )
        # Of each transaction only its end: elements are sent too, of ours ten thousands.
        _receive_only(self._socket, _NEW_GENERATION)
        self._socket.bind((0, 0))
        self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, _NFTABLES_GROUP)

    def fileno(self) -> int:
        return self._socket.fileno()

    def read(self) -> bool:
        """Read what has come; return whether another process made a transaction."""
        is_any = False
        while True:
            try:
                data = self._socket.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                return is_any
            except OSError:
                # Some were lost.
                return True
            for _, payload in _messages(data):
                process = _attributes(payload).get(_GENERATION_PROCESS, b"")
                thread = int.from_bytes(process, "big")
                is_any = is_any or not os.path.exists(f"/proc/self/task/{thread}")

    def close(self) -> None:
        self._socket.close()


def _receive_only(one: socket.socket, kind: int) -> None:
    """Attach a filter that passes messages of one type. Source: linux/filter.h, classic BPF."""
    # The filter loads big-endian, the header has the host's order.
    (wanted,) = struct.unpack("!H", struct.pack("=H", kind))
    program = b"".join(
        (
            _BPF.pack(0x28, 0, 0, 4),
            _BPF.pack(0x15, 0, 1, wanted),
            _BPF.pack(0x06, 0, 0, 0xFFFFFFFF),
            _BPF.pack(0x06, 0, 0, 0),
        )
    )
    buffer = ctypes.create_string_buffer(program)
    head = struct.pack("HP", len(program) // _BPF.size, ctypes.addressof(buffer))
    one.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, head)


def _attribute(kind: int, text: str) -> bytes:
    value = text.encode() + b"\0"
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield type and attributes of each message."""
    at = 0
    while at + _HEADER.size <= len(data):
        size, kind, _, _, _ = _HEADER.unpack_from(data, at)
        if size < _HEADER.size:
            return
        yield kind, data[at + _HEADER.size + _FAMILY_BYTES : at + size]
        at += size + -size % 4


def _attributes(data: bytes) -> dict[int, bytes]:
    found, at = {}, 0
    while at + 4 <= len(data):
        size, kind = struct.unpack_from("=HH", data, at)
        if size < 4:
            break
        found[kind & 0x3FFF] = data[at + 4 : at + size]
        at += size + -size % 4
    return found
