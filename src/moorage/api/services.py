"""Services and Endpoints. Source: core/v1."""

from __future__ import annotations

import ipaddress
from typing import Final

from msgspec import field

from moorage.api.meta import Condition, Object, ObjectMeta, ObjectReference, Raw

# ServiceCIDRs and IPAddresses: the networks of cluster IPs, and who has which address.
#
# Source: networking.k8s.io/v1.

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

DEFAULT_NAME: Final = "kubernetes"
"""Name of the ServiceCIDR with the cluster's own network."""
READY: Final = "Ready"
MANAGED_BY: Final = "ipaddress.kubernetes.io/managed-by"
ALLOCATOR: Final = "ipallocator.k8s.io"
"""Value of `MANAGED_BY` on the IPAddress of a service, which follows the service."""
IP_FAMILY: Final = "ipaddress.kubernetes.io/ip-family"


class ServiceCIDRSpec(Object, frozen=True):
    cidrs: tuple[str, ...] = ()


class ServiceCIDRStatus(Object, frozen=True):
    conditions: tuple[Condition, ...] = ()


class ServiceCIDR(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceCIDRSpec = ServiceCIDRSpec()
    status: ServiceCIDRStatus = ServiceCIDRStatus()

    @property
    def networks(self) -> tuple[Network, ...]:
        """The networks. Validation has checked that each can be parsed."""
        return tuple(map(ipaddress.ip_network, self.spec.cidrs))

    @property
    def ready(self) -> Condition | None:
        return next((one for one in self.status.conditions if one.type == READY), None)

    @property
    def is_usable(self) -> bool:
        """Return whether services may get addresses of its networks."""
        is_ready = self.ready is not None and self.ready.status == "True"
        return is_ready and self.metadata.deletion_timestamp is None


class ParentReference(Object, frozen=True):
    group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""


class IPAddressSpec(Object, frozen=True):
    parent_ref: ParentReference | None = None


class IPAddress(Object, frozen=True):
    """Named after its address, in canonical form."""

    metadata: ObjectMeta = ObjectMeta()
    spec: IPAddressSpec = IPAddressSpec()

    @property
    def is_managed(self) -> bool:
        """Return whether it stands for the cluster IP of a service, and follows that."""
        return self.metadata.labels.get(MANAGED_BY) == ALLOCATOR


def holds(network: Network, address: Address) -> bool:
    """Return whether services can have an address of a network.

    Its own address, and in IPv4 the last one, are no host's.
    """
    if address == network.network_address or address not in network:
        return False
    return address.version != 4 or address != network.broadcast_address


class ServicePort(Object, frozen=True):
    name: str = ""
    protocol: str = ""
    app_protocol: str | None = None
    port: int = 0
    target_port: int | str = 0
    node_port: int = 0


class ServiceSpec(Object, frozen=True):
    ports: tuple[ServicePort, ...] = ()
    selector: dict[str, str] = {}
    cluster_ip: str = field(default="", name="clusterIP")
    cluster_ips: tuple[str, ...] = field(default=(), name="clusterIPs")
    type: str = ""
    external_ips: tuple[str, ...] = field(default=(), name="externalIPs")
    session_affinity: str = ""
    load_balancer_ip: str = field(default="", name="loadBalancerIP")
    load_balancer_source_ranges: tuple[str, ...] = ()
    external_name: str = ""
    external_traffic_policy: str = ""
    health_check_node_port: int = 0
    publish_not_ready_addresses: bool = False
    session_affinity_config: Raw | None = None
    ip_families: tuple[str, ...] = ()
    ip_family_policy: str | None = None
    allocate_load_balancer_node_ports: bool | None = None
    load_balancer_class: str | None = None
    internal_traffic_policy: str | None = None
    traffic_distribution: str | None = None


class Service(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()
    status: Raw = {}


class EndpointAddress(Object, frozen=True):
    ip: str = ""
    hostname: str = ""
    node_name: str | None = None
    target_ref: ObjectReference | None = None


class EndpointPort(Object, frozen=True):
    name: str = ""
    port: int = 0
    protocol: str = ""
    app_protocol: str | None = None


class EndpointSubset(Object, frozen=True):
    addresses: tuple[EndpointAddress, ...] = ()
    not_ready_addresses: tuple[EndpointAddress, ...] = ()
    ports: tuple[EndpointPort, ...] = ()


class Endpoints(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    subsets: tuple[EndpointSubset, ...] = ()
