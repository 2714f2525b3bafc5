"""Receiver: puts the records that the network agent sends into the zone.

They stay while there is no sender, so that names are answered meanwhile. Imports little: it runs in
the DNS process, of which the interpreter is the largest part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from moorage.api.logs import Log
from moorage.network.dns.records import Message
from moorage.network.dns.zone import Zone

log = Log(__name__)


class RecordReceiver:
    """Puts what a sender sends into a zone. Only the last sender that connected counts."""

    def __init__(self, zone: Zone, *, changed: Callable[[], None]) -> None:
        """`changed` is called after each change, with the zone complete or as it was before."""
        self._zone = zone
        self._changed = changed
        self._sender: asyncio.StreamWriter | None = None
        self.is_complete = False

    async def receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Receive from a sender until its end."""
        if self._sender is not None:
            self._sender.close()
        self._sender = writer
        namespaces: set[str] = set()
        services: set[str] = set()
        is_first_part = True
        try:
            while line := await reader.readline():
                if self._sender is not writer:
                    return
                message = msgspec.json.decode(line, type=Message)
                if message.complete:
                    self._zone.keep_only(namespaces, services)
                    self.is_complete, is_first_part = True, False
                elif message.service:
                    self._zone.set_service(message.service, message.record)
                    services.add(message.service)
                else:
                    self._zone.set_namespace(message.namespace, is_there=message.is_there)
                    namespaces.add(message.namespace)
                if not is_first_part:
                    namespaces, services = set(), set()
                self._changed()
        except (ValueError, ConnectionError) as error:
            log.warning("DNS records are not received", reason=error)
        finally:
            if self._sender is writer:
                self._sender = None
            writer.close()
