"""Mirroring: Endpoints that users write are copied into EndpointSlices.

A service without a selector has the Endpoints that its user gives it; readers of EndpointSlices
find them too. The slices go with their Endpoints, which own them. Source: KEP-752, API docs
"EndpointSlice mirroring".
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from moorage.api.clock import Clock
from moorage.api.errors import AlreadyExistsError, NotFoundError
from moorage.api.services import EndpointAddress, Endpoints, EndpointSubset, Service
from moorage.controllers.informers import OWNER, Informers
from moorage.controllers.loop import Loop, key_of_either
from moorage.controllers.objects import ENDPOINT_SLICES, EndpointSlice
from moorage.controllers.ownership import controller_reference
from moorage.controllers.requests import locked
from moorage.wire.client.informer import latest
from moorage.wire.client.recorder import WARNING, EventRecorder, reference
from moorage.wire.client.resources import ENDPOINTS
from moorage.wire.client.rest import Client

MANAGER = "endpointslicemirroring-controller.k8s.io"

_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
_SERVICE_NAME = "kubernetes.io/service-name"
_SKIP = "endpointslice.kubernetes.io/skip-mirror"
_LEADER = "control-plane.alpha.kubernetes.io/leader"
_NOT_COPIED = (
    "endpoints.kubernetes.io/last-change-trigger-time",
    "kubectl.kubernetes.io/last-applied-configuration",
)
_MOST_ADDRESSES = 1000
_PREFIX_CHARS = 200

Group = tuple[str, str]
"""Address family, and ports as JSON, which all endpoints of a slice share."""


@dataclass(slots=True)
class Mirrored:
    """The endpoints of each slice by their address, and how many addresses were left out."""

    groups: dict[Group, dict[str, dict[str, Any]]] = field(default_factory=dict)
    invalid: int = 0
    skipped: int = 0


def is_mirrored(endpoints: Endpoints, service: Service | None) -> bool:
    """Return whether Endpoints are a user's: of a service without a selector, and no lock."""
    meta = endpoints.metadata
    if service is None or service.spec.selector or meta.deletion_timestamp is not None:
        return False
    return meta.labels.get(_SKIP) != "true" and _LEADER not in meta.annotations


def mirrored(endpoints: Endpoints) -> Mirrored:
    """Return the content of the slices of Endpoints; at most 1,000 addresses of each subset."""
    result = Mirrored()
    for subset in endpoints.subsets:
        ports = _ports(subset)
        added = 0
        for address, is_ready in _addresses(subset):
            if added == _MOST_ADDRESSES:
                result.skipped += 1
                continue
            try:
                family = f"IPv{ipaddress.ip_address(address.ip).version}"
            except ValueError:
                result.invalid += 1
                continue
            group = result.groups.setdefault((family, ports), {})
            group.setdefault(address.ip, _endpoint(address, is_ready=is_ready))
            added += 1
    return result


def _addresses(subset: EndpointSubset) -> Iterator[tuple[EndpointAddress, bool]]:
    for address in subset.addresses:
        yield address, True
    for address in subset.not_ready_addresses:
        yield address, False


def _ports(subset: EndpointSubset) -> str:
    ports = [{"name": "", "protocol": "TCP", **msgspec.to_builtins(port)} for port in subset.ports]
    ports.sort(key=lambda port: (port["name"], port.get("port", 0), port["protocol"]))
    return msgspec.json.encode(ports).decode()


def _endpoint(address: EndpointAddress, *, is_ready: bool) -> dict[str, Any]:
    endpoint: dict[str, Any] = {
        "addresses": [address.ip],
        "conditions": {"ready": is_ready},
    }
    if address.hostname:
        endpoint["hostname"] = address.hostname
    if address.target_ref is not None:
        endpoint["targetRef"] = msgspec.to_builtins(address.target_ref)
    if address.node_name is not None:
        endpoint["nodeName"] = address.node_name
    return endpoint


class EndpointSliceMirroring:
    """Writes the slices of mirrored Endpoints, which are the keys."""

    def __init__(
        self, client: Client, informers: Informers, recorder: EventRecorder, clock: Clock
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._services = informers.services
        self._endpoints = informers.endpoints
        self._slices = informers.endpoint_slices
        self.run = Loop(
            "endpointslice mirroring",
            self._reconcile,
            [
                (self._services, key_of_either),
                (self._endpoints, key_of_either),
                (self._slices, self._slice_changed),
            ],
            clock,
            workers=5,
        ).run

    def _slice_changed(
        self, before: EndpointSlice | None, after: EndpointSlice | None
    ) -> Iterator[str]:
        either = latest(before, after)
        name = either.metadata.labels.get(_SERVICE_NAME)
        if name and _is_ours(either):
            yield f"{either.metadata.namespace}/{name}"

    async def _reconcile(self, key: str) -> float | None:
        endpoints = self._endpoints.get_key(key)
        if endpoints is None:
            return None  # The garbage collector deletes its slices.
        present = {
            slice_.metadata.name: slice_
            for slice_ in self._slices.by_index(OWNER, endpoints.metadata.uid)
            if _is_ours(slice_) and slice_.metadata.deletion_timestamp is None
        }
        wanted = Mirrored()
        if is_mirrored(endpoints, self._services.get_key(key)):
            wanted = mirrored(endpoints)
            self._report(endpoints, wanted)
        for group, members in wanted.groups.items():
            name = _slice_name(endpoints, group)
            await self._write(
                endpoints, name, group, list(members.values()), present.pop(name, None)
            )
        for name, surplus in present.items():
            meta = surplus.metadata
            try:
                await self._client.delete(ENDPOINT_SLICES, name, meta.namespace, uid=meta.uid)
            except NotFoundError:
                continue  # Gone already, as wanted.
        return None

    async def _write(
        self,
        endpoints: Endpoints,
        name: str,
        group: Group,
        members: list[dict[str, Any]],
        present: EndpointSlice | None,
    ) -> None:
        meta, (family, ports) = endpoints.metadata, group
        labels = {**meta.labels, _SERVICE_NAME: meta.name, _MANAGED_BY: MANAGER}
        annotations = {
            key: value for key, value in meta.annotations.items() if key not in _NOT_COPIED
        }
        if present is None:
            body = {
                "metadata": {
                    "name": name,
                    "namespace": meta.namespace,
                    "labels": labels,
                    "annotations": annotations,
                    "ownerReferences": [controller_reference(ENDPOINTS, meta)],
                },
                "addressType": family,
                "endpoints": members,
                "ports": msgspec.json.decode(ports),
            }
            try:
                await self._client.create(ENDPOINT_SLICES, body, meta.namespace)
            except AlreadyExistsError:
                return  # The copy lags behind; it comes, and with it another reconcile.
            return
        own = present.metadata
        if (list(present.endpoints), own.labels, own.annotations) == (members, labels, annotations):
            return
        patch = {
            "metadata": {
                **locked(own),
                "labels": {**dict.fromkeys(own.labels), **labels},
                "annotations": {**dict.fromkeys(own.annotations), **annotations},
            },
            "endpoints": members,
        }
        await self._client.patch(ENDPOINT_SLICES, name, patch, meta.namespace)

    def _report(self, endpoints: Endpoints, result: Mirrored) -> None:
        about = reference(ENDPOINTS, endpoints)
        if result.invalid:
            self._recorder.record(
                about,
                WARNING,
                "InvalidIPAddress",
                f"Skipped {result.invalid} invalid IP addresses when mirroring to EndpointSlices",
            )
        if result.skipped:
            self._recorder.record(
                about,
                WARNING,
                "TooManyAddressesToMirror",
                f"A max of {_MOST_ADDRESSES} addresses can be mirrored to EndpointSlices per "
                f"Endpoints subset. {result.skipped} addresses were skipped",
            )


def _slice_name(endpoints: Endpoints, group: Group) -> str:
    """Return the name of a slice, which its group decides, so that none is created twice."""
    digest = hashlib.sha256("\n".join((endpoints.metadata.uid, *group)).encode()).hexdigest()
    return f"{endpoints.metadata.name[:_PREFIX_CHARS].rstrip('.-')}-{digest[:10]}"


def _is_ours(slice_: EndpointSlice) -> bool:
    return slice_.metadata.labels.get(_MANAGED_BY) == MANAGER
