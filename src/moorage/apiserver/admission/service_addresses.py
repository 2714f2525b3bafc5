"""Service address allocation: cluster IPs and node ports.

Addresses are of the networks in ready ServiceCIDRs. Those in use are read from the existing
services, and from IPAddresses that stand for no service. An allocated address is also reserved
until its service is stored or refused. Source: API docs "Service ClusterIP allocation", KEP-1880.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from moorage.api.errors import FieldError, InvalidError
from moorage.api.missing_network import (
    INGRESS,
    INGRESSES,
    NETWORK_POLICY,
    POLICIES,
    service_warning,
)
from moorage.api.services import Service, holds
from moorage.apiserver.admission.chain import CREATE, UPDATE, Scope
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.request import Attributes

# MissingNetwork plugin: warns of new objects that this cluster does not implement yet.
#
# In clusters with a node of ours; where other nodes and their network are attached, nothing is
# missing that we know of.


class MissingNetwork:
    """Warns of Services with a cluster IP, Ingresses and NetworkPolicies; refuses none.

    `kinds` are those that nothing implements, by plural. `has_controller` says whether an ingress
    controller is installed.
    """

    name = "MissingNetwork"
    scope = Scope.of(
        ["services", "ingresses.networking.k8s.io", "networkpolicies.networking.k8s.io"], [CREATE]
    )
    mutate = None

    def __init__(self, kinds: frozenset[str], has_controller: Callable[[], bool]) -> None:
        self._kinds = kinds
        self._has_controller = has_controller
        self.validate = self._warn

    def _warn(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        plural, text = attributes.kind.plural, ""
        if plural not in self._kinds:
            return
        if plural == POLICIES:
            text = NETWORK_POLICY
        elif plural == INGRESSES:
            text = "" if self._has_controller() else INGRESS
        else:
            spec = attributes.obj["spec"]
            text = service_warning(spec.get("type", ""), spec.get("clusterIP", ""))
        if text:
            attributes.request.warn(text)


HEADLESS = "None"
NODE_PORTS = range(30000, 32768)
_WITH_NODE_PORTS = ("NodePort", "LoadBalancer")
_HEALTH_CHECK = "healthCheckNodePort"
_TRIES = 100


class ServiceAddresses:
    """Allocates cluster IPs and node ports, and checks those that a service requests.

    `every` returns all services, `networks` those of cluster IPs, `claimed` the addresses that
    others than services have.
    """

    name = "ServiceAddresses"
    scope = Scope.of(["services"], [CREATE, UPDATE])
    validate = None

    def __init__(
        self,
        every: Callable[[], Iterable[Service]],
        networks: Callable[[], Iterable[ipaddress.IPv4Network]],
        claimed: Callable[[], Iterable[str]],
        node_ports: range = NODE_PORTS,
    ) -> None:
        self._node_ports = node_ports
        self._every = every
        self._networks = networks
        self._claimed = claimed
        self._reserved: dict[str | int, Attributes] = {}
        self.mutate = self._admit

    def _admit(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        spec = attributes.obj["spec"]
        old_spec = (attributes.old or {}).get("spec", {})
        if spec.get("type") == "ExternalName":
            spec.pop("clusterIP", None)
            spec.pop("clusterIPs", None)
            return
        _settle_families(spec)
        self._settle_ip(attributes, spec, old_spec)
        self._settle_node_ports(attributes, spec, old_spec)

    def _settle_ip(self, attributes: Attributes, spec: Obj, old_spec: Obj) -> None:
        wanted = spec.get("clusterIP") or next(iter(spec.get("clusterIPs", ())), "")
        if not wanted:
            wanted = old_spec.get("clusterIP", "")
        if not wanted:
            wanted = self._free_ip(attributes)
        elif wanted not in (HEADLESS, old_spec.get("clusterIP")):
            self._claim_ip(attributes, wanted)
        spec["clusterIP"] = wanted
        spec["clusterIPs"] = [wanted]

    def _claim_ip(self, attributes: Attributes, wanted: str) -> None:
        problem = ""
        try:
            address = ipaddress.IPv4Address(wanted)
            if not any(holds(network, address) for network in self._networks()):
                problem = "the provided network does not match the current range"
        except ValueError:
            problem = "must be a valid IPv4 address"
        if not problem and wanted in self._used_ips(attributes):
            problem = "provided IP is already allocated"
        if problem:
            error = FieldError.invalid(
                "spec.clusterIPs", [wanted], f"failed to allocate IP {wanted}: {problem}"
            )
            raise InvalidError.of("Service", attributes.name, [error])
        self._reserve(attributes, wanted)

    def _free_ip(self, attributes: Attributes) -> str:
        used = self._used_ips(attributes)
        for network in self._networks():
            # Exclude the network address, the last one, and the first, which is the API server's.
            for number in _random_then_all(range(2, network.num_addresses - 1)):
                candidate = str(network[number])
                if candidate not in used:
                    self._reserve(attributes, candidate)
                    return candidate
        raise InvalidError.of(
            "Service",
            "",
            [FieldError.invalid("spec.clusterIPs", [], "failed to allocate IP: range is full")],
        )

    def _settle_node_ports(self, attributes: Attributes, spec: Obj, old_spec: Obj) -> None:
        ports = spec.get("ports", [])
        if spec.get("type") not in _WITH_NODE_PORTS:
            return
        before = {_port_key(port): port.get("nodePort") for port in old_spec.get("ports", ())}
        own = set(before.values())
        for index, port in enumerate(ports):
            if not port.get("nodePort"):
                port["nodePort"] = before.get(_port_key(port)) or self._free_port(attributes)
            elif port["nodePort"] not in own:
                self._claim_port(attributes, port["nodePort"], f"spec.ports[{index}].nodePort")
                # Ports of one service may share a number if their protocols differ.
                own.add(port["nodePort"])
        if spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local":
            self._settle_health_check(attributes, spec, old_spec.get(_HEALTH_CHECK, 0))

    def _settle_health_check(self, attributes: Attributes, spec: Obj, before: int) -> None:
        """Give the health check a port of the range: the node listens on it."""
        wanted = spec.get(_HEALTH_CHECK, 0)
        if not wanted:
            spec[_HEALTH_CHECK] = before or self._free_port(attributes)
        elif wanted != before:
            self._claim_port(attributes, wanted, f"spec.{_HEALTH_CHECK}")

    def _claim_port(self, attributes: Attributes, wanted: int, path: str) -> None:
        problem = ""
        if wanted not in self._node_ports:
            problem = (
                "provided port is not in the valid range. The range of valid ports is "
                f"{self._node_ports.start}-{self._node_ports.stop - 1}"
            )
        elif wanted in self._used_ports(attributes):
            problem = "provided port is already allocated"
        if problem:
            error = FieldError.invalid(path, wanted, problem)
            raise InvalidError.of("Service", attributes.name, [error])
        self._reserve(attributes, wanted)

    def _free_port(self, attributes: Attributes) -> int:
        used = self._used_ports(attributes)
        for candidate in _random_then_all(self._node_ports):
            if candidate not in used:
                self._reserve(attributes, candidate)
                return candidate
        raise InvalidError.of(
            "Service",
            "",
            [FieldError.invalid("spec.ports[0].nodePort", 0, "failed to allocate: range is full")],
        )

    def _used_ips(self, attributes: Attributes) -> set[str | int]:
        return self._reserved_by_others(attributes).union(
            self._claimed(), *(service.spec.cluster_ips for service in self._every())
        )

    def _used_ports(self, attributes: Attributes) -> set[str | int]:
        return self._reserved_by_others(attributes).union(
            number
            for service in self._every()
            for number in (
                service.spec.health_check_node_port,
                *(port.node_port for port in service.spec.ports),
            )
        )

    def _reserved_by_others(self, attributes: Attributes) -> set[str | int]:
        """Return the addresses that other writes than this one reserve."""
        return {address for address, by in self._reserved.items() if by is not attributes}

    def _reserve(self, attributes: Attributes, address: str | int) -> None:
        """Reserve an address until the write is over; a dry run stores nothing."""
        if not attributes.request.is_dry_run:
            self._reserved[address] = attributes
            attributes.endings.append(partial(self._release, address))

    def _release(self, address: str | int) -> None:
        self._reserved.pop(address, None)


def _random_then_all(numbers: range) -> Iterator[int]:
    """Yield random numbers, which are mostly free, then each one: the range may be nearly full."""
    for _ in range(min(_TRIES, len(numbers))):
        yield secrets.choice(numbers)
    yield from numbers


def _settle_families(spec: Obj) -> None:
    """Set the IP families: IPv4, or both for a headless service without a selector."""
    is_manual = spec.get("clusterIP") == HEADLESS and not spec.get("selector")
    spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if is_manual else ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "RequireDualStack" if is_manual else "SingleStack")


def _port_key(port: Obj) -> tuple[int, str]:
    return port.get("port", 0), port.get("protocol", "")
