"""Pod port connections: to 127.0.0.1 in the pod, else to ::1.

Source: CRI `PortForward`; the order is containerd's and CRI-O's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from moorage.linux.namespaces import connected_socket
from moorage.wire.streaming.connection import Connection

LOOPBACK = ("127.0.0.1", "::1")


async def dial_port(
    namespace: Path | None,
    port: int,
    within_s: float = 30.0,
    *,
    hosts: Sequence[str] = LOOPBACK,
) -> Connection:
    """Connect to a port in a network namespace, by the first of `hosts` that answers.

    None is the host's namespace.

    Raises the OSError of the IPv4 attempt when all fail, and TimeoutError after `within_s`.
    """
    async with asyncio.timeout(within_s):
        failures: list[OSError] = []
        for host in hosts:
            try:
                opened = await connected_socket(namespace, host, port)
            except OSError as error:
                failures.append(error)
                continue
            loop = asyncio.get_running_loop()
            try:
                _, connection = await loop.create_connection(Connection, sock=opened)
            except BaseException:
                opened.close()
                raise
            return connection
        raise failures[0]
