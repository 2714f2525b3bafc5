"""Networks of cluster IPs: readiness, deletion, and the IPAddresses of services."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.services import IPAddress, ServiceCIDR
from moorage.controllers.servicecidrs import (
    FINALIZER,
    IPAddressController,
    ServiceCIDRController,
    is_deletable,
)
from moorage.wire.client.resources import IP_ADDRESSES, SERVICE_CIDRS, SERVICES
from tests.controllers.memory import World

NOW = "2026-01-01T00:00:00Z"
MANAGED = {"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}


@pytest.fixture
def world() -> World:
    return World()


def cidr(name: str, *cidrs: str, **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **meta}, "spec": {"cidrs": list(cidrs)}}


def address(name: str, *, is_managed: bool = True) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": MANAGED if is_managed else {}}, "spec": {}}


@pytest.mark.parametrize(
    ("own", "others", "addresses", "expected"),
    [
        (["10.0.0.0/24"], [], [], True),
        (["10.0.0.0/24"], [], ["10.0.0.1"], False),
        (["10.0.0.0/24"], [], ["10.1.0.1", "10.0.0.0", "10.0.0.255"], True),
        (["10.0.0.0/24"], [["10.0.0.0/24"]], ["10.0.0.1"], True),
        (["10.0.0.0/24"], [["10.0.0.0/16"]], ["10.0.0.1"], True),
        (["10.0.0.0/24"], [["10.0.0.0/25"]], ["10.0.0.1"], True),
        (["10.0.0.0/24"], [["10.0.0.0/25"]], ["10.0.0.129"], False),
        (["10.0.0.0/24", "2001:db8::/64"], [["10.0.0.0/16"]], ["2001:db8::1"], False),
        (["10.0.0.0/24", "2001:db8::/64"], [["10.0.0.0/16"]], ["10.0.0.1"], True),
    ],
)
def test_addresses_need_a_network(
    own: list[str], others: list[list[str]], addresses: list[str], *, expected: bool
) -> None:
    first = msgspec.convert(cidr("own", *own), ServiceCIDR)
    every = [first, *(msgspec.convert(cidr(f"c{i}", *one), ServiceCIDR)
                      for i, one in enumerate(others))]  # fmt: skip
    used = [msgspec.convert(address(name), IPAddress) for name in addresses]
    assert is_deletable(first, every, used) is expected
    unmanaged = [msgspec.convert(address(name, is_managed=False), IPAddress) for name in addresses]
    assert is_deletable(first, every, unmanaged)


async def test_a_new_network_becomes_ready(world: World) -> None:
    world.client.put(SERVICE_CIDRS, cidr("c", "10.0.0.0/24"))
    controller = ServiceCIDRController(world.client, world.informers, world.clock)
    async with world.running(controller.run()) as client:
        stored = client.find(SERVICE_CIDRS, "c")
        assert stored is not None
        assert list(stored["metadata"]["finalizers"]) == [FINALIZER]
        (condition,) = stored["status"]["conditions"]
        assert condition == {
            "type": "Ready", "status": "True", "message": "Kubernetes Service CIDR is ready",
            "lastTransitionTime": NOW,
        }  # fmt: skip
        assert len(client.writes) == 2
        assert client.writes[1].more["subresource"] == "status"


async def test_a_network_in_use_stays_until_its_addresses_are_gone(world: World) -> None:
    meta = {"deletionTimestamp": NOW, "finalizers": [FINALIZER]}
    world.client.put(SERVICE_CIDRS, cidr("c", "10.0.0.0/24", **meta))
    world.client.put(IP_ADDRESSES, address("10.0.0.5"))
    controller = ServiceCIDRController(world.client, world.informers, world.clock)
    async with world.running(controller.run()) as client:
        await world.settled(60)
        stored = client.find(SERVICE_CIDRS, "c")
        assert stored is not None
        (condition,) = stored["status"]["conditions"]
        assert (condition["status"], condition["reason"]) == ("False", "Terminating")
        client.drop(IP_ADDRESSES, "10.0.0.5")
        await world.settled()
        assert client.names(SERVICE_CIDRS) == []


async def test_an_unused_network_goes_after_a_grace_period(world: World) -> None:
    meta = {"deletionTimestamp": NOW, "finalizers": [FINALIZER]}
    world.client.put(SERVICE_CIDRS, cidr("c", "10.0.0.0/24", **meta))
    controller = ServiceCIDRController(world.client, world.informers, world.clock)
    async with world.running(controller.run()) as client:
        await world.settled(9)
        assert client.names(SERVICE_CIDRS) == ["c"]
        await world.settled(1)
        assert client.names(SERVICE_CIDRS) == []


def service(name: str, *addresses: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"clusterIPs": list(addresses)}}


def parents(world: World) -> dict[str, Any]:
    return {
        one["metadata"]["name"]: one["spec"].get("parentRef", {}).get("name")
        for one in world.client.all(IP_ADDRESSES)
    }


async def test_each_cluster_ip_has_its_address(world: World) -> None:
    for body in (service("a", "10.0.0.1", "2001:DB8::1"), service("b", "None"), service("c")):
        world.client.put(SERVICES, body)
    world.client.put(IP_ADDRESSES, address("10.0.0.9"))
    world.client.put(IP_ADDRESSES, address("10.0.0.10", is_managed=False))
    controller = IPAddressController(world.client, world.informers, world.clock)
    async with world.running(controller.run()) as client:
        expected = {"10.0.0.1": "a", "2001:db8::1": "a", "10.0.0.10": None}
        assert parents(world) == expected
        bodies = [msgspec.to_builtins(request.body) for request in client.asked("create")]
        assert bodies[0] == {
            "metadata": {
                "name": "10.0.0.1",
                "labels": {**MANAGED, "ipaddress.kubernetes.io/ip-family": "IPv4"},
            },
            "spec": {
                "parentRef": {"resource": "services", "namespace": "default", "name": "a"},
            },
        }
        client.drop(IP_ADDRESSES, "10.0.0.1")
        await world.settled()
        assert parents(world) == expected
        client.drop(SERVICES, "a")
        await world.settled()
        assert parents(world) == {"10.0.0.10": None}


async def test_an_address_passes_to_the_service_that_has_it_now(world: World) -> None:
    world.client.put(SERVICES, service("a", "10.0.0.1"))
    controller = IPAddressController(world.client, world.informers, world.clock)
    async with world.running(controller.run()) as client:
        client.drop(SERVICES, "a")
        client.put(SERVICES, service("b", "10.0.0.1"))
        await world.settled()
        assert parents(world) == {"10.0.0.1": "b"}
