"""Cluster DNS, as one of the cluster's parts: it opens its sockets, then gives up root.

It has no access to the API. The network agent in the node's part sends it the names of Services.
"""

from __future__ import annotations

import asyncio
import encodings.idna
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Network
from pathlib import Path

from moorage.api.clock import SystemClock
from moorage.api.logs import Log
from moorage.cluster.layout import CLUSTER_DOMAIN, DNS_SOCKET, RUN, Layout
from moorage.cluster.settings import Settings
from moorage.cluster.supervision.readiness import notify_ready
from moorage.linux.libc import gain_no_privileges
from moorage.linux.listeners import IP_FREEBIND
from moorage.linux.own_process import die_with_parent
from moorage.linux.trust import PASSABLE, make_private
from moorage.network.dns.forwarding import Forwarder
from moorage.network.dns.receiver import RecordReceiver
from moorage.network.dns.records import MAX_LINE_BYTES
from moorage.network.dns.server import DnsServer
from moorage.network.dns.zone import Zone

PORT = 53
RESOLV_CONF = Path("/etc/resolv.conf")
_UNPRIVILEGED_ID = 65534
# An address given as text is encoded by it, and an unprivileged user may not be
# able to read the interpreter's directory.
IDNA = encodings.idna
_BACKLOG = 128
_RECEIVE_BYTES = 4 << 20
_REREAD_S = 5.0

log = Log(__name__)


async def run(layout: Layout, settings: Settings) -> None:
    """Answer until cancelled. Raises OSError if the port is taken."""
    del layout
    address = settings.dns_address
    networks = [IPv4Network(settings.pod_network), IPv4Network(settings.service_network)]
    zone = Zone(CLUSTER_DOMAIN, settings.dns_ip, networks)
    excluded = {address, settings.dns_ip}
    forwarder = Forwarder(_servers(excluded))
    server = DnsServer(zone, forwarder, SystemClock())

    def changed() -> None:
        server.is_ready = receiver.is_complete
        server.zone_changed()

    receiver = RecordReceiver(zone, changed=changed)
    run_directory = RUN / settings.cluster_id
    make_private(run_directory, PASSABLE)
    with _sockets(address) as (datagrams, listener):
        async with asyncio.TaskGroup() as tasks:
            await asyncio.start_unix_server(
                # Not a coroutine function, of which asyncio would log the cancellation as a fault.
                lambda *streams: tasks.create_task(receiver.receive(*streams)) and None,
                run_directory / DNS_SOCKET,
                limit=MAX_LINE_BYTES,
            )
            give_up_root()
            notify_ready()
            tasks.create_task(_follow_servers(forwarder, excluded))
            tasks.create_task(server.run(datagrams, listener))


def give_up_root() -> None:
    """Become an unprivileged user for good, if this process is root's; it ends with its parent."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(_UNPRIVILEGED_ID, _UNPRIVILEGED_ID, _UNPRIVILEGED_ID)
        os.setresuid(_UNPRIVILEGED_ID, _UNPRIVILEGED_ID, _UNPRIVILEGED_ID)
        # The kernel forgets this signal where a process changes its user.
        die_with_parent()
    gain_no_privileges()


@contextmanager
def _sockets(address: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield the UDP socket and the TCP listener on the DNS address."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener,
    ):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
        for one in (datagrams, listener):
            # The engine's part may not have made the bridge that has the address.
            one.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
            one.setblocking(False)
            one.bind((address, PORT))
        listener.listen(_BACKLOG)
        yield datagrams, listener


async def _follow_servers(forwarder: Forwarder, excluded: set[str]) -> None:
    """Follow the host's name servers, which change with its network."""
    read_ns = _modified_ns()
    while True:
        await asyncio.sleep(_REREAD_S)
        modified_ns = _modified_ns()
        if modified_ns != read_ns:
            read_ns = modified_ns
            forwarder.use(_servers(excluded))


def _modified_ns() -> int:
    try:
        return RESOLV_CONF.stat().st_mtime_ns
    except OSError:
        return 0


def _servers(excluded: set[str]) -> list[str]:
    """Return the host's name servers but this one, which would ask itself for ever."""
    try:
        lines = RESOLV_CONF.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        log.warning("no name servers", file=RESOLV_CONF, reason=error)
        return []
    fields = [line.split() for line in lines]
    servers = [one[1] for one in fields if len(one) > 1 and one[0] == "nameserver"]
    return [server for server in servers if server not in excluded]
