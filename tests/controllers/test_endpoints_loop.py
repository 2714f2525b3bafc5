"""The endpoints loop: what is written for a service, and which changes lead to a write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from moorage.api.errors import ForbiddenError
from moorage.controllers.endpoints import EndpointsController
from moorage.controllers.objects import ENDPOINT_SLICES, NODES, PODS
from moorage.wire.client.resources import ENDPOINTS, SERVICES
from tests.controllers.memory import MemoryClient, World

LABELS = {
    "kubernetes.io/service-name": "s",
    "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
}
MANAGED = {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}


@pytest.fixture
def world() -> World:
    world = World()
    zone = {"topology.kubernetes.io/zone": "z"}
    world.client.put(NODES, {"metadata": {"name": "n1", "labels": zone}, "spec": {}, "status": {}})
    return world


@asynccontextmanager
async def following(world: World) -> AsyncIterator[MemoryClient]:
    controller = EndpointsController(world.client, world.informers, world.clock)
    async with world.running(controller.run(workers=2)) as client:
        yield client


def service(name: str = "s", *, app: str = "web", **spec: Any) -> dict[str, Any]:
    meta = spec.pop("meta", {})
    ports = [
        {"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP", "appProtocol": "h2c"},
        {"name": "metrics", "port": 90, "targetPort": 9090, "protocol": "TCP"},
    ]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", **meta},
        "spec": {"selector": {"app": app} if app else {}, "ports": ports, **spec},
    }


def pod(
    name: str, ip: str, *, web: int = 8080, ready: bool = True, app: str = "web",
    ips: tuple[str, ...] = (), **more: Any,
) -> dict[str, Any]:  # fmt: skip
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    # The right port stands between wrong ones: of the same name but another protocol, and others.
    ports = [
        {"name": "admin", "containerPort": 1, "protocol": "TCP"},
        {"name": "web", "containerPort": 2, "protocol": "UDP"},
        {"name": "web", "containerPort": web, "protocol": "TCP"},
        {"name": "last", "containerPort": 3, "protocol": "TCP"},
    ]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}",
                     "labels": {"app": app}, **more.pop("meta", {})},
        "spec": {"nodeName": "n1", "containers": [{"name": "side"}, {"name": "c", "ports": ports}],
                 **more},
        "status": {"phase": "Running", "conditions": [condition], "podIP": ip,
                   "podIPs": [{"ip": pod_ip} for pod_ip in ips or (ip,)]},
    }  # fmt: skip


def target(name: str) -> dict[str, str]:
    return {"kind": "Pod", "namespace": "default", "name": name, "uid": f"uid-{name}"}


async def test_what_is_written_for_a_service(world: World) -> None:
    world.client.put(SERVICES, service(meta={"labels": {"team": "x"}}))
    world.client.put(PODS, pod("a", "10.0.0.1"))
    world.client.put(PODS, pod("b", "10.0.0.2", ready=False))
    world.client.put(PODS, pod("c", "10.0.0.3", web=8081))
    world.client.put(PODS, pod("d", "10.0.0.4", app="db"))
    async with following(world) as client:
        ports = [
            {"name": "http", "port": 8080, "protocol": "TCP", "appProtocol": "h2c"},
            {"name": "metrics", "port": 9090, "protocol": "TCP"},
        ]
        others = [{**ports[0], "port": 8081}, ports[1]]
        (endpoints,) = client.asked("create", ENDPOINTS)
        assert endpoints.body == {
            "metadata": {"name": "s", "namespace": "default",
                         "labels": {"team": "x", **MANAGED}},
            "subsets": [
                {
                    "addresses": [
                        {"ip": "10.0.0.1", "nodeName": "n1", "targetRef": target("a")}
                    ],
                    "notReadyAddresses": [
                        {"ip": "10.0.0.2", "nodeName": "n1", "targetRef": target("b")}
                    ],
                    "ports": ports,
                },
                {
                    "addresses": [
                        {"ip": "10.0.0.3", "nodeName": "n1", "targetRef": target("c")}
                    ],
                    "ports": others,
                },
            ],
        }  # fmt: skip
        first, second = (request.body for request in client.asked("create", ENDPOINT_SLICES))
        assert first["metadata"] == {
            "generateName": "s-",
            "namespace": "default",
            "labels": {"team": "x", **LABELS},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Service", "name": "s", "uid": "uid-s",
                 "controller": True, "blockOwnerDeletion": True}
            ],
        }  # fmt: skip
        assert (first["addressType"], first["ports"], second["ports"]) == ("IPv4", ports, others)
        shown = [(endpoint["addresses"], endpoint["conditions"], endpoint["targetRef"],
                  endpoint["nodeName"], endpoint["zone"])
                 for endpoint in first["endpoints"]]  # fmt: skip
        assert shown == [
            (["10.0.0.1"], {"ready": True, "serving": True, "terminating": False},
             target("a"), "n1", "z"),
            (["10.0.0.2"], {"ready": False, "serving": False, "terminating": False},
             target("b"), "n1", "z"),
        ]  # fmt: skip
        client.requests.clear()
        await world.settled(100)
        assert client.writes == []


async def test_changes_of_pods_are_followed(world: World) -> None:
    world.client.put(SERVICES, service())
    world.client.put(SERVICES, service("other", app="db"))
    world.client.put(PODS, pod("a", "10.0.0.1"))
    world.client.put(PODS, pod("b", "10.0.0.2"))
    async with following(world) as client:

        def listed() -> tuple[list[str], list[str]]:
            endpoints = client.find(ENDPOINTS, "s")
            assert endpoints is not None
            subset = (endpoints.get("subsets") or [{}])[0]
            return tuple(  # type: ignore[return-value]
                [address["ip"] for address in subset.get(key, ())]
                for key in ("addresses", "notReadyAddresses")
            )

        def sliced() -> set[str]:
            return {
                address
                for endpoint_slice in client.all(ENDPOINT_SLICES)
                if endpoint_slice["metadata"]["labels"]["kubernetes.io/service-name"] == "s"
                for endpoint in endpoint_slice["endpoints"]
                if endpoint["conditions"]["ready"]
                for address in endpoint["addresses"]
            }

        assert (listed(), sliced()) == (
            (["10.0.0.1", "10.0.0.2"], []), {"10.0.0.1", "10.0.0.2"},
        )  # fmt: skip
        client.put(PODS, pod("a", "10.0.0.1", ready=False))
        await world.settled()
        assert (listed(), sliced()) == ((["10.0.0.2"], ["10.0.0.1"]), {"10.0.0.2"})
        client.put(PODS, pod("a", "10.0.0.9"))
        await world.settled()
        assert listed()[0] == ["10.0.0.2", "10.0.0.9"]
        client.put(PODS, pod("b", "10.0.0.2", app="db"))
        await world.settled()
        assert (listed(), sliced()) == ((["10.0.0.9"], []), {"10.0.0.9"})
        leaving = pod("a", "10.0.0.9", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})
        client.put(PODS, leaving)
        await world.settled()
        assert (listed(), sliced()) == (([], []), set())
        client.put(PODS, pod("b", "10.0.0.2"))
        await world.settled()
        assert listed() == (["10.0.0.2"], [])
        client.drop(PODS, "b")
        await world.settled()
        assert (listed(), sliced()) == (([], []), set())


async def test_what_does_not_concern_a_service_writes_nothing(world: World) -> None:
    world.client.put(SERVICES, service())
    world.client.put(SERVICES, service("manual", app=""))
    world.client.put(SERVICES, service("outside", type="ExternalName"))
    world.client.put(PODS, pod("a", "10.0.0.1"))
    async with following(world) as client:
        assert client.names(ENDPOINTS) == ["s"]
        client.requests.clear()
        client.put(PODS, pod("a", "10.0.0.1", meta={"annotations": {"x": "y"}}))
        client.put(PODS, pod("z", "10.0.0.7", app="db"))
        elsewhere = pod("a", "10.0.0.8", meta={"namespace": "elsewhere"})
        client.put(PODS, elsewhere)
        await world.settled()
        assert client.writes == []


async def test_what_someone_else_changed_is_set_right(world: World) -> None:
    world.client.put(SERVICES, service(meta={"labels": {"team": "x"}}))
    world.client.put(PODS, pod("a", "10.0.0.1"))
    async with following(world) as client:
        wanted = client.find(ENDPOINTS, "s")
        (slice_,) = client.all(ENDPOINT_SLICES)
        assert wanted is not None
        client.requests.clear()
        meta = {**wanted["metadata"], "labels": {"old": "1"}}
        client.put(ENDPOINTS, {**wanted, "subsets": [], "metadata": meta})
        await world.settled()
        (patch,) = client.asked("patch", ENDPOINTS)
        assert patch.body["metadata"].keys() == {"uid", "resourceVersion", "labels"}
        assert patch.body["metadata"]["labels"] == {"old": None, "team": "x", **MANAGED}
        endpoints = client.find(ENDPOINTS, "s")
        assert endpoints is not None
        assert endpoints["subsets"] == wanted["subsets"]
        client.put(ENDPOINT_SLICES, {**slice_, "endpoints": []})
        await world.settled()
        (again,) = client.all(ENDPOINT_SLICES)
        assert again["endpoints"] == slice_["endpoints"]
        client.drop(ENDPOINT_SLICES, slice_["metadata"]["name"])
        await world.settled()
        assert len(client.all(ENDPOINT_SLICES)) == 1
        client.drop(ENDPOINTS, "s")
        await world.settled()
        assert client.names(ENDPOINTS) == ["s"]


async def test_new_labels_of_a_service_reach_both(world: World) -> None:
    world.client.put(SERVICES, service())
    async with following(world) as client:
        client.put(SERVICES, service(meta={"labels": {"team": "y"}}, clusterIP="None"))
        await world.settled()
        endpoints = client.find(ENDPOINTS, "s")
        (slice_,) = client.all(ENDPOINT_SLICES)
        more = {"team": "y", "service.kubernetes.io/headless": ""}
        assert endpoints is not None
        assert endpoints["metadata"]["labels"] == {**more, **MANAGED}
        assert slice_["metadata"]["labels"] == {**more, **LABELS}


async def test_slices_of_others_are_left_alone(world: World) -> None:
    world.client.put(SERVICES, service())
    owner = [{"apiVersion": "v1", "kind": "Service", "name": "s", "uid": "uid-s"}]
    theirs = {
        "metadata": {"name": "theirs", "ownerReferences": owner,
                     "labels": {"kubernetes.io/service-name": "s"}},
        "addressType": "IPv4", "endpoints": [],
    }  # fmt: skip
    going = {
        "metadata": {"name": "going", "ownerReferences": owner, "labels": LABELS,
                     "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "addressType": "IPv4", "endpoints": [],
    }  # fmt: skip
    world.client.put(ENDPOINT_SLICES, theirs)
    world.client.put(ENDPOINT_SLICES, going)
    world.client.put(PODS, pod("a", "10.0.0.1"))
    async with following(world) as client:
        assert client.asked("patch", ENDPOINT_SLICES) == client.asked("delete") == []
        assert len(client.asked("create", ENDPOINT_SLICES)) == 1


async def test_a_slice_is_made_once_although_the_copy_lags(world: World) -> None:
    world.client.put(SERVICES, service())
    world.client.put(PODS, pod("a", "10.0.0.1"))
    async with following(world) as client:
        # The Endpoints object's own event leads to a second round at once.
        assert len(client.asked("create", ENDPOINT_SLICES)) == 1
        (slice_,) = client.all(ENDPOINT_SLICES)
        name = slice_["metadata"]["name"]
        # It goes, and no event has said so yet when the pods change.
        client.drop_unseen(ENDPOINT_SLICES, name)
        client.put(PODS, pod("a", "10.0.0.9"))
        await world.settled()
        client.send(ENDPOINT_SLICES, "DELETED", slice_)
        await world.settled(1)
        (again,) = client.all(ENDPOINT_SLICES)
        assert again["endpoints"][0]["addresses"] == ["10.0.0.9"]


async def test_a_client_never_sees_a_slice_without_ports_beside_an_endpoint(world: World) -> None:
    world.client.put(SERVICES, service())
    async with following(world) as client:
        (empty,) = client.all(ENDPOINT_SLICES)
        assert not empty["endpoints"]
        assert not empty["ports"]
        client.requests.clear()
        client.put(PODS, pod("a", "10.0.0.1"))
        await world.settled()
        assert client.asked("create", ENDPOINT_SLICES) == []
        assert client.asked("delete", ENDPOINT_SLICES) == []
        (slice_,) = client.all(ENDPOINT_SLICES)
        assert slice_["metadata"]["name"] == empty["metadata"]["name"]
        assert slice_["endpoints"][0]["addresses"] == ["10.0.0.1"]
        assert [port["port"] for port in slice_["ports"]] == [8080, 9090]
        client.drop(PODS, "a")
        await world.settled()
        (again,) = client.all(ENDPOINT_SLICES)
        assert not again["endpoints"]
        assert not again["ports"]


async def test_surplus_slices_go(world: World) -> None:
    world.client.put(SERVICES, service())
    world.client.put(PODS, pod("a", "10.0.0.1"))
    world.client.put(PODS, pod("b", "10.0.0.2", web=1234))
    async with following(world) as client:
        assert len(client.all(ENDPOINT_SLICES)) == 2
        client.drop(PODS, "b")
        await world.settled()
        deletions = client.asked("delete", ENDPOINT_SLICES)
        assert len({deletion.key for deletion in deletions}) == 1
        assert deletions[0].more["uid"].startswith("u")
        assert len(client.all(ENDPOINT_SLICES)) == 1


async def test_the_endpoints_of_a_service_that_has_gone_go_if_they_are_ours(world: World) -> None:
    for name in ("s", "t"):
        world.client.put(SERVICES, service(name))
    async with following(world) as client:
        foreign = client.find(ENDPOINTS, "t")
        assert foreign is not None
        client.drop(SERVICES, "s")
        client.drop(SERVICES, "t")
        client.put(ENDPOINTS, {**foreign, "metadata": {**foreign["metadata"], "labels": {}}})
        await world.settled()
        assert client.names(ENDPOINTS) == ["t"]
        (deletion,) = client.asked("delete", ENDPOINTS)
        assert deletion.more["uid"].startswith("u")


async def test_a_service_on_its_way_out_is_left_alone(world: World) -> None:
    going = service(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    world.client.put(SERVICES, going)
    world.client.put(PODS, pod("a", "10.0.0.1"))
    async with following(world) as client:
        assert client.writes == []


async def test_endpoints_hold_the_first_family_and_slices_each(world: World) -> None:
    world.client.put(SERVICES, service(ipFamilies=["IPv6", "IPv4"]))
    world.client.put(PODS, pod("a", "10.0.0.1", ips=("10.0.0.1", "fd00::1")))
    async with following(world) as client:
        endpoints = client.find(ENDPOINTS, "s")
        assert endpoints is not None
        assert [address["ip"] for address in endpoints["subsets"][0]["addresses"]] == ["fd00::1"]
        kinds = {endpoint_slice["addressType"]: endpoint_slice["endpoints"][0]["addresses"]
                 for endpoint_slice in client.all(ENDPOINT_SLICES)}  # fmt: skip
        assert kinds == {"IPv4": ["10.0.0.1"], "IPv6": ["fd00::1"]}


async def test_a_pod_of_a_headless_service_has_a_name(world: World) -> None:
    world.client.put(SERVICES, service())
    world.client.put(PODS, pod("a", "10.0.0.1", hostname="db-0", subdomain="s"))
    world.client.put(PODS, pod("b", "10.0.0.2", hostname="db-1", subdomain="other"))
    async with following(world) as client:
        endpoints = client.find(ENDPOINTS, "s")
        assert endpoints is not None
        names = [address.get("hostname") for address in endpoints["subsets"][0]["addresses"]]
        assert names == ["db-0", None]


async def test_in_an_ending_namespace_nothing_is_written_and_nothing_fails(world: World) -> None:
    ending = ForbiddenError("ending", details={"causes": [{"reason": "NamespaceTerminating"}]})
    world.client.put(SERVICES, service())
    world.client.failures.append(("create", ENDPOINTS.plural, ending))
    async with following(world) as client:
        assert client.names(ENDPOINTS) == []


@pytest.mark.failing_reconciles
async def test_another_refusal_is_tried_again(world: World) -> None:
    world.client.put(SERVICES, service())
    world.client.failures.append(("create", ENDPOINTS.plural, ForbiddenError("quota")))
    async with following(world) as client:
        await world.settled(1)
        assert client.names(ENDPOINTS) == ["s"]
