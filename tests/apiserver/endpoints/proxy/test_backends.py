"""Which server a name in a `/proxy` path means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from moorage.api.errors import BadRequestError, StatusError, UnavailableError
from moorage.apiserver.endpoints.node_agents import NodeAgent, ServerAddress
from moorage.apiserver.endpoints.proxy.backends import (
    Backend,
    node_backend,
    node_of,
    pod_backend,
    service_authority,
    service_backend,
)
from moorage.apiserver.registry.kind import Kind
from moorage.apiserver.registry.kinds.endpoints import ENDPOINT_SLICE
from moorage.apiserver.registry.kinds.pod import POD
from moorage.apiserver.registry.kinds.service import SERVICE
from moorage.apiserver.registry.stored import Stored, to_value


class FakeObjects:
    """Objects in memory, for reading only."""

    def __init__(self) -> None:
        self._items: dict[str, Stored] = {}

    def put(self, kind: Kind, obj: dict[str, Any]) -> None:
        meta = obj["metadata"]
        key = kind.key("n", meta["name"])
        value = to_value(obj)
        self._items[key] = Stored(
            key, 1, b'"metadata":{"resourceVersion":"1",' + value[13:], meta.get("labels", {}), ()
        )

    def find(self, kind: Kind, namespace: str, name: str) -> Stored | None:
        return self._items.get(kind.key(namespace, name))

    def get(self, kind: Kind, namespace: str, name: str) -> Stored:
        item = self.find(kind, namespace, name)
        if item is None:
            raise StatusError(f"{name} not found")
        return item

    def scan(self, kind: Kind, namespace: str) -> Sequence[Stored]:
        prefix = kind.prefix(namespace)
        return [item for key, item in self._items.items() if key.startswith(prefix)]


def to(scheme: str, host: str, port: int = 0, agent_of: str = "") -> Backend:
    return Backend(ServerAddress(scheme, host, port), agent_of)


def pod(name: str, address: str = "10.0.0.5", ports: tuple[int, ...] = ()) -> dict[str, Any]:
    names = ("", "web")
    declared = [
        {"containerPort": port, "name": name} for port, name in zip(ports, names, strict=False)
    ]
    status = {"podIP": address, "podIPs": [{"ip": address}]} if address else {}
    return {
        "metadata": {"name": name, "namespace": "n"},
        "spec": {"containers": [{"name": "a"}, {"name": "b", "ports": declared}]},
        "status": status,
    }


def agent(host: str) -> NodeAgent:
    return NodeAgent("a", ServerAddress("https", host, 10250))


def endpoint(name: str, address: str = "10.0.0.5", **fields: Any) -> dict[str, Any]:
    target = {"kind": "Pod", "name": name, "namespace": "n"}
    return {"addresses": [address], "targetRef": target, **fields}


def served(*endpoints: dict[str, Any], port: str = "web") -> FakeObjects:
    objects = FakeObjects()
    objects.put(POD, pod("p"))
    objects.put(SERVICE, {
        "metadata": {"name": "s", "namespace": "n"},
        "spec": {"ports": [{"name": port, "port": 80}, {"name": "other", "port": 81}]},
    })  # fmt: skip
    objects.put(ENDPOINT_SLICE, {
        "metadata": {"name": "s-1", "namespace": "n",
                     "labels": {"kubernetes.io/service-name": "s"}},
        "endpoints": list(endpoints), "ports": [{"name": port, "port": 8080}],
    })  # fmt: skip
    return objects


@pytest.mark.parametrize(
    ("text", "ports", "expected"),
    [
        ("p", (), to("http", "10.0.0.5")),
        ("p", (8080, 9090), to("http", "10.0.0.5", 8080)),
        ("p:9", (8080,), to("http", "10.0.0.5", 9)),
        ("https:p:443", (), to("https", "10.0.0.5", 443)),
        (":p:", (7,), to("http", "10.0.0.5", 7)),
        ("p:web", (7, 8), to("http", "10.0.0.5", 8)),
    ],
)
def test_pods(text: str, ports: tuple[int, ...], expected: Backend) -> None:
    objects = FakeObjects()
    objects.put(POD, pod("p", ports=ports))
    assert pod_backend(objects, "n", text) == expected


def test_a_pod_with_an_address_of_version_6() -> None:
    objects = FakeObjects()
    objects.put(POD, pod("p", "FD00:0::5"))
    assert pod_backend(objects, "n", "p:80").address.origin == "http://[fd00::5]:80"


@pytest.mark.parametrize(
    "address",
    ["", "127.0.0.1", "::1", "169.254.169.254", "fe80::1", "224.0.0.1", "0.0.0.0", "::",
     "255.255.255.255", "::ffff:127.0.0.1", "web", "fd00::5%eth0", "fd00::5%x]:80@127.0.0.1"],
)  # fmt: skip
def test_addresses_that_are_not_allowed(address: str) -> None:
    objects = FakeObjects()
    objects.put(POD, pod("p", address))
    with pytest.raises(BadRequestError, match="address not allowed"):
        pod_backend(objects, "n", "p:80")


@pytest.mark.parametrize("text", ["", ":", "ftp:p:80", "http:p:80:1", ":80", "http::80"])
def test_names_that_are_invalid(text: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        pod_backend(FakeObjects(), "n", text)
    assert str(caught.value) == f'invalid pod request "{text}"'


NO_PORTS = (
    "80@127.0.0.77", "0", "65536", "-1", "+80", " 80", "٨٠", "80/", "80?", "80#", "http", "999999",
    "1_0",
)  # fmt: skip


@pytest.mark.parametrize("port", NO_PORTS)
def test_ports_that_are_neither_a_number_nor_a_declared_name(port: str) -> None:
    objects = FakeObjects()
    objects.put(POD, pod("p", ports=(7, 8)))
    with pytest.raises(BadRequestError, match="invalid pod request"):
        pod_backend(objects, "n", f"http:p:{port}")
    with pytest.raises(BadRequestError, match="invalid node request"):
        node_backend(f"http:a:{port}", agent("10.1.0.1"))
    with pytest.raises(UnavailableError):
        service_backend(served(endpoint("p")), "n", f"http:s:{port}")


@pytest.mark.parametrize("text", ["s:web", "s:80", "http:s:web"])
def test_services(text: str) -> None:
    objects = served(endpoint("p"))
    assert service_backend(objects, "n", text) == to("http", "10.0.0.5", 8080)


def test_a_port_without_name() -> None:
    objects = served(endpoint("p", conditions={"ready": True}), port="")
    assert service_backend(objects, "n", "https:s:") == to("https", "10.0.0.5", 8080)


def test_a_webhooks_service_may_have_endpoints_that_are_no_pods() -> None:
    objects = served({"addresses": ["10.0.0.7"]}, endpoint("p", conditions={"ready": False}))
    assert service_authority(objects, "n", "s", 80) == "10.0.0.7:8080"
    with pytest.raises(UnavailableError, match='no service port 99 found for service "s"'):
        service_authority(objects, "n", "s", 99)
    with pytest.raises(BadRequestError, match="address not allowed"):
        service_authority(served({"addresses": ["127.0.0.1"]}), "n", "s", 80)


@pytest.mark.parametrize(
    "other",
    [
        endpoint("p", conditions={"ready": False}),
        endpoint("p", "10.0.0.6"),
        endpoint("gone"),
        {"addresses": ["10.0.0.5"]},
        endpoint("p", targetRef={"name": "p", "namespace": "other"}),
    ],
)
def test_only_ready_pods_of_the_service_are_asked(other: dict[str, Any]) -> None:
    with pytest.raises(UnavailableError) as caught:
        service_backend(served(other), "n", "s:web")
    assert str(caught.value) == 'no endpoints available for service "s"'
    assert service_backend(served(other, endpoint("p")), "n", "s:web") == to(
        "http", "10.0.0.5", 8080
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("s:8080", 'no service port 8080 found for service "s"'),
        ("s:other", 'no endpoints available for service "s"'),
        ("t:web", 'no endpoints available for service "t"'),
    ],
)
def test_services_without_a_server(text: str, says: str) -> None:
    with pytest.raises(UnavailableError) as caught:
        service_backend(served(endpoint("p")), "n", text)
    assert str(caught.value) == says


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", to("https", "10.1.0.1", 10250, "a")),
        ("http:a:10250", to("https", "10.1.0.1", 10250, "a")),
        ("a:9100", to("http", "10.1.0.1", 9100)),
    ],
)
def test_nodes(text: str, expected: Backend) -> None:
    assert node_backend(text, agent("10.1.0.1")) == expected


def test_another_port_of_a_node_on_loopback() -> None:
    assert node_backend("a", agent("127.0.0.1")).agent_of == "a"
    with pytest.raises(BadRequestError, match="address not allowed"):
        node_backend("a:9100", agent("127.0.0.1"))


def test_a_node_that_is_not_there() -> None:
    with pytest.raises(StatusError, match="not found"):
        node_of(FakeObjects(), "https:a:1")
