"""Reservations: ports and networks that a cluster has chosen but does not use yet.

Two clusters that start at once on one host would choose the same ones, since a port is free until
its server listens. A reservation is an abstract Unix socket named after what is reserved: it
belongs to the network namespace, as ports do, and the kernel releases it when the last process that
holds it ends, however it ends. The supervisor keeps them. Source: unix(7), "abstract".
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Self


class Reservations:
    """Reserved names; closing releases them, unless other processes have inherited them."""

    def __init__(self) -> None:
        self._sockets: dict[str, socket.socket] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release every reservation that no other process has inherited."""
        for reservation in self._sockets.values():
            reservation.close()
        self._sockets.clear()

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The file descriptors of the reservations, for a process that inherits them."""
        return tuple(reservation.fileno() for reservation in self._sockets.values())

    def take(self, name: str) -> bool:
        """Reserve a name. Return False if it is reserved elsewhere. Raises OSError."""
        if name in self._sockets:
            return True
        reservation = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            reservation.bind(f"\0moorage/{name}")
        except OSError as error:
            reservation.close()
            if error.errno == errno.EADDRINUSE:
                return False
            raise
        self._sockets[name] = reservation
        return True

    def release(self, name: str) -> None:
        """Release a name. Raises KeyError if it is not reserved here."""
        self._sockets.pop(name).close()

    def keep_through_exec(self) -> None:
        """Let the program that replaces this one by exec inherit the reservations."""
        for descriptor in self.descriptors:
            os.set_inheritable(descriptor, True)
