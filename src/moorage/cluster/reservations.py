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

# System reserved: resources that pods cannot request, for the rest of the host.
#
# Without a reserve, pods that use all memory or all process IDs starve the administrator's shell
# and the cluster's own parts. Source: KubeletConfiguration `systemReserved`; the kubelet's
# default reserves nothing.

_MIB = 1024 * 1024
_MEMORY_SHARE = 0.05
_LEAST_MEMORY_BYTES = 256 * _MIB
_MOST_MEMORY_BYTES = 1024 * _MIB
_SMALL_MACHINE_SHARE = 0.25
_PIDS_SHARE = 0.10
_MOST_PIDS = 4096


def system_reserved(memory_bytes: int, max_pids: int) -> dict[str, str]:
    """Return the quantities that a host of that size reserves, by resource name.

    Memory: 5 %, at least 256 MiB but at most a quarter of the host's, and at most 1 GiB.
    Process IDs: a tenth, at most 4096.
    """
    memory = max(int(memory_bytes * _MEMORY_SHARE), _LEAST_MEMORY_BYTES)
    memory = min(memory, _MOST_MEMORY_BYTES, int(memory_bytes * _SMALL_MACHINE_SHARE))
    pids = min(int(max_pids * _PIDS_SHARE), _MOST_PIDS)
    return {"memory": f"{memory // _MIB}Mi", "pid": str(pids)}


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
