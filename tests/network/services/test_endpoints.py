"""Endpoints: which ones a node chooses among, by policies, conditions and hints."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.network.objects import HEADLESS
from moorage.network.services.endpoints import Choice, Target, choose, local_endpoints
from tests.network.objects import HERE, a_service, a_slice, an_endpoint

A, B, C = "10.244.0.3", "10.244.0.4", "10.244.0.5"


def chosen(*endpoints: Any, **spec: Any) -> Choice:
    service = a_service(**spec)
    return choose(service, service.spec.ports[0], [a_slice(*endpoints)], "ip", HERE)


def addresses(targets: tuple[Target, ...]) -> list[str]:
    return [target.address for target in targets]


@pytest.mark.parametrize(
    ("endpoints", "expected"),
    [
        ([A, B], [A, B]),
        ([an_endpoint(A, ready=False), B], [B]),
        # Without a ready one, those that still serve while they terminate.
        ([an_endpoint(A, ready=False, serving=True, terminating=True)], [A]),
        ([an_endpoint(A, ready=False, serving=True, terminating=True), B], [B]),
        ([an_endpoint(A, ready=False, serving=False, terminating=True)], []),
        ([an_endpoint(A, ready=False, serving=True)], []),
        ([], []),
    ],
)
def test_ready_endpoints_are_chosen(endpoints: list[Any], expected: list[str]) -> None:
    assert addresses(chosen(*endpoints).internal) == expected
    assert addresses(chosen(*endpoints).external) == expected


def test_local_policies_leave_out_other_nodes() -> None:
    ends = [A, an_endpoint(B, node="n2")]
    internal = chosen(*ends, internalTrafficPolicy="Local")
    assert (addresses(internal.internal), addresses(internal.external)) == ([A], [A, B])
    external = chosen(*ends, externalTrafficPolicy="Local")
    assert (addresses(external.internal), addresses(external.external)) == ([A, B], [A])
    elsewhere = chosen(an_endpoint(B, node="n2"), externalTrafficPolicy="Local")
    assert (elsewhere.external, elsewhere.has_any, elsewhere.is_local_only) == ((), True, True)


def hinted(address: str, **hints: list[dict[str, str]]) -> dict[str, Any]:
    return an_endpoint(address) | {"hints": hints}


@pytest.mark.parametrize(
    ("endpoints", "expected"),
    [
        ([hinted(A, forZones=[{"name": "z1"}]), hinted(B, forZones=[{"name": "z2"}])], [A]),
        # Hints that leave out an endpoint, or this zone, do not count.
        ([hinted(A, forZones=[{"name": "z1"}]), B], [A, B]),
        ([hinted(A, forZones=[{"name": "z2"}]), hinted(B, forZones=[{"name": "z2"}])], [A, B]),
        ([hinted(A, forNodes=[{"name": "n1"}], forZones=[{"name": "z2"}]),
          hinted(B, forNodes=[{"name": "n2"}], forZones=[{"name": "z1"}])], [A]),
    ],
)  # fmt: skip
def test_hints_for_this_node_or_zone_are_followed(
    endpoints: list[Any], expected: list[str]
) -> None:
    assert addresses(chosen(*endpoints).internal) == expected


def test_a_port_is_found_by_name_and_protocol() -> None:
    service = a_service(
        ports=[{"name": "b", "port": 1}, {"name": "b", "port": 2, "protocol": "UDP"}]
    )
    ports: Any = (
        {"name": "a", "port": 10}, {"name": "b", "port": 11, "protocol": "TCP"},
        {"name": "b", "port": 12, "protocol": "UDP"}, {"name": "b", "protocol": "SCTP"},
    )  # fmt: skip
    slices = [a_slice(A, ports=ports), a_slice(B, ports=ports), a_slice("fd00::1", kind="IPv6")]
    found = [choose(service, port, slices, "ip", HERE).internal for port in service.spec.ports]
    assert found == [(Target(A, 11), Target(B, 11)), (Target(A, 12), Target(B, 12))]


def test_an_endpoint_in_two_slices_is_one() -> None:
    service = a_service()
    slices = [a_slice(an_endpoint(A, ready=False)), a_slice(A)]
    assert choose(service, service.spec.ports[0], slices, "ip", HERE).internal == (Target(A, 8080),)


def test_ready_addresses_of_the_node_are_counted() -> None:
    slices = [a_slice(A, B, an_endpoint(C, ready=False)), a_slice(A, an_endpoint(C, node="n2"))]
    assert local_endpoints(slices, HERE) == 2


def test_slices_that_are_for_dns_alone_are_left_out() -> None:
    service = a_service()
    slices = [a_slice(A, labels={HEADLESS: ""}), a_slice(B)]
    port = service.spec.ports[0]
    assert choose(service, port, slices, "ip", HERE).internal == (Target(B, 8080),)
    assert choose(service, port, slices[:1], "ip", HERE) == Choice()
    assert local_endpoints(slices, HERE) == 1
