"""Sender: the records of Services on their way from the network agent to the DNS process.

Connects to the process's Unix socket, sends everything, and then what changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.api.services import Service
from moorage.network.dns.records import (
    MAX_LINE_BYTES,
    EndpointRecord,
    Message,
    PortRecord,
    ServiceRecord,
)
from moorage.network.objects import EndpointSlice

_RETRY_S: Final = 0.2

log = Log(__name__)


def service_record(service: Service, slices: Iterable[EndpointSlice]) -> ServiceRecord:
    """Return the record of a Service. One with an address of its own has endpoints by hostname."""
    spec = service.spec
    if spec.type == "ExternalName":
        return ServiceRecord(external_name=spec.external_name)
    endpoints = _endpoints(slices)
    if spec.cluster_ip not in ("", "None"):
        ports = tuple(
            PortRecord(port.name, (port.protocol or "TCP").lower(), port.port)
            for port in spec.ports
        )
        # Beyond the specification, as CoreDNS: a StatefulSet's pods have names by such a Service.
        named = tuple(one for one in endpoints if one.hostname)
        return ServiceRecord(spec.cluster_ips or (spec.cluster_ip,), ports, named)
    return ServiceRecord(endpoints=endpoints)


def _endpoints(slices: Iterable[EndpointSlice]) -> tuple[EndpointRecord, ...]:
    """Return the ready endpoints of a Service's slices."""
    endpoints: dict[tuple[str, str], EndpointRecord] = {}
    for one in slices:
        ports = tuple(
            PortRecord(port.name or "", (port.protocol or "TCP").lower(), port.port)
            for port in one.ports
            if port.port is not None
        )
        for endpoint in one.endpoints:
            if not endpoint.is_ready or one.address_type == "FQDN":
                continue
            for address in endpoint.addresses:
                hostname = endpoint.hostname or ""
                # In two slices for a moment while it moves, or with other ports in each.
                known = endpoints.get((address, hostname))
                more = tuple(dict.fromkeys((*known.ports, *ports))) if known else ports
                endpoints[address, hostname] = EndpointRecord(address, hostname, more)
    return tuple(endpoints.values())


class RecordSender:
    """Sends records over a Unix socket, and sends all of them again after each break."""

    def __init__(
        self,
        path: Path,
        *,
        services: Callable[[], Iterable[str]],
        namespaces: Callable[[], Iterable[str]],
        record_of: Callable[[str], ServiceRecord | None],
        clock: Clock,
    ) -> None:
        """`services` and `namespaces` return all names, `record_of` what a Service has now."""
        self._path = path
        self._services = services
        self._namespaces = namespaces
        self._record_of = record_of
        self._clock = clock
        self._dirty: dict[tuple[str, str], None] = {}
        self._sent: dict[str, int] = {}
        self._changed = asyncio.Event()

    def touch_service(self, key: str) -> None:
        """Note that a Service or an endpoint of it may have changed."""
        self._dirty["service", key] = None
        self._changed.set()

    def touch_namespace(self, name: str) -> None:
        """Note that a namespace was created or deleted."""
        self._dirty["namespace", name] = None
        self._changed.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(self._path)
            except OSError:
                # The process has not started yet, or is started again.
                await self._clock.sleep(_RETRY_S)
                continue
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._send_all(writer))
                    await reader.read()
                    raise ConnectionResetError("the DNS process has ended")
            except* OSError as errors:
                log.info("DNS records are sent again", reason=errors.exceptions[0])
            finally:
                writer.close()

    async def _send_all(self, writer: asyncio.StreamWriter) -> None:
        self._dirty.clear()
        self._sent.clear()
        for name in self._namespaces():
            await _write(writer, Message(namespace=name, is_there=True))
        for key in self._services():
            await self._send_service(writer, key)
        await _write(writer, Message(complete=True))
        while True:
            await self._changed.wait()
            self._changed.clear()
            dirty, self._dirty = self._dirty, {}
            present = set(self._namespaces())
            for kind, name in dirty:
                if kind == "service":
                    await self._send_service(writer, name)
                else:
                    await _write(writer, Message(namespace=name, is_there=name in present))

    async def _send_service(self, writer: asyncio.StreamWriter, key: str) -> None:
        message = Message(service=key, record=self._record_of(key))
        # Most changes of slices change no name.
        digest = hash(msgspec.json.encode(message.record))
        if self._sent.get(key) == digest:
            return
        await _write(writer, message)
        if message.record is None:
            self._sent.pop(key, None)
        else:
            self._sent[key] = digest


async def _write(writer: asyncio.StreamWriter, message: Message) -> None:
    line = msgspec.json.encode(message)
    if len(line) > MAX_LINE_BYTES:
        log.warning("too many endpoints for DNS", service=message.service)
        return
    writer.write(line + b"\n")
    await writer.drain()
