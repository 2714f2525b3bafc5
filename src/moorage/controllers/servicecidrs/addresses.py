"""IPAddresses of services: one for each cluster IP, which names the service as its parent.

Upstream's API server writes them when it gives out addresses. Here the services themselves say
which addresses are taken, and these objects follow. Source: KEP-1880.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from moorage.api.clock import Clock
from moorage.api.errors import AlreadyExistsError, NotFoundError
from moorage.api.meta import ObjectMeta
from moorage.api.service_networks import (
    ALLOCATOR,
    IP_FAMILY,
    MANAGED_BY,
    IPAddress,
    IPAddressSpec,
    ParentReference,
)
from moorage.api.services import Service
from moorage.controllers.informers import Informers
from moorage.controllers.loop import Loop, key_of_either
from moorage.wire.client.resources import IP_ADDRESSES
from moorage.wire.client.rest import Client

_HEADLESS = "None"


def addresses_of(service: Service) -> Iterator[str]:
    """Yield the cluster IPs of a service, in canonical form."""
    for text in service.spec.cluster_ips:
        if text not in ("", _HEADLESS):
            yield str(ipaddress.ip_address(text))


class IPAddressController:
    """Keeps the managed IPAddresses. Keys are addresses."""

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._services = informers.services
        self._addresses = informers.ip_addresses
        self._owners: dict[str, ParentReference] = {}
        """Address → the service that has it."""
        self.run = Loop(
            "ip addresses",
            self._reconcile,
            [(self._services, self._service_changed), (self._addresses, key_of_either)],
            clock,
        ).run

    def _service_changed(self, before: Service | None, after: Service | None) -> Iterator[str]:
        if before is not None:
            parent = _reference(before)
            for address in addresses_of(before):
                # Another service may have it by now.
                if self._owners.get(address) == parent:
                    del self._owners[address]
                yield address
        if after is not None:
            for address in addresses_of(after):
                self._owners[address] = _reference(after)
                yield address

    async def _reconcile(self, address: str) -> float | None:
        parent, present = self._owners.get(address), self._addresses.get(address)
        if present is None:
            if parent is not None:
                await self._create(address, parent)
        elif present.is_managed and (parent is None or present.spec.parent_ref != parent):
            await self._delete(present)  # Its event leads to a new one.
        return None

    async def _create(self, address: str, parent: ParentReference) -> None:
        family = f"IPv{ipaddress.ip_address(address).version}"
        body = IPAddress(
            metadata=ObjectMeta(name=address, labels={MANAGED_BY: ALLOCATOR, IP_FAMILY: family}),
            spec=IPAddressSpec(parent_ref=parent),
        )
        try:
            await self._client.create(IP_ADDRESSES, body)
        except AlreadyExistsError:
            return  # Its event is on its way to us.

    async def _delete(self, present: IPAddress) -> None:
        meta = present.metadata
        try:
            await self._client.delete(IP_ADDRESSES, meta.name, uid=meta.uid)
        except NotFoundError:
            return  # Gone already, as wanted.


def _reference(service: Service) -> ParentReference:
    meta = service.metadata
    return ParentReference(resource="services", namespace=meta.namespace, name=meta.name)
