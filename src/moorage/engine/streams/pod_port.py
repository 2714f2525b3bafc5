"""A connection to a port inside a pod: to 127.0.0.1 there, and to ::1 when nobody listens on that.

Source: CRI `PortForward`; the order is containerd's and CRI-O's.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from moorage.linux.namespaces import connected_socket
from moorage.streaming.connection import Connection

_HOSTS = ("127.0.0.1", "::1")


async def dial_port(namespace: Path | None, port: int, within_s: float = 30.0) -> Connection:
    """Connect inside a network namespace; None is the host's, for pods that share it.

    Raises OSError: what the IPv4 attempt ended with, or that the time is over.
    """
    async with asyncio.timeout(within_s):
        failures: list[OSError] = []
        for host in _HOSTS:
            try:
                made = await connected_socket(namespace, host, port)
            except OSError as error:
                failures.append(error)
                continue
            loop = asyncio.get_running_loop()
            try:
                _, connection = await loop.create_connection(Connection, sock=made)
            except BaseException:
                made.close()
                raise
            return connection
        raise failures[0]
