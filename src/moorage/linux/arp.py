"""Gratuitous ARP: announces the MAC address that an IPv4 address has now.

Neighbours keep the MAC address of an address's former owner and use it for 5 to 11 s after the
address has a new one: connections to a new pod time out meanwhile. Source: RFC 5227 section 3,
arp(7) `delay_first_probe_time`.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import IPv4Address

_ETHERNET = 1  # hardware type ARPHRD_ETHER
_PROTOCOL_ARP = 0x0806
_BROADCAST = b"\xff" * 6
# Hardware Ethernet, protocol IPv4, their lengths, operation "request": every kernel takes a request
# for the sender's own address as an announcement.
_HEADER = bytes.fromhex("0001080006040001")


def announcement(mac: bytes, address: IPv4Address) -> bytes:
    """Return the Ethernet frame that announces `address` at the MAC address `mac` (6 bytes)."""
    ethernet = _BROADCAST + mac + _PROTOCOL_ARP.to_bytes(2, "big")
    return ethernet + _HEADER + mac + address.packed + bytes(6) + address.packed


def announce(interface: str, addresses: Iterable[IPv4Address]) -> None:
    """Broadcast the addresses of an interface of this network namespace.

    Does nothing on an interface that is no Ethernet. Raises OSError: no such interface, it is
    down, or CAP_NET_RAW is missing.
    """
    # Protocol 0: nothing is received.
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as packets:
        packets.bind((interface, 0))
        _, _, _, hardware, mac = packets.getsockname()
        if hardware != _ETHERNET:
            return
        for address in addresses:
            packets.sendto(announcement(mac, address), (interface, _PROTOCOL_ARP))
