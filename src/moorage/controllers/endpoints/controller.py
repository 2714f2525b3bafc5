"""Endpoints controller: updates Endpoints and EndpointSlices from services and pods.

Source: API docs "Service: Endpoints", "EndpointSlices".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from moorage.api.clock import Clock
from moorage.api.errors import ConflictError, NotFoundError, StatusError
from moorage.api.meta import ObjectMeta
from moorage.api.services import Endpoints, Service
from moorage.controllers.endpoints.backends import (
    Backend,
    backends_of,
    has_backends,
    selects,
    subsets_of,
)
from moorage.controllers.endpoints.slices import SliceContent, divide
from moorage.controllers.informers import NAMESPACE, OWNER, Informers
from moorage.controllers.loop import Loop, key_of_either
from moorage.controllers.objects import ENDPOINT_SLICES, EndpointSlice, Pod
from moorage.controllers.ownership import controller_reference
from moorage.controllers.pods import is_deleting, is_ended, is_ready
from moorage.controllers.requests import is_namespace_ending, locked
from moorage.wire.client.informer import latest, object_key
from moorage.wire.client.resources import ENDPOINTS, SERVICES
from moorage.wire.client.rest import Client

SERVICE_NAME = "kubernetes.io/service-name"
SLICE_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
SLICE_MANAGER = "endpointslice-controller.k8s.io"
MANAGED_BY = "endpoints.kubernetes.io/managed-by"
MANAGER = "endpoint-controller"
HEADLESS = "service.kubernetes.io/headless"

_ZONE = "topology.kubernetes.io/zone"


class EndpointsController:
    """Writes the Endpoints and EndpointSlices of services. Keys are services."""

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._services = informers.services
        self._pods = informers.pods
        self._nodes = informers.nodes
        self._endpoints = informers.endpoints
        self._slices = informers.endpoint_slices
        # The copy lags behind our own creations; without these a second round makes them again.
        self._unseen: dict[str, dict[str, EndpointSlice]] = {}
        """Service uid → slices created for it that the informer has not shown yet, by name."""
        self.run = Loop(
            "endpoints",
            self._reconcile,
            [
                (self._services, key_of_either),
                (self._pods, self._pod_changed),
                (self._endpoints, key_of_either),
                (self._slices, self._slice_changed),
                (self._nodes, None),
            ],
            clock,
            workers=5,
        ).run

    def _slice_changed(
        self, before: EndpointSlice | None, after: EndpointSlice | None
    ) -> Iterator[str]:
        either = latest(before, after)
        self._slice_seen(either.metadata)
        name = either.metadata.labels.get(SERVICE_NAME)
        if name and _is_ours(either):
            yield f"{either.metadata.namespace}/{name}"

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> Iterator[str]:
        if (
            before is not None
            and after is not None
            and _endpoint_facts(before) == _endpoint_facts(after)
        ):
            return
        namespace = latest(before, after).metadata.namespace
        for service in self._services.by_index(NAMESPACE, namespace):
            if any(selects(service, pod.metadata.labels) for pod in (before, after) if pod):
                yield object_key(service.metadata)

    async def _reconcile(self, key: str) -> float | None:
        service = self._services.get_key(key)
        if service is None:
            await self._remove_endpoints(key)
            return None
        if service.metadata.deletion_timestamp is not None or not has_backends(service):
            return None
        namespace = service.metadata.namespace
        backends = backends_of(service, self._pods.by_index(NAMESPACE, namespace))
        try:
            await self._write_endpoints(service, backends)
            await self._write_slices(service, backends)
        except StatusError as error:
            if not is_namespace_ending(error):
                raise
        return None

    async def _remove_endpoints(self, key: str) -> None:
        """Delete the Endpoints object of a deleted service, since it has no owner reference."""
        endpoints = self._endpoints.get_key(key)
        if endpoints is None or endpoints.metadata.labels.get(MANAGED_BY) != MANAGER:
            return
        meta = endpoints.metadata
        try:
            await self._client.delete(ENDPOINTS, meta.name, meta.namespace, uid=meta.uid)
        except NotFoundError:
            return  # Gone already, as wanted.

    async def _write_endpoints(self, service: Service, backends: list[Backend]) -> None:
        meta = service.metadata
        # The objects hold one family, the service's first.
        family = (service.spec.ip_families or ("IPv4",))[0]
        subsets = subsets_of(service, (backend for backend in backends if backend.family == family))
        labels = {**_copied_labels(service), MANAGED_BY: MANAGER}
        present = self._endpoints.get_key(object_key(meta))
        if present is None:
            body = {
                "metadata": {"name": meta.name, "namespace": meta.namespace, "labels": labels},
                "subsets": subsets,
            }
            await self._client.create(ENDPOINTS, body, meta.namespace)
            return
        if _subset_structs(subsets) == present.subsets and labels == present.metadata.labels:
            return
        patch = {
            "metadata": {
                **locked(present.metadata),
                "labels": _label_changes(present.metadata, labels),
            },
            "subsets": subsets or None,
        }
        await self._client.patch(ENDPOINTS, meta.name, patch, meta.namespace)

    async def _write_slices(self, service: Service, backends: list[Backend]) -> None:
        meta = service.metadata
        known = self._slices.by_index(OWNER, meta.uid)
        owned = [*known, *self._unseen.get(meta.uid, {}).values()]
        existing = [
            existing_slice
            for existing_slice in owned
            if _is_ours(existing_slice) and existing_slice.metadata.deletion_timestamp is None
        ]
        division = divide(service, backends, existing, self._zone_of)
        for content in division.wanted:
            await self._write_slice(service, content)
        for slice_ in division.surplus:
            gone = slice_.metadata
            try:
                await self._client.delete(ENDPOINT_SLICES, gone.name, gone.namespace, uid=gone.uid)
            except NotFoundError:
                self._slice_seen(gone)
                continue  # Gone already, as wanted.

    def _slice_seen(self, meta: ObjectMeta) -> None:
        for owner in meta.owner_references:
            made = self._unseen.get(owner.uid, {})
            made.pop(meta.name, None)
            if not made:
                self._unseen.pop(owner.uid, None)

    async def _write_slice(self, service: Service, content: SliceContent) -> None:
        meta = service.metadata
        labels = {
            **_copied_labels(service),
            SERVICE_NAME: meta.name,
            SLICE_MANAGED_BY: SLICE_MANAGER,
        }
        present = content.existing
        if present is None:
            body: dict[str, Any] = {
                "metadata": {
                    "generateName": f"{meta.name}-",
                    "namespace": meta.namespace,
                    "labels": labels,
                    "ownerReferences": [controller_reference(SERVICES, meta)],
                },
                "addressType": content.address_type,
                "endpoints": content.endpoints,
                "ports": content.port_objects,
            }
            made = await self._client.create(ENDPOINT_SLICES, body, meta.namespace)
            if self._slices.get(made.metadata.name, meta.namespace) is None:
                self._unseen.setdefault(meta.uid, {})[made.metadata.name] = made
        elif not content.is_as_wanted or labels != present.metadata.labels:
            patch = {
                "metadata": {
                    **locked(present.metadata),
                    "labels": _label_changes(present.metadata, labels),
                },
                "endpoints": content.endpoints,
                "ports": content.port_objects,
            }
            name = present.metadata.name
            try:
                await self._client.patch(ENDPOINT_SLICES, name, patch, meta.namespace)
            except NotFoundError as error:
                self._slice_seen(present.metadata)
                raise ConflictError(f"{name} has just been deleted") from error

    def _zone_of(self, node_name: str) -> str:
        node = self._nodes.get(node_name)
        return node.metadata.labels.get(_ZONE, "") if node is not None else ""


def _endpoint_facts(pod: Pod) -> tuple[Any, ...]:
    """Return the parts of a pod that its services' endpoints depend on."""
    return (
        pod.metadata.uid,
        pod.metadata.labels,
        pod.status.pod_ip,
        pod.status.pod_ips,
        is_ready(pod),
        is_ended(pod),
        is_deleting(pod),
        pod.spec.node_name,
    )


def _is_ours(slice_: EndpointSlice) -> bool:
    return slice_.metadata.labels.get(SLICE_MANAGED_BY) == SLICE_MANAGER


def _copied_labels(service: Service) -> dict[str, str]:
    headless = {HEADLESS: ""} if service.spec.cluster_ip == "None" else {}
    return {**service.metadata.labels, **headless}


def _label_changes(meta: ObjectMeta, labels: dict[str, str]) -> dict[str, str | None]:
    """Return the merge patch of the object's labels to these labels."""
    return {**dict.fromkeys(meta.labels), **labels}


def _subset_structs(subsets: list[dict[str, Any]]) -> Any:
    return msgspec.convert({"subsets": subsets}, Endpoints).subsets
