"""Cluster IPs and node ports: given out once, kept over updates, claimed when free."""

from __future__ import annotations

import ipaddress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.errors import InvalidError
from moorage.api.services import Service
from moorage.apiserver.admission.service_addresses import NODE_PORTS, ServiceAddresses
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.service import SERVICE
from moorage.apiserver.registry.request import Attributes
from tests.apiserver.admission.writes import admit, write

NETWORK = ipaddress.IPv4Network("10.96.0.0/24")


class Services:
    """The services there are, and the plugin that looks at them."""

    def __init__(
        self, network: ipaddress.IPv4Network = NETWORK, node_ports: range = NODE_PORTS
    ) -> None:
        self.network = network
        self.stored: list[Service] = []
        self.networks = [network]
        self.claimed: list[str] = []
        self.plugin = ServiceAddresses(
            lambda: self.stored, lambda: self.networks, lambda: self.claimed, node_ports
        )
        self.running: list[Attributes] = []

    def store(self, **spec: Any) -> None:
        self.stored.append(msgspec.convert({"spec": spec}, Service))

    def admit(self, spec: Obj, old: Obj | None = None, *, is_dry_run: bool = False) -> Obj:
        obj = {"metadata": {"name": "s"}, "spec": spec}
        before = None if old is None else {"metadata": {"name": "s"}, "spec": old}
        operation = "CREATE" if old is None else "UPDATE"
        about = write(SERVICE, obj, old=before, operation=operation, is_dry_run=is_dry_run)
        self.running.append(about)
        after: Obj = admit(self.plugin, about)["spec"]
        return after

    def end_all(self) -> None:
        """End the admitted writes, as after a refusal."""
        for write_ in self.running:
            write_.end()


def port(number: int = 80, **fields: Any) -> Obj:
    return {"port": number, "protocol": "TCP", **fields}


def test_a_service_gets_an_address_of_the_range() -> None:
    spec = Services().admit({"type": "ClusterIP", "ports": [port()]})
    address = ipaddress.IPv4Address(spec["clusterIP"])
    assert address in NETWORK
    assert address not in (NETWORK[0], NETWORK[1], NETWORK[-1])
    assert spec["clusterIPs"] == [spec["clusterIP"]]
    assert spec["ipFamilies"] == ["IPv4"]
    assert spec["ipFamilyPolicy"] == "SingleStack"
    assert "nodePort" not in spec["ports"][0]


@given(st.integers(min_value=1, max_value=20))
def test_addresses_are_given_out_once_even_before_they_are_stored(count: int) -> None:
    services = Services(ipaddress.IPv4Network("10.0.0.0/27"))
    given_out = [services.admit({"type": "ClusterIP"})["clusterIP"] for _ in range(count)]
    assert len(set(given_out)) == count


def test_a_second_network_is_used_when_the_first_is_full() -> None:
    services = Services(ipaddress.IPv4Network("10.0.0.0/30"))
    services.networks.append(ipaddress.IPv4Network("10.1.0.0/30"))
    assert [services.admit({})["clusterIP"] for _ in range(2)] == ["10.0.0.2", "10.1.0.2"]
    assert services.admit({"clusterIP": "10.1.0.1"})["clusterIP"] == "10.1.0.1"


def test_addresses_of_others_are_not_given_out() -> None:
    services = Services(ipaddress.IPv4Network("10.0.0.0/30"))
    services.claimed.append("10.0.0.2")
    with pytest.raises(InvalidError, match="range is full"):
        services.admit({})
    with pytest.raises(InvalidError, match="provided IP is already allocated"):
        services.admit({"clusterIP": "10.0.0.2"})


@pytest.mark.parametrize("address", ["10.96.0.0", "10.96.0.255"])
def test_a_networks_own_addresses_are_no_services(address: str) -> None:
    with pytest.raises(InvalidError, match="does not match the current range"):
        Services().admit({"clusterIP": address})


def test_full_address_range_is_an_error() -> None:
    services = Services(ipaddress.IPv4Network("10.0.0.0/30"))
    assert services.admit({})["clusterIP"] == "10.0.0.2"
    with pytest.raises(InvalidError, match="failed to allocate IP: range is full"):
        services.admit({})


def test_an_address_given_to_a_request_that_failed_comes_back() -> None:
    services = Services(ipaddress.IPv4Network("10.0.0.0/30"))
    services.admit({})
    services.end_all()
    assert services.admit({})["clusterIP"] == "10.0.0.2"


def test_nearly_full_range_gives_its_last_address() -> None:
    services = Services(ipaddress.IPv4Network("10.0.0.0/22"))
    for number in range(2, 1023):
        if number != 700:
            services.store(clusterIPs=[str(services.network[number])])
    assert services.admit({})["clusterIP"] == str(services.network[700])


def test_a_dry_run_keeps_nothing() -> None:
    services = Services(ipaddress.IPv4Network("10.0.0.0/30"))
    for _ in range(2):
        assert services.admit({}, is_dry_run=True)["clusterIP"] == "10.0.0.2"
    ask = {"clusterIP": "10.0.0.2", "type": "NodePort", "ports": [port(nodePort=30001)]}
    for _ in range(2):
        services.admit(msgspec.json.decode(msgspec.json.encode(ask)), is_dry_run=True)


def test_a_chosen_address_is_claimed() -> None:
    services = Services()
    assert services.admit({"clusterIP": "10.96.0.10"})["clusterIPs"] == ["10.96.0.10"]
    assert services.admit({"clusterIPs": ["10.96.0.11"]})["clusterIP"] == "10.96.0.11"
    with pytest.raises(InvalidError) as refusal:
        services.admit({"clusterIP": "10.96.0.10"})
    assert refusal.value.message == (
        'Service "s" is invalid: spec.clusterIPs: Invalid value: ["10.96.0.10"]: '
        "failed to allocate IP 10.96.0.10: provided IP is already allocated"
    )


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (
            "10.97.0.1",
            "the provided network does not match the current range",
        ),
        ("fd00::1", "must be a valid IPv4 address"),
        ("nonsense", "must be a valid IPv4 address"),
    ],
)
def test_an_address_from_elsewhere_is_refused(wanted: str, why: str) -> None:
    with pytest.raises(InvalidError, match="failed to allocate IP") as refusal:
        Services().admit({"clusterIP": wanted})
    assert why in refusal.value.message


def test_an_update_keeps_the_address_it_does_not_mention() -> None:
    old = {"type": "ClusterIP", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"]}
    services = Services()
    services.store(**old)
    for new in ({}, {"clusterIP": "10.96.0.9"}):
        assert services.admit({"type": "ClusterIP", **new}, old)["clusterIP"] == "10.96.0.9"


@pytest.mark.parametrize(
    ("selector", "families", "policy"),
    [({"a": "b"}, ["IPv4"], "SingleStack"), ({}, ["IPv4", "IPv6"], "RequireDualStack")],
)
def test_a_headless_service_has_no_address(
    selector: dict[str, str], families: list[str], policy: str
) -> None:
    spec = Services().admit({"clusterIP": "None", "selector": selector})
    assert spec["clusterIP"] == "None"
    assert spec["clusterIPs"] == ["None"]
    assert (spec["ipFamilies"], spec["ipFamilyPolicy"]) == (families, policy)


def test_an_external_name_gives_its_address_back() -> None:
    old = {"type": "ClusterIP", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"]}
    spec = Services().admit({"type": "ExternalName", "externalName": "example.com",
        "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"]}, old)  # fmt: skip
    assert spec == {"type": "ExternalName", "externalName": "example.com"}


def test_node_ports_are_given_out_and_kept() -> None:
    services = Services()
    spec = services.admit({"type": "NodePort", "ports": [port(80), port(443)]})
    ports = [port["nodePort"] for port in spec["ports"]]
    assert all(port in NODE_PORTS for port in ports)
    assert len(set(ports)) == 2
    services.store(**spec)
    # An update without node ports keeps them, whatever the order.
    again = services.admit({"type": "NodePort", "ports": [port(443), port(80)]}, spec)
    assert [port["nodePort"] for port in again["ports"]] == ports[::-1]
    # The same numbers, spelt out, are the service's own.
    services.admit({"type": "LoadBalancer", "ports": list(spec["ports"])}, spec)


@pytest.mark.parametrize("type_", ["NodePort", "LoadBalancer"])
def test_types_that_have_node_ports(type_: str) -> None:
    services = Services()
    spec = services.admit({"type": type_, "ports": [port(80), port(443)]})
    assert all(port["nodePort"] in NODE_PORTS for port in spec["ports"])
    never = services.admit({"type": "ClusterIP", "ports": [port(80)]})
    assert "nodePort" not in never["ports"][0]


def test_two_ports_may_share_a_number_under_two_protocols() -> None:
    ports = [port(53, nodePort=30053), port(53, protocol="UDP", nodePort=30053)]
    spec = Services().admit({"type": "NodePort", "ports": ports})
    assert [port["nodePort"] for port in spec["ports"]] == [30053, 30053]


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (
            80,
            "provided port is not in the valid range. The range of valid ports is 30000-32767",
        ),
        (30001, "provided port is already allocated"),
    ],
)
def test_a_node_port_must_be_free_and_in_range(wanted: int, why: str) -> None:
    services = Services()
    services.store(type="NodePort", ports=[port(nodePort=30001)])
    with pytest.raises(InvalidError) as refusal:
        services.admit({"type": "NodePort", "ports": [port(8080, nodePort=wanted)]})
    assert refusal.value.message == (
        f'Service "s" is invalid: spec.ports[0].nodePort: Invalid value: {wanted}: {why}'
    )


def test_a_health_check_has_a_port_of_the_range() -> None:
    """The node listens on it: a user may not choose any port of the host."""
    services = Services()
    wanted: Obj = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [port(80)]}
    spec = services.admit(dict(wanted))
    assert spec["healthCheckNodePort"] in NODE_PORTS
    assert spec["healthCheckNodePort"] != spec["ports"][0]["nodePort"]
    again = services.admit({**wanted, "ports": [port(80)]}, spec)
    assert again["healthCheckNodePort"] == spec["healthCheckNodePort"]
    services.store(**spec)
    for number, why in ((22, "not in the valid range"), (spec["healthCheckNodePort"], "allocated")):
        with pytest.raises(InvalidError, match=f"spec.healthCheckNodePort.*{why}"):
            services.admit({**wanted, "ports": [port(81)], "healthCheckNodePort": number})
    assert "healthCheckNodePort" not in services.admit({"type": "LoadBalancer", "ports": [port()]})


@pytest.mark.parametrize("chosen", [{}, {"nodePort": 30000}])
def test_a_dry_run_keeps_no_node_port(chosen: Obj) -> None:
    services = Services(node_ports=range(30000, 30001))

    def ask(*, is_dry_run: bool) -> int:
        spec = {"type": "NodePort", "ports": [port(**chosen)]}
        number: int = services.admit(spec, is_dry_run=is_dry_run)["ports"][0]["nodePort"]
        return number

    assert [ask(is_dry_run=True), ask(is_dry_run=True), ask(is_dry_run=False)] == [30000] * 3
    with pytest.raises(InvalidError, match=r"range is full|already allocated"):
        ask(is_dry_run=False)


def test_a_second_run_keeps_the_addresses_of_the_first() -> None:
    services = Services()
    spec = services.admit({"type": "NodePort", "ports": [{"port": 80}]})
    about = services.running[0]
    again = admit(services.plugin, about)["spec"]
    assert (again["clusterIP"], again["ports"]) == (spec["clusterIP"], spec["ports"])
    # For any other write they are taken, until this one ends.
    with pytest.raises(InvalidError, match="already allocated"):
        services.admit({"clusterIP": spec["clusterIP"], "ports": [{"port": 80}]})
    about.end()
    services.admit({"clusterIP": spec["clusterIP"], "ports": [{"port": 80}]})
