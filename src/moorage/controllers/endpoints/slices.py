"""Distribution of a service's backends among EndpointSlices. Pure.

An endpoint stays in the slice it is in, so that a change touches few slices; new ones fill slices
with room. Source: KEP-752, API docs "EndpointSlices: distribution".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from moorage.api.services import Service
from moorage.controllers.endpoints.backends import (
    Backend,
    Port,
    hostname_of,
    port_object,
    target_of,
)
from moorage.controllers.objects import EndpointSlice

CAPACITY = 100

Group = tuple[str, tuple[Port, ...]]
"""Address family and ports, which all endpoints of a slice share."""


@dataclass(frozen=True, slots=True)
class SliceContent:
    """The desired content of one slice. `existing` is None for a slice to be created."""

    existing: EndpointSlice | None
    address_type: str
    ports: tuple[Port, ...]
    endpoints: tuple[dict[str, Any], ...]

    @property
    def is_as_wanted(self) -> bool:
        return (
            self.existing is not None
            and self.existing.endpoints == self.endpoints
            and _ports(self.existing) == self.ports
        )

    @property
    def port_objects(self) -> list[dict[str, Any]]:
        return [{"name": "", **port_object(port)} for port in self.ports]


@dataclass(slots=True)
class Division:
    """The desired slices, and the existing ones to delete."""

    wanted: list[SliceContent] = field(default_factory=list)
    surplus: list[EndpointSlice] = field(default_factory=list)


def divide(
    service: Service,
    backends: Iterable[Backend],
    existing: Sequence[EndpointSlice],
    zone_of: Callable[[str], str],
) -> Division:
    """Distribute the backends among slices. `zone_of` returns a node's zone, `""` for none."""
    groups: dict[Group, dict[str, dict[str, Any]]] = {}
    for backend in backends:
        members = groups.setdefault((backend.family, backend.ports), {})
        members[backend.pod.metadata.uid] = _endpoint(service, backend, zone_of)
    families = service.spec.ip_families or ("IPv4",)
    for family in families:
        if not any(group[0] == family for group in groups):
            # One empty slice shows that the service has no endpoints yet was reconciled.
            groups[family, ()] = {}
    division = Division()
    by_group: dict[Group, list[EndpointSlice]] = {}
    for slice_ in existing:
        group = (slice_.address_type, _ports(slice_))
        if group in groups:
            by_group.setdefault(group, []).append(slice_)
        else:
            division.surplus.append(slice_)
    for group, members in groups.items():
        _divide_group(group, members, by_group.get(group, []), division)
    _reuse_surplus(division)
    return division


def _reuse_surplus(division: Division) -> None:
    """Replace slices to create by surplus ones of their address type, which is immutable.

    Clients never see the slices of before beside those of after, such as an empty slice without
    ports beside the first endpoint. Source: KEP-752, the reconciler's finalize step.
    """
    for index, content in enumerate(division.wanted):
        if content.existing is not None:
            continue
        for slice_ in division.surplus:
            if slice_.address_type == content.address_type:
                division.wanted[index] = replace(content, existing=slice_)
                division.surplus.remove(slice_)
                break


def _divide_group(
    group: Group,
    members: dict[str, dict[str, Any]],
    existing: list[EndpointSlice],
    division: Division,
) -> None:
    family, ports = group
    unplaced = dict(members)
    held = [(slice_, _kept(slice_, unplaced)) for slice_ in existing]
    rest = list(unplaced.values())
    for slice_, endpoints in held:
        room = CAPACITY - len(endpoints)
        endpoints += rest[:room]
        del rest[:room]
        if endpoints or (not members and slice_ is existing[0]):
            division.wanted.append(SliceContent(slice_, family, ports, tuple(endpoints)))
        else:
            division.surplus.append(slice_)
    chunks = [rest[at : at + CAPACITY] for at in range(0, len(rest), CAPACITY)]
    if not members and not existing:
        chunks = [[]]
    division.wanted += [SliceContent(None, family, ports, tuple(chunk)) for chunk in chunks]


def _kept(slice_: EndpointSlice, unplaced: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the slice's endpoints to keep, updated, and remove them from `unplaced`."""
    uids = ((endpoint.get("targetRef") or {}).get("uid", "") for endpoint in slice_.endpoints)
    return [unplaced.pop(uid) for uid in uids if uid in unplaced]


def _endpoint(service: Service, backend: Backend, zone_of: Callable[[str], str]) -> dict[str, Any]:
    endpoint: dict[str, Any] = {
        "addresses": [backend.address],
        "conditions": {
            "ready": backend.is_listed,
            "serving": backend.is_ready,
            "terminating": backend.is_terminating,
        },
        "targetRef": target_of(backend),
    }
    node = backend.pod.spec.node_name
    more = {
        "hostname": hostname_of(service, backend.pod),
        "nodeName": node,
        "zone": zone_of(node),
    }
    return {**endpoint, **{key: value for key, value in more.items() if value}}


def _ports(slice_: EndpointSlice) -> tuple[Port, ...]:
    return tuple(sorted(map(_port, slice_.ports)))


def _port(port: dict[str, Any]) -> Port:
    return Port(
        port.get("name") or "",
        port.get("port") or 0,
        port.get("protocol") or "TCP",
        port.get("appProtocol") or "",
    )
