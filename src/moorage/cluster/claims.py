"""Claims: ports and networks that a cluster has chosen but does not use yet.

Two clusters that start at once on one machine would choose the same ones, since a port is free
until its server listens. A claim is an abstract Unix socket with the name of what is claimed: it
belongs to the network namespace, as ports do, and the kernel releases it when the last process that
holds it ends, however that ends. The supervisor keeps them. Source: unix(7), "abstract".
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Self


class Claims:
    """Claimed names; closing releases them, unless other processes have inherited them."""

    def __init__(self) -> None:
        self._sockets: dict[str, socket.socket] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release every claim that no other process has inherited."""
        for claim in self._sockets.values():
            claim.close()
        self._sockets.clear()

    @property
    def descriptors(self) -> tuple[int, ...]:
        return tuple(claim.fileno() for claim in self._sockets.values())

    def take(self, name: str) -> bool:
        """Claim a name. Returns False if it is claimed elsewhere."""
        if name in self._sockets:
            return True
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0moorage/{name}")
        except OSError as error:
            claim.close()
            if error.errno == errno.EADDRINUSE:
                return False
            raise
        self._sockets[name] = claim
        return True

    def release(self, name: str) -> None:
        """Give back a name that turned out to be of no use."""
        self._sockets.pop(name).close()

    def keep_through_exec(self) -> None:
        """Let the program that replaces this one hold the claims."""
        for descriptor in self.descriptors:
            os.set_inheritable(descriptor, True)
