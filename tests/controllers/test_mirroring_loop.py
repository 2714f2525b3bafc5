"""Endpoints that users write, and the slices that mirror them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from moorage.api.errors import NotFoundError
from moorage.controllers.endpoints import EndpointSliceMirroring
from moorage.controllers.objects import ENDPOINT_SLICES
from moorage.wire.client.resources import ENDPOINTS, SERVICES
from tests.controllers.memory import MemoryClient, World

MANAGED = "endpointslicemirroring-controller.k8s.io"


@pytest.fixture
def world() -> World:
    world = World()
    world.client.put(SERVICES, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
    return world


@asynccontextmanager
async def mirroring(world: World) -> AsyncIterator[MemoryClient]:
    controller = EndpointSliceMirroring(world.client, world.informers, world.recorder, world.clock)
    async with world.running(controller.run(workers=2)) as client:
        yield client


def endpoints(*subsets: dict[str, Any], **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": "s", "namespace": "default", "uid": "e", **meta},
            "subsets": list(subsets)}  # fmt: skip


def subset(*ips: str, not_ready: tuple[str, ...] = (), port: int = 80) -> dict[str, Any]:
    return {
        "addresses": [{"ip": ip} for ip in ips],
        "notReadyAddresses": [{"ip": ip} for ip in not_ready],
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
    }


def slices(client: MemoryClient) -> list[tuple[str, list[int], list[str]]]:
    """Address type, ports and addresses of each slice."""
    return sorted(
        (
            wire["addressType"],
            [port["port"] for port in wire["ports"]],
            [address for endpoint in wire["endpoints"] for address in endpoint["addresses"]],
        )
        for wire in client.all(ENDPOINT_SLICES)
    )


async def test_a_slice_says_what_the_endpoints_say(world: World) -> None:
    target = {"kind": "Pod", "name": "p", "namespace": "default"}
    wire = endpoints(
        {"addresses": [{"ip": "10.0.0.1", "hostname": "h", "nodeName": "n", "targetRef": target}],
         "notReadyAddresses": [{"ip": "10.0.0.2"}],
         "ports": [{"port": 80, "appProtocol": "h2c"}]},
        labels={"a": "b"},
        annotations={"c": "d", "endpoints.kubernetes.io/last-change-trigger-time": "now",
                     "kubectl.kubernetes.io/last-applied-configuration": "{}"},
    )  # fmt: skip
    world.client.put(ENDPOINTS, wire)
    async with mirroring(world) as client:
        (made,) = client.all(ENDPOINT_SLICES)
        meta = made["metadata"]
        assert meta["labels"] == {
            "a": "b", "kubernetes.io/service-name": "s",
            "endpointslice.kubernetes.io/managed-by": MANAGED,
        }  # fmt: skip
        assert meta["annotations"] == {"c": "d"}
        assert meta["name"].startswith("s-")
        (owner,) = meta["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("Endpoints", "s", "e")
        assert made["addressType"] == "IPv4"
        assert made["ports"] == [{"name": "", "protocol": "TCP", "port": 80, "appProtocol": "h2c"}]
        assert made["endpoints"] == [
            {"addresses": ["10.0.0.1"], "conditions": {"ready": True}, "hostname": "h",
             "targetRef": target, "nodeName": "n"},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": False}},
        ]  # fmt: skip
        # Nothing is written twice.
        client.requests.clear()
        client.put(ENDPOINTS, client.find(ENDPOINTS, "s") or {})
        await world.settled(1)
        assert client.writes == []


async def test_families_and_ports_have_slices_of_their_own(world: World) -> None:
    world.client.put(ENDPOINTS, endpoints(
        subset("10.0.0.1", "fd00::1"), subset("10.0.0.2", port=81),
        subset("10.0.0.3", "10.0.0.1", not_ready=("10.0.0.1",)),
    ))  # fmt: skip
    async with mirroring(world) as client:
        assert slices(client) == [
            ("IPv4", [80], ["10.0.0.1", "10.0.0.3"]), ("IPv4", [81], ["10.0.0.2"]),
            ("IPv6", [80], ["fd00::1"]),
        ]  # fmt: skip


async def test_changes_are_followed(world: World) -> None:
    world.client.put(ENDPOINTS, endpoints(subset("10.0.0.1"), labels={"a": "b"}))
    async with mirroring(world) as client:
        (before,) = client.names(ENDPOINT_SLICES)
        client.put(ENDPOINTS, endpoints(subset("10.0.0.1", "10.0.0.2"), labels={"c": "d"}))
        await world.settled(1)
        assert client.names(ENDPOINT_SLICES) == [before]
        assert slices(client) == [("IPv4", [80], ["10.0.0.1", "10.0.0.2"])]
        labels = client.all(ENDPOINT_SLICES)[0]["metadata"]["labels"]
        assert ("a" in labels, labels["c"]) == (False, "d")
        client.put(ENDPOINTS, endpoints(subset("10.0.0.1", port=90)))
        await world.settled(1)
        assert slices(client) == [("IPv4", [90], ["10.0.0.1"])]
        # What another changes or deletes is put right.
        (wire,) = client.all(ENDPOINT_SLICES)
        client.put(ENDPOINT_SLICES, {**wire, "endpoints": []})
        await world.settled(1)
        assert slices(client) == [("IPv4", [90], ["10.0.0.1"])]
        client.drop(ENDPOINT_SLICES, wire["metadata"]["name"])
        await world.settled(1)
        assert slices(client) == [("IPv4", [90], ["10.0.0.1"])]


@pytest.mark.parametrize(
    ("meta", "spec"),
    [
        ({"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}, {}),
        ({"annotations": {"control-plane.alpha.kubernetes.io/leader": "{}"}}, {}),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, {}),
        ({}, {"selector": {"app": "web"}}),
    ],
)
async def test_what_is_not_mirrored(
    world: World, meta: dict[str, Any], spec: dict[str, Any]
) -> None:
    world.client.put(ENDPOINTS, endpoints(subset("10.0.0.1")))
    async with mirroring(world) as client:
        assert len(slices(client)) == 1
        client.put(SERVICES, {"metadata": {"name": "s"}, "spec": spec})
        client.put(ENDPOINTS, endpoints(subset("10.0.0.1"), **meta))
        await world.settled(1)
        assert slices(client) == []


async def test_endpoints_without_a_service_are_mirrored_when_it_comes(world: World) -> None:
    world.client.drop(SERVICES, "s")
    world.client.put(ENDPOINTS, endpoints(subset("10.0.0.1")))
    async with mirroring(world) as client:
        assert slices(client) == []
        client.put(SERVICES, {"metadata": {"name": "s"}, "spec": {}})
        await world.settled(1)
        assert len(slices(client)) == 1
        # The garbage collector deletes the slices of Endpoints that go.
        client.drop(ENDPOINTS, "s")
        await world.settled(1)
        assert client.asked("delete") == []


async def test_slices_of_others_stay(world: World) -> None:
    other = {
        "metadata": {"name": "own", "namespace": "default",
                     "labels": {"kubernetes.io/service-name": "s"},
                     "ownerReferences": [{"uid": "e", "kind": "Endpoints", "name": "s"}]},
        "addressType": "IPv4", "endpoints": [], "ports": [],
    }  # fmt: skip
    world.client.put(ENDPOINT_SLICES, other)
    world.client.put(ENDPOINTS, endpoints())
    async with mirroring(world) as client:
        assert client.names(ENDPOINT_SLICES) == ["own"]


async def test_addresses_that_cannot_be_mirrored_are_reported(world: World) -> None:
    many = [f"10.0.{number // 256}.{number % 256}" for number in range(1003)]
    world.client.put(ENDPOINTS, endpoints(subset("nonsense", *many)))
    async with mirroring(world) as client:
        await world.settled(1)
        ((_, _, addresses),) = slices(client)
        assert addresses == many[:1000]
        assert sorted(event[2:] for event in client.events) == [
            ("InvalidIPAddress", "Skipped 1 invalid IP addresses when mirroring to EndpointSlices"),
            ("TooManyAddressesToMirror",
             "A max of 1000 addresses can be mirrored to EndpointSlices per Endpoints subset. 3 "
             "addresses were skipped"),
        ]  # fmt: skip


async def test_a_slice_that_goes_meanwhile_is_no_failure(world: World) -> None:
    world.client.put(ENDPOINTS, endpoints(subset("10.0.0.1")))
    async with mirroring(world) as client:
        client.failures.append(("delete", ENDPOINT_SLICES.plural, NotFoundError("gone")))
        client.put(ENDPOINTS, endpoints())
        await world.settled(1)
        assert client.asked("delete", ENDPOINT_SLICES)
