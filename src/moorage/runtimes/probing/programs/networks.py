"""Networks: kinds of sockets, and a read that waits for its data."""

from __future__ import annotations

import struct

from moorage.runtimes.probing.programs.script import Script

_AF_INET, _AF_INET6, _AF_PACKET = 2, 10, 17
_SOCK_STREAM, _SOCK_RAW, _ICMP = 1, 3, 1
_ETH_P_ALL = 0x0300
_PORT = 7001
_DELAY_MS = 100
ANSWER = b"late"
ROUNDS = 3
"""A read that does not wait may find its data by chance: all rounds must succeed."""


def write(script: Script) -> None:
    """Write the program."""
    script.print_file("/proc/net/dev")
    with script.child():
        raw = script.call("socket", _AF_INET, _SOCK_RAW, _ICMP)
        packet = script.call("socket", _AF_PACKET, _SOCK_RAW, _ETH_P_ALL)
        sixth = script.call("socket", _AF_INET6, _SOCK_STREAM, 0)
        loopback = struct.pack(">HHI16sI", 0x0A00, 0, 0, bytes(15) + b"\1", 0)
        bound = script.call("bind", sixth, loopback, 28)
    for name, cell in (("raw", raw), ("packet", packet), ("ipv6", sixth), ("ipv6-bind", bound)):
        script.report(name, cell)
    for number in range(ROUNDS):
        _late_answer(script, number)


def _late_answer(script: Script, number: int) -> None:
    """Report what a read returns from a connection whose other end writes a moment later."""
    address = struct.pack(">HH4s8x", 0x0200, _PORT + number, bytes([127, 0, 0, 1]))
    with script.child(f"read-{number}"):
        server = script.call("socket", _AF_INET, _SOCK_STREAM, 0)
        script.call("bind", server, address, 16)
        script.call("listen", server, 8)
        with script.concurrent():
            client = script.call("socket", _AF_INET, _SOCK_STREAM, 0)
            script.call("connect", client, address, 16)
            script.sleep(_DELAY_MS)
            script.call("write", client, ANSWER, len(ANSWER))
            script.sleep(_DELAY_MS)
        connection = script.call("accept4", server, 0, 0, 0)
        received = script.call("read", connection, script.buffer(64), 64)
    script.report(f"accept-{number}", connection)
    script.report(f"read-{number}", received)
