"""Missing network: an event on each new object that nothing implements in a cluster of ours.

Beside the `Warning` header, which those do not see who apply objects by a program or look later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from moorage.api.clock import Clock, parse_time
from moorage.api.missing_network import INGRESS, NETWORK_POLICY, REASON, service_warning
from moorage.api.services import Service
from moorage.wire.client.informer import Informer
from moorage.wire.client.recorder import WARNING, EventRecorder, reference
from moorage.wire.client.resources import SERVICES, PartialObject, Resource
from moorage.wire.client.rest import Client

INGRESSES = Resource("networking.k8s.io", "v1", "ingresses", "Ingress", PartialObject)
NETWORK_POLICIES = Resource(
    "networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", PartialObject
)
_RECENT = timedelta(minutes=1)


def _of_service(service: Service) -> str:
    return service_warning(service.spec.type, service.spec.cluster_ip)


INGRESS_CLASSES = Resource(
    "networking.k8s.io", "v1", "ingressclasses", "IngressClass", PartialObject, is_namespaced=False
)
_TEXTS: tuple[tuple[Resource[Any], Callable[[Any], str]], ...] = (
    (SERVICES, _of_service),
    (INGRESSES, lambda _: INGRESS),
    (NETWORK_POLICIES, lambda _: NETWORK_POLICY),
)


class MissingNetworkEvents:
    """Records the events. Objects from more than a minute before its start have theirs."""

    def __init__(
        self, client: Client, recorder: EventRecorder, clock: Clock, kinds: frozenset[str]
    ) -> None:
        """`kinds` are those that nothing implements, by plural."""
        self._recorder = recorder
        self._since = clock.now() - _RECENT
        self._classes: Informer[PartialObject] = Informer(client, INGRESS_CLASSES, clock=clock)
        self._informers: list[Informer[Any]] = []
        for resource, text_of in _TEXTS:
            if resource.plural in kinds:
                informer = Informer(client, resource, clock=clock)
                informer.add_handler(self._handler(resource, text_of))
                self._informers.append(informer)

    async def run(self) -> None:
        """Follow the objects until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            # A controller that is installed has a class, which is there before the first Ingress.
            tasks.create_task(self._classes.run())
            await self._classes.wait_synced()
            for informer in self._informers:
                tasks.create_task(informer.run())

    def _handler(
        self, resource: Resource[Any], text_of: Callable[[Any], str]
    ) -> Callable[[Any, Any], None]:
        def changed(before: Any, after: Any) -> None:
            if before is not None or after is None:
                return
            meta = after.metadata
            is_api_itself = (meta.namespace, meta.name) == ("default", "kubernetes")
            created = meta.creation_timestamp
            if is_api_itself or not created or parse_time(created) < self._since:
                return
            if resource is INGRESSES and len(self._classes):
                return
            if text := text_of(after):
                self._recorder.record(reference(resource, after), WARNING, REASON, text)

        return changed
