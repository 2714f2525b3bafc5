"""EndpointSlices, NetworkPolicies and pods, as far as the network reads them.

Source: discovery.k8s.io/v1, networking.k8s.io/v1, core/v1.
"""

from __future__ import annotations

from typing import Any

import msgspec

from moorage.api.meta import Object, ObjectMeta, ObjectReference
from moorage.wire.client.resources import Resource


class EndpointConditions(Object, frozen=True):
    """A condition that is not given is true, `serving` as `ready`."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Hint(Object, frozen=True):
    """The name of a zone or node."""

    name: str = ""


class EndpointHints(Object, frozen=True):
    for_zones: tuple[Hint, ...] = ()
    for_nodes: tuple[Hint, ...] = ()


class SliceEndpoint(Object, frozen=True):
    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()
    hostname: str | None = None
    node_name: str | None = None
    zone: str | None = None
    hints: EndpointHints | None = None
    target_ref: ObjectReference | None = None

    @property
    def is_ready(self) -> bool:
        return self.conditions.ready is not False

    @property
    def is_serving(self) -> bool:
        serving = self.conditions.serving
        return self.is_ready if serving is None else serving

    @property
    def is_terminating(self) -> bool:
        return bool(self.conditions.terminating)


class SlicePort(Object, frozen=True):
    name: str | None = None
    protocol: str | None = None
    port: int | None = None


class EndpointSlice(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    address_type: str = ""
    endpoints: tuple[SliceEndpoint, ...] = ()
    ports: tuple[SlicePort, ...] = ()

    @property
    def service_key(self) -> str:
        """`namespace/name` of the slice's Service, empty for a slice of none."""
        name = self.metadata.labels.get(SERVICE_NAME)
        return f"{self.metadata.namespace}/{name}" if name else ""

    @property
    def is_headless(self) -> bool:
        return HEADLESS in self.metadata.labels


SERVICE_NAME = "kubernetes.io/service-name"
PROXY_NAME = "service.kubernetes.io/service-proxy-name"
"""Label of a Service that another proxy serves."""
HEADLESS = "service.kubernetes.io/headless"
"""Label of a slice that no proxy uses: its endpoints are for DNS."""


class PolicyPort(Object, frozen=True):
    protocol: str | None = None
    port: int | str | None = None
    end_port: int | None = None


class IPBlock(Object, frozen=True):
    cidr: str = ""
    except_: tuple[str, ...] = msgspec.field(default=(), name="except")


class PolicyPeer(Object, frozen=True):
    """Selectors are None where they are not given, `{}` where they select everything."""

    pod_selector: dict[str, Any] | None = None
    namespace_selector: dict[str, Any] | None = None
    ip_block: IPBlock | None = None


class IngressRule(Object, frozen=True):
    ports: tuple[PolicyPort, ...] = ()
    from_: tuple[PolicyPeer, ...] = msgspec.field(default=(), name="from")

    @property
    def peers(self) -> tuple[PolicyPeer, ...]:
        return self.from_


class EgressRule(Object, frozen=True):
    ports: tuple[PolicyPort, ...] = ()
    to: tuple[PolicyPeer, ...] = ()

    @property
    def peers(self) -> tuple[PolicyPeer, ...]:
        return self.to


class NetworkPolicySpec(Object, frozen=True):
    pod_selector: dict[str, Any] = {}
    policy_types: tuple[str, ...] = ()
    ingress: tuple[IngressRule, ...] = ()
    egress: tuple[EgressRule, ...] = ()


class NetworkPolicy(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NetworkPolicySpec = NetworkPolicySpec()


class ContainerPort(Object, frozen=True):
    name: str = ""
    container_port: int = 0
    protocol: str = ""


class NetworkContainer(Object, frozen=True):
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str | None = None


class NetworkPodSpec(Object, frozen=True):
    node_name: str = ""
    host_network: bool = False
    runtime_class_name: str | None = None
    containers: tuple[NetworkContainer, ...] = ()
    init_containers: tuple[NetworkContainer, ...] = ()

    @property
    def serving(self) -> tuple[NetworkContainer, ...]:
        """The containers that run while the pod serves: sidecars too."""
        sidecars = (one for one in self.init_containers if one.restart_policy == "Always")
        return (*self.containers, *sidecars)


class PodIP(Object, frozen=True):
    ip: str = ""


class NetworkPodStatus(Object, frozen=True):
    phase: str = ""
    pod_ips: tuple[PodIP, ...] = msgspec.field(default=(), name="podIPs")


class PodObject(Object, frozen=True):
    """A tenth of a pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NetworkPodSpec = NetworkPodSpec()
    status: NetworkPodStatus = NetworkPodStatus()


PODS = Resource("", "v1", "pods", "Pod", PodObject)
ENDPOINT_SLICES = Resource(
    "discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", EndpointSlice
)
NETWORK_POLICIES = Resource(
    "networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", NetworkPolicy
)
