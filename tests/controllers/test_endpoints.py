from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.containers import ContainerPort
from moorage.api.meta import ObjectMeta
from moorage.api.services import Service, ServicePort, ServiceSpec
from moorage.controllers.endpoints.backends import backends_of, subsets_of
from moorage.controllers.endpoints.slices import CAPACITY, divide
from moorage.controllers.objects import Container, EndpointSlice, Pod
from tests.controllers.objects import pod


def service(
    target: int | str = 8080, *, selector: dict[str, str] | None = None, publishes: bool = False
) -> Service:
    return Service(
        metadata=ObjectMeta(name="s", namespace="default", uid="s"),
        spec=ServiceSpec(
            selector={"app": "web"} if selector is None else selector,
            ports=(ServicePort(port=80, protocol="TCP", target_port=target),),
            publish_not_ready_addresses=publishes,
        ),
    )


def listening(of: Pod, name: str, port: int) -> Pod:
    container = Container(ports=(ContainerPort(name=name, container_port=port, protocol="TCP"),))
    return msgspec.structs.replace(
        of, spec=msgspec.structs.replace(of.spec, containers=(container,))
    )


READY = pod("a", ip="10.0.0.1")
UNREADY = pod("b", ip="10.0.0.2", ready_for=None)


@pytest.mark.parametrize(
    ("of", "candidate"),
    [
        (service(selector={}), READY),
        (service(selector={"app": "other"}), READY),
        (service(), pod("a")),
        (service(), pod("a", ip="10.0.0.1", phase="Succeeded")),
    ],
    ids=["no selector", "other pods", "no address yet", "ended"],
)
def test_no_backend(of: Service, candidate: Pod) -> None:
    assert backends_of(of, [candidate]) == []


def test_pods_that_are_not_ready_are_listed_apart() -> None:
    (subset,) = subsets_of(service(), backends_of(service(), [UNREADY, READY]))
    assert [address["ip"] for address in subset["addresses"]] == ["10.0.0.1"]
    assert [address["ip"] for address in subset["notReadyAddresses"]] == ["10.0.0.2"]
    assert subset["ports"] == [{"port": 8080, "protocol": "TCP"}]


def test_a_service_may_publish_pods_that_are_not_ready() -> None:
    eager = service(publishes=True)
    (subset,) = subsets_of(eager, backends_of(eager, [UNREADY, READY]))
    assert len(subset["addresses"]) == 2


def test_a_named_port_is_each_pods_own() -> None:
    named = service("web")
    pods = [listening(READY, "web", 1), listening(UNREADY, "web", 2), pod("c", ip="10.0.0.3")]
    subsets = subsets_of(named, backends_of(named, pods))
    assert [subset["ports"][0]["port"] for subset in subsets] == [1, 2]


def test_a_named_port_may_be_a_sidecars() -> None:
    ports = (ContainerPort(name="web", container_port=3, protocol="TCP"),)
    named = service("web")
    for policy, expected in (("Always", [3]), (None, [])):
        container = Container(ports=ports, restart_policy=policy)
        spec = msgspec.structs.replace(READY.spec, init_containers=(container,))
        subsets = subsets_of(named, backends_of(named, [msgspec.structs.replace(READY, spec=spec)]))
        assert [port["port"] for subset in subsets for port in subset.get("ports", ())] == expected


def test_a_pod_on_its_way_out_still_serves_in_slices_but_not_in_endpoints() -> None:
    leaving = pod("a", ip="10.0.0.1", is_deleting=True)
    backends = backends_of(service(), [leaving])
    assert subsets_of(service(), backends) == []
    (content,) = divide(service(), backends, [], lambda _: "").wanted
    assert content.endpoints[0]["conditions"] == {
        "ready": False,
        "serving": True,
        "terminating": True,
    }


def test_a_service_without_pods_has_one_empty_slice() -> None:
    (content,) = divide(service(), [], [], lambda _: "").wanted
    assert (content.address_type, content.endpoints) == ("IPv4", ())
    kept = EndpointSlice(metadata=ObjectMeta(name="e"), address_type="IPv4")
    division = divide(service(), [], [kept], lambda _: "")
    assert [slice_.existing for slice_ in division.wanted] == [kept]
    assert division.surplus == []


def test_the_empty_slice_becomes_that_of_the_first_endpoint() -> None:
    empty = EndpointSlice(metadata=ObjectMeta(name="e"), address_type="IPv4")
    division = divide(service(), backends_of(service(), [READY]), [empty], lambda _: "")
    (content,) = division.wanted
    assert (content.existing, content.is_as_wanted) == (empty, False)
    assert content.port_objects == [{"name": "", "port": 8080, "protocol": "TCP"}]
    assert division.surplus == []


def test_a_slice_of_the_same_endpoints_with_other_ports_is_not_as_wanted() -> None:
    before = divide(service(80), backends_of(service(80), [READY]), [], lambda _: "").wanted[0]
    slice_ = EndpointSlice(
        metadata=ObjectMeta(name="e"),
        address_type="IPv4",
        endpoints=before.endpoints,
        ports=tuple(before.port_objects),
    )
    assert (
        divide(service(80), backends_of(service(80), [READY]), [slice_], lambda _: "")
        .wanted[0]
        .is_as_wanted
    )
    (content,) = divide(service(), backends_of(service(), [READY]), [slice_], lambda _: "").wanted
    assert (content.existing, content.is_as_wanted) == (slice_, False)


def test_a_slice_of_the_other_address_type_is_not_reused() -> None:
    other = EndpointSlice(metadata=ObjectMeta(name="e"), address_type="IPv6")
    division = divide(service(), backends_of(service(), [READY]), [other], lambda _: "")
    assert [content.existing for content in division.wanted] == [None]
    assert division.surplus == [other]


def test_the_zone_is_the_nodes() -> None:
    (content,) = divide(
        service(), backends_of(service(), [READY]), [], {"n1": "z"}.__getitem__
    ).wanted
    assert content.endpoints[0]["zone"] == "z"
    assert content.endpoints[0]["nodeName"] == "n1"


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(0, 250), st.integers(0, 250)), min_size=1, max_size=6),
)
def test_slices_hold_every_pod_once_and_settle(changes: list[tuple[int, int]]) -> None:
    """Other pods exist at each step; the slices follow."""
    slices: list[EndpointSlice] = []
    for first, count in changes:
        pods = [pod(f"p{i}", ip=f"10.0.{i // 256}.{i % 256}") for i in range(first, first + count)]
        backends = backends_of(service(), pods)
        division = divide(service(), backends, slices, lambda _: "")
        held = [endpoint["targetRef"]["uid"] for c in division.wanted for endpoint in c.endpoints]
        assert sorted(held) == sorted(obj.metadata.uid for obj in pods)
        assert all(len(slice_.endpoints) <= CAPACITY for slice_ in division.wanted)
        slices = [
            EndpointSlice(
                metadata=slice_.existing.metadata if slice_.existing else ObjectMeta(name=f"s{i}"),
                address_type=slice_.address_type,
                endpoints=slice_.endpoints,
                ports=tuple(slice_.port_objects),
            )
            for i, slice_ in enumerate(division.wanted)
        ]
        again = divide(service(), backends, slices, lambda _: "")
        assert all(slice_.is_as_wanted for slice_ in again.wanted)
        assert again.surplus == []
