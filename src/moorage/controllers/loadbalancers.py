"""Load balancers on one machine: Services of the type get an address of the node.

The network agent routes what arrives at that address and the Service's ports. Two Services cannot
have one port of one address, and none gets a port on which the host listens, since the host would
not be reached there any more. Source: kube-controller-manager `service-lb-controller`, for events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from moorage.api.clock import Clock
from moorage.api.errors import ConflictError, NotFoundError
from moorage.api.services import Service
from moorage.controllers.informers import Informers
from moorage.controllers.loop import After, Loop
from moorage.controllers.requests import locked
from moorage.wire.client.informer import latest, object_key
from moorage.wire.client.recorder import NORMAL, WARNING, EventRecorder, reference
from moorage.wire.client.resources import SERVICES
from moorage.wire.client.rest import Client

COMPONENT: Final = "service-controller"
LOAD_BALANCER: Final = "LoadBalancer"
_RETRY_S: Final = 30.0

Port = tuple[str, int]
"""Protocol and number."""


class LoadBalancerController:
    """Assigns addresses. Keys are `namespace/name` of Services."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        recorder: EventRecorder,
        clock: Clock,
        addresses: tuple[str, ...],
        is_listening: Callable[[str, Port], bool],
    ) -> None:
        """`is_listening` says whether a program of the host has a port of an address."""
        self._client = client
        self._recorder = recorder
        self._services = informers.services
        self._addresses = addresses
        self._is_listening = is_listening
        self._owners: dict[tuple[str, Port], str] = {}
        self._waiting: set[str] = set()
        self._loop: Loop[str] = Loop(
            "load balancers", self._reconcile, [(self._services, self._changed)], clock
        )
        self.run = self._loop.run

    def _changed(self, before: Service | None, after: Service | None) -> Iterator[str]:
        one = latest(before, after)
        if after is not None and _is_ours(after):
            # It keeps what an earlier process gave it, whichever Service comes first now.
            for address in _assigned(after):
                for port in _ports(after):
                    self._owners.setdefault((address, port), object_key(after.metadata))
        if _is_ours(one) or (before is not None and _is_ours(before)):
            yield object_key(one.metadata)

    async def _reconcile(self, key: str) -> None:
        service = self._services.get_key(key)
        if service is None or not _is_ours(service) or service.metadata.deletion_timestamp:
            self._release(key, keep=frozenset())
            if service is not None and _assigned(service) and not _is_ours(service):
                await self._write(service, [])
            return
        address, problem = self._choose(service, key)
        wanted = frozenset((address, port) for port in _ports(service)) if address else frozenset()
        self._release(key, keep=wanted)
        for place in wanted:
            self._owners[place] = key
        if address:
            self._waiting.discard(key)
            if _assigned(service) != [address]:
                await self._write(service, [{"ip": address, "ipMode": "VIP"}])
                self._event(service, NORMAL, "EnsuredLoadBalancer", "Ensured load balancer")
            return
        if key not in self._waiting:
            self._waiting.add(key)
            self._event(
                service,
                WARNING,
                "SyncLoadBalancerFailed",
                f"Error syncing load balancer: {problem}; use another port, or remove what has it",
            )
        if _assigned(service):
            await self._write(service, [])
        # A program of the host does not say when it ends.
        self._loop.add(After(key, _RETRY_S))

    def _choose(self, service: Service, key: str) -> tuple[str, str]:
        """Return an address whose ports are free, or why there is none."""
        requested = service.spec.load_balancer_ip
        if requested and requested not in self._addresses:
            return "", f"loadBalancerIP {requested} is none of {', '.join(self._addresses)}"
        problem = "the cluster has no address for load balancers"
        present = _assigned(service)
        for address in sorted(self._addresses, key=lambda one: one not in present):
            if requested and address != requested:
                continue
            problem = self._obstacle(address, service, key)
            if not problem:
                return address, ""
        return "", problem

    def _obstacle(self, address: str, service: Service, key: str) -> str:
        for port in _ports(service):
            protocol, number = port
            owner = self._owners.get((address, port), key)
            if owner != key:
                return f"port {number}/{protocol} of {address} belongs to Service {owner}"
            if self._is_listening(address, port):
                return f"a program of the host listens on port {number}/{protocol} of {address}"
        return ""

    def _release(self, key: str, keep: frozenset[tuple[str, Port]]) -> None:
        """Give up the ports of a Service but these; those that wait for one are queued."""
        mine = [place for place, owner in self._owners.items() if owner == key]
        given_up = [place for place in mine if place not in keep]
        for place in given_up:
            del self._owners[place]
        if given_up:
            self._loop.add(*(self._waiting - {key}))
        if not keep:
            self._waiting.discard(key)

    async def _write(self, service: Service, ingress: list[dict[str, Any]]) -> None:
        meta = service.metadata
        balancer = {"ingress": ingress or None}
        patch = {"metadata": locked(meta), "status": {"loadBalancer": balancer}}
        try:
            await self._client.patch(
                SERVICES, meta.name, patch, meta.namespace, subresource="status"
            )
        except (ConflictError, NotFoundError):
            # Its event leads here again.
            return

    def _event(self, service: Service, type_: str, reason: str, message: str) -> None:
        self._recorder.record(reference(SERVICES, service), type_, reason, message)


def _is_ours(service: Service) -> bool:
    return service.spec.type == LOAD_BALANCER and not service.spec.load_balancer_class


def _ports(service: Service) -> list[Port]:
    return [(port.protocol or "TCP", port.port) for port in service.spec.ports]


def _assigned(service: Service) -> list[str]:
    """Return the addresses that a Service has as a load balancer."""
    status = service.status if isinstance(service.status, dict) else {}
    ingress = (status.get("loadBalancer") or {}).get("ingress") or []
    return [str(one.get("ip", "")) for one in ingress if isinstance(one, dict)]
