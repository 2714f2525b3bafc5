"""Networks of cluster IPs: their readiness and deletion, and the IPAddresses of services."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from datetime import timedelta

import msgspec

from moorage.api.clock import Clock, format_time, parse_time
from moorage.api.errors import AlreadyExistsError, NotFoundError
from moorage.api.meta import Condition, ObjectMeta
from moorage.api.services import (
    ALLOCATOR,
    IP_FAMILY,
    MANAGED_BY,
    READY,
    Address,
    IPAddress,
    IPAddressSpec,
    Network,
    ParentReference,
    Service,
    ServiceCIDR,
    holds,
)
from moorage.controllers.informers import Informers
from moorage.controllers.loop import Loop, key_of_either
from moorage.controllers.requests import status_patch
from moorage.wire.client.resources import IP_ADDRESSES, SERVICE_CIDRS
from moorage.wire.client.rest import Client, PatchType

# IPAddresses of services: one for each cluster IP, which names the service as its parent.
#
# Upstream's API server writes them when it gives out addresses. Here the services themselves say
# which addresses are taken, and these objects follow. Source: KEP-1880.

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


# ServiceCIDR controller: readiness, and no deletion while services have addresses of a network.
#
# Source: KEP-1880, kube-controller-manager `service-cidr-controller` of Kubernetes 1.36.

FINALIZER = "networking.k8s.io/service-cidr-finalizer"
_GRACE = timedelta(seconds=10)
"""Time in which every API server sees the deletion and gives out no more addresses."""

_IS_READY = ("True", "", "Kubernetes Service CIDR is ready")
_IS_BLOCKED = (
    "False",
    "Terminating",
    "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new "
    "ServiceCIDR",
)


def is_deletable(
    service_cidr: ServiceCIDR, every: Iterable[ServiceCIDR], addresses: Iterable[IPAddress]
) -> bool:
    """Return whether no service's address is left without a network if this ServiceCIDR goes."""
    name = service_cidr.metadata.name
    others = [
        network for other in every if other.metadata.name != name for network in other.networks
    ]
    orphaned = [
        network
        for network in service_cidr.networks
        if not any(_contains(other, network) for other in others)
    ]
    if not orphaned:
        return True
    return not any(
        _is_held(address, orphaned) and not _is_held(address, others)
        for address in (
            ipaddress.ip_address(one.metadata.name) for one in addresses if one.is_managed
        )
    )


def _contains(larger: Network, network: Network) -> bool:
    if larger.version != network.version:
        return False
    return network.network_address in larger and larger.prefixlen <= network.prefixlen


def _is_held(address: Address, networks: Iterable[Network]) -> bool:
    return any(holds(network, address) for network in networks)


class ServiceCIDRController:
    """Keeps finalizer and condition of ServiceCIDRs. Keys are their names."""

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._service_cidrs = informers.service_cidrs
        self._addresses = informers.ip_addresses
        self._clock = clock
        self.run = Loop(
            "service cidrs",
            self._reconcile,
            [
                (self._service_cidrs, self._service_cidr_changed),
                (self._addresses, self._address_changed),
            ],
            clock,
        ).run

    def _service_cidr_changed(
        self, before: ServiceCIDR | None, after: ServiceCIDR | None
    ) -> Iterator[str]:
        if after is not None:
            yield after.metadata.name
        if before is None or after is None:
            yield from self._deleted()

    def _address_changed(self, before: IPAddress | None, after: IPAddress | None) -> Iterator[str]:
        del before
        if after is None:
            yield from self._deleted()

    def _deleted(self) -> Iterator[str]:
        """Yield those being deleted: another network or one address less may allow it now."""
        for service_cidr in self._service_cidrs:
            if service_cidr.metadata.deletion_timestamp is not None:
                yield service_cidr.metadata.name

    async def _reconcile(self, name: str) -> float | None:
        service_cidr = self._service_cidrs.get(name)
        if service_cidr is None:
            return None
        try:
            if service_cidr.metadata.deletion_timestamp is not None:
                return await self._finish(service_cidr, service_cidr.metadata.deletion_timestamp)
            if FINALIZER not in service_cidr.metadata.finalizers:
                await self._patch_finalizers(service_cidr, "finalizers")
                return None  # Its event leads to the condition.
            await self._set_condition(service_cidr, *_IS_READY)
        except NotFoundError:
            return None  # It is gone.
        return None

    async def _finish(self, service_cidr: ServiceCIDR, since: str) -> float | None:
        if FINALIZER not in service_cidr.metadata.finalizers:
            return None
        if not is_deletable(service_cidr, self._service_cidrs, self._addresses):
            await self._set_condition(service_cidr, *_IS_BLOCKED)
            return None
        left_s = (parse_time(since) + _GRACE - self._clock.now()).total_seconds()
        if left_s > 0:
            return left_s
        await self._patch_finalizers(service_cidr, "$deleteFromPrimitiveList/finalizers")
        return None

    async def _patch_finalizers(self, service_cidr: ServiceCIDR, field: str) -> None:
        meta = service_cidr.metadata
        patch = {"metadata": {"uid": meta.uid, field: [FINALIZER]}}
        await self._client.patch(SERVICE_CIDRS, meta.name, patch, kind=PatchType.STRATEGIC)

    async def _set_condition(
        self, service_cidr: ServiceCIDR, status: str, reason: str, message: str
    ) -> None:
        present = service_cidr.ready
        wanted = (status, reason, message)
        if present is not None and (present.status, present.reason, present.message) == wanted:
            return
        condition = Condition(
            type=READY, status=status, reason=reason, message=message,
            last_transition_time=format_time(self._clock.now()),
        )  # fmt: skip
        others = tuple(one for one in service_cidr.status.conditions if one.type != READY)
        after = msgspec.structs.replace(service_cidr.status, conditions=(*others, condition))
        patch = status_patch(service_cidr.metadata, service_cidr.status, after)
        await self._client.patch(
            SERVICE_CIDRS, service_cidr.metadata.name, patch, subresource="status"
        )
