"""Network agent: keeps a node's packet filter as Services, EndpointSlices and policies say.

    informers ─▶ what is dirty ─▶ fragments ─▶ one transaction of nftables

A pod is admitted before its containers start: until then its address has no entry in the maps of
policies, and every packet from it or to it is dropped. Rules stay in the kernel while the agent is
away, and a new agent replaces them in one transaction once it has seen everything.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from moorage.api.clock import Clock, SystemClock, sleep_unless_set
from moorage.api.errors import StatusError
from moorage.api.logs import Log
from moorage.api.meta import ObjectMeta
from moorage.api.names import Namespace
from moorage.api.nodes import Node
from moorage.api.runtime_group import RuntimeClass
from moorage.api.services import Service
from moorage.linux.nftables import NftablesError
from moorage.linux.routes import address_links
from moorage.network.dns.records import ServiceRecord
from moorage.network.dns.sender import RecordSender, service_record
from moorage.network.frame import (
    IPV4,
    IPV6,
    POD_LINKS,
    Family,
    foreign_frame,
    frame,
    table_name,
)
from moorage.network.objects import (
    ENDPOINT_SLICES,
    NETWORK_POLICIES,
    PODS,
    EndpointSlice,
    NetworkPolicy,
    PodObject,
)
from moorage.network.packet_filter import Change, Kernel, PacketFilter, check_kernel
from moorage.network.policies.class_networks import network_of
from moorage.network.policies.peers import NetworkPod
from moorage.network.policies.state import PolicyState
from moorage.network.services.endpoints import Place, local_endpoints
from moorage.network.services.external import AddressPort, ExternalAddresses, is_hosts
from moorage.network.services.health_checks import HealthChecks, health_port
from moorage.network.services.rules import service_fragment
from moorage.network.services.stale_flows import (
    Flow,
    PodFlows,
    addresses_with_flows,
    delete_flows,
    flows_of,
    stale_flows,
)
from moorage.network.tables import Fragment, Table
from moorage.wire.client.informer import Informer, latest, object_key
from moorage.wire.client.resources import (
    NAMESPACES,
    NODES,
    RUNTIME_CLASSES,
    SERVICES,
    PartialObject,
    Resource,
    read_as,
)
from moorage.wire.client.rest import Client, UnreachableError

ZONE_LABEL: Final = "topology.kubernetes.io/zone"
_TERMINAL: Final = ("Succeeded", "Failed")
_BATCH_S: Final = 0.005
"""Pause between two transactions, in which changes gather."""
_REPAIR_S: Final = 10.0
_FIRST_POD: Final = 3
_POLICIES_WAIT_S, _POLICIES_AGAIN_S = 10.0, 0.02
_POLICY_VERSIONS: Final = read_as(NETWORK_POLICIES, PartialObject)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

log = Log(__name__)


class NetworkRefusedError(Exception):
    """A pod's network cannot be made as its policies say; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class ClusterDns:
    """The DNS of the cluster: the socket on which it gets records, and its address.

    It runs on the host, but policies name it by the labels that its pods have elsewhere.
    """

    socket: Path
    address: str

    @property
    def as_pod(self) -> NetworkPod:
        ports = (("UDP", "dns", 53), ("TCP", "dns-tcp", 53))
        return NetworkPod("dns", "kube-system", {"k8s-app": "kube-dns"}, (self.address,), ports)


class NetworkAgent:
    """Services and policies of one cluster on one node."""

    def __init__(
        self,
        client: Client,
        kernel: Kernel,
        *,
        cluster_id: str,
        node: str,
        networks: Mapping[Family, tuple[Network, Network]],
        dns: ClusterDns | None = None,
        listeners: Iterable[tuple[str, int]] = (),
        clock: Clock | None = None,
        links: Callable[[], Mapping[str, str]] = address_links,
        delete_flows: Callable[[Iterable[Flow | PodFlows]], Awaitable[None]] = delete_flows,
        addresses_with_flows: Callable[[], Awaitable[Iterable[str]]] = addresses_with_flows,
        is_hosts: Callable[[AddressPort], bool] = is_hosts,
    ) -> None:
        """`networks` has the networks of pods and of services for each family.

        `listeners` are IPv4 addresses and TCP ports of the cluster itself, which no Service gets.
        `links` returns the interface that leads to each address of a pod; `is_hosts` says whether a
        program of the host has a port of an address.
        """
        self._clock = clock or SystemClock()
        self._client = client
        self._kernel = kernel
        self._node = node
        self._place = Place(node)
        self._pods_of = {family: pods for family, (pods, _) in networks.items()}
        self._filter = PacketFilter(
            kernel,
            {
                family: Table(
                    family.name,
                    table_name(cluster_id),
                    frame(
                        family,
                        str(pods),
                        str(services),
                        dns=dns.address if dns is not None and family is IPV4 else "",
                        listeners=listeners if family is IPV4 else (),
                    ),
                )
                for family, (pods, services) in networks.items()
            }
            | {
                family: Table(family.name, table_name(cluster_id), foreign_frame())
                for family in (IPV4, IPV6)
                if family not in networks
            },
        )
        self._links_now = links
        self._links: frozenset[str] = frozenset()
        self._link_changes: list[Change] = []
        self._policies = PolicyState(self._filter.families, "" if dns is None else dns.address)
        self._admitted: dict[str, NetworkPod] = {}
        cluster = (network for pair in networks.values() for network in pair)
        self._external = ExternalAddresses(cluster, is_hosts)
        self._dirty_services: dict[str, None] = {}
        self._health_checks = HealthChecks(self._count_local)
        self._health_ports: dict[str, int] = {}
        self._stale: dict[Flow, None] = {}
        self._used_addresses: set[str] = set()
        self._is_stale = asyncio.Event()
        self._cutting = asyncio.Lock()
        self._delete_flows = delete_flows
        self._addresses_with_flows = addresses_with_flows
        self._changed = asyncio.Event()
        self._is_written = asyncio.Event()
        self._is_touched = asyncio.Event()
        self._turn = asyncio.Lock()
        self._services: Informer[Service] = self._informer(client, SERVICES)
        self._slices: Informer[EndpointSlice] = self._informer(
            client, ENDPOINT_SLICES, indexes={"service": lambda one: [one.service_key]}
        )
        self._network_policies: Informer[NetworkPolicy] = self._informer(client, NETWORK_POLICIES)
        self._namespaces: Informer[Namespace] = self._informer(client, NAMESPACES)
        self._pods: Informer[PodObject] = self._informer(client, PODS)
        self._classes: Informer[RuntimeClass] = self._informer(client, RUNTIME_CLASSES)
        self._nodes: Informer[Node] = self._informer(
            client, NODES, field_selector=f"metadata.name={node}"
        )
        self._records: RecordSender | None = None
        if dns is not None:
            self._records = RecordSender(
                dns.socket,
                services=lambda: [object_key(one.metadata) for one in self._services],
                namespaces=lambda: [one.metadata.name for one in self._namespaces],
                record_of=self._record_of,
                clock=self._clock,
            )
            self._policies.set_pod("dns", dns.as_pod)
        self._services.add_handler(self._service_changed)
        self._slices.add_handler(self._slice_changed)
        self._network_policies.add_handler(self._policy_changed)
        self._namespaces.add_handler(self._namespace_changed)
        self._classes.add_handler(self._class_changed)
        self._pods.add_handler(self._pod_changed)
        self._nodes.add_handler(self._node_changed)

    def check_kernel(self) -> None:
        """Check that the kernel takes the rules. Raises NftablesError."""
        check_kernel(self._kernel, self._filter.tables)

    async def run(self) -> None:
        """Keep the rules until cancelled; they stay. Raises NftablesError if none can be made."""
        informers: tuple[Informer[Any], ...] = (
            self._services,
            self._slices,
            self._network_policies,
            self._namespaces,
            self._classes,
            self._pods,
            self._nodes,
        )
        async with asyncio.TaskGroup() as tasks:
            for informer in informers:
                tasks.create_task(informer.run())
            for informer in informers:
                await informer.wait_synced()
            await self._note_used_addresses()
            async with self._turn:
                self._follow_links()
                await self._filter.write(self._changes())
            self._is_written.set()
            self._changed.set()
            tasks.create_task(self._repair())
            tasks.create_task(self._cut_stale_flows())
            if self._records is not None:
                tasks.create_task(self._records.run())
            try:
                while True:
                    await self._changed.wait()
                    self._changed.clear()
                    await self._apply()
                    await self._serve_health_checks()
                    await self._clock.sleep(_BATCH_S)
            finally:
                await self._health_checks.close()

    async def admit(
        self, uid: str, namespace: str, labels: Mapping[str, str], addresses: Iterable[str],
        ports: Iterable[tuple[str, str, int]] = (), runtime_class: str = "",
    ) -> None:  # fmt: skip
        """Put a pod's rules in force, before its containers start. Does nothing if they are.

        Raises NetworkRefusedError.
        """
        pod = NetworkPod(
            uid,
            namespace,
            dict(labels),
            tuple(addresses),
            tuple(ports),
            runtime_class=runtime_class,
        )
        if self._admitted.get(uid) == pod:
            return
        await self._is_written.wait()
        is_class_known = not runtime_class or self._classes.get(runtime_class) is not None
        if not is_class_known and not self._policies.has_pod(uid):
            # Its class may shut its network. A pod that ran before goes on without its class.
            raise NetworkRefusedError(f'RuntimeClass "{runtime_class}" is not known yet')
        await self._know_policies(namespace)
        routed = self._follow_links()
        for address in pod.addresses_of(IPV4):
            if address not in routed:
                raise NetworkRefusedError(
                    f"no link leads to the pod's address {address}, so it could send under any: "
                    "its sandbox is created again"
                )
        for other in [one for one in self._admitted.values() if one.key != uid]:
            # Its sandbox is gone, or the engine would not have given its address again.
            if not set(other.addresses).isdisjoint(pod.addresses):
                self._forget(other.key)
        self._admitted[uid] = pod
        self._policies.set_pod(uid, pod)
        try:
            await self._apply()
            problem = self._filter.refusal(f"pod/{uid}")
            for address in pod.addresses:
                await self._cut_address(address)
        except NftablesError as error:
            problem = str(error)
        if problem:
            self._forget(uid)
            raise NetworkRefusedError(
                f"the packet filter refuses the pod's rules, so it would be cut off: {problem}"
            )

    async def _know_policies(self, namespace: str) -> None:
        """Wait until the policies written before now are known. Raises NetworkRefusedError.

        The pod came by a watch of its own, which may be ahead of that of policies.
        """
        deadline_s = self._clock.monotonic() + _POLICIES_WAIT_S
        while True:
            try:
                listed = await self._client.list(_POLICY_VERSIONS, namespace)
            except (StatusError, UnreachableError) as error:
                raise NetworkRefusedError(
                    f"the pod's network policies cannot be read: {error}"
                ) from error
            if all(self._is_known(one.metadata) for one in listed.items):
                return
            if self._clock.monotonic() >= deadline_s:
                raise NetworkRefusedError("the pod's network policies have not all arrived yet")
            await self._clock.sleep(_POLICIES_AGAIN_S)

    def _is_known(self, written: ObjectMeta) -> bool:
        known = self._network_policies.get(written.name, written.namespace)
        return known is not None and (
            int(known.metadata.resource_version) >= int(written.resource_version)
        )

    def release(self, uid: str) -> None:
        """Forget a pod whose sandbox is gone: its address has no rules from now on."""
        if uid in self._admitted:
            self._forget(uid)

    async def _apply(self) -> None:
        async with self._turn:
            await self._filter.apply(self._changes())
        if self._stale or self._used_addresses:
            self._is_stale.set()

    def rules_touched(self) -> None:
        """Look at once whether another program removed rules, which is else done now and then."""
        self._is_touched.set()

    async def _repair(self) -> None:
        while True:
            await sleep_unless_set(self._clock, _REPAIR_S, self._is_touched)
            self._is_touched.clear()
            self._follow_links()
            self._changed.set()
            if await self._filter.repair():
                log.warning("another program changed the cluster's packet filter; written again")

    def _follow_links(self) -> Mapping[str, str]:
        """Have what comes by the links of pods held to their addresses; return the links.

        By the host's routes, not by what the API says: a pod that was deleted by force runs on.
        """
        routed = {
            address: link
            for address, link in self._links_now().items()
            if any(ipaddress.ip_address(address) in pods for pods in self._pods_of.values())
        }
        links = frozenset(routed.values())
        if links != self._links:
            self._links = links
            elements = {f'"{link}"': "" for link in sorted(links)}
            fragment = Fragment(elements={POD_LINKS: elements} if links else {})
            self._link_changes = [(family, POD_LINKS, fragment) for family in self._filter.families]
        return routed

    def _changes(self) -> list[Change]:
        dirty, self._dirty_services = self._dirty_services, {}
        links, self._link_changes = self._link_changes, []
        changes = [*links, *self._policies.changes()]
        for key in list(dirty):
            dirty.update(
                dict.fromkeys(sorted(self._external.claim(key, self._services.get_key(key))))
            )
        for key in dirty:
            service = self._services.get_key(key)
            self._health_ports[key] = health_port(service)
            slices = self._slices.by_index("service", key)
            for family, pods in self._pods_of.items():
                fragment = service_fragment(
                    service, slices, family, self._place, pods, partial(self._external.has, key)
                )
                before = self._filter.fragment(family, f"service/{key}")
                self._stale.update(dict.fromkeys(stale_flows(before, fragment)))
                changes.append((family, f"service/{key}", fragment))
        return changes

    async def _serve_health_checks(self) -> None:
        ports, self._health_ports = self._health_ports, {}
        for key, port in ports.items():
            await self._health_checks.follow(key, port)

    def _count_local(self, key: str) -> int:
        return local_endpoints(self._slices.by_index("service", key), self._place)

    async def _cut_stale_flows(self) -> None:
        while True:
            await self._is_stale.wait()
            self._is_stale.clear()
            # Not before the rules that would let the next packet make them again.
            async with self._turn:
                stale, self._stale = self._stale, {}
                used = self._used_addresses.copy()
            await self._delete_flows(stale)
            for address in used:
                await self._cut_address(address)

    async def _cut_address(self, address: str) -> None:
        """Cut what is left of an address's earlier pods."""
        async with self._cutting:
            if address in self._used_addresses:
                self._used_addresses.discard(address)
                await self._delete_flows(flows_of(address))

    async def _note_used_addresses(self) -> None:
        """Note the addresses of pods that ended while no agent was there."""
        running = {
            one.ip
            for pod in self._pods
            if pod.status.phase not in _TERMINAL
            for one in pod.status.pod_ips
        }
        for text in await self._addresses_with_flows():
            address = ipaddress.ip_address(text)
            # The first ones of a network are the host's: gateway and DNS.
            is_pods = any(
                address in pods and int(address) - int(pods.network_address) >= _FIRST_POD
                for pods in self._pods_of.values()
            )
            if is_pods and text not in running:
                self._used_addresses.add(text)

    def _service_changed(self, before: Service | None, after: Service | None) -> None:
        self._touch_service(object_key(latest(before, after).metadata))

    def _slice_changed(self, before: EndpointSlice | None, after: EndpointSlice | None) -> None:
        for one in (before, after):
            if one is not None and one.service_key:
                self._touch_service(one.service_key)

    def _touch_service(self, key: str) -> None:
        self._dirty_services[key] = None
        self._changed.set()
        if self._records is not None:
            self._records.touch_service(key)

    def _record_of(self, key: str) -> ServiceRecord | None:
        service = self._services.get_key(key)
        if service is None:
            return None
        return service_record(service, self._slices.by_index("service", key))

    def _policy_changed(self, before: NetworkPolicy | None, after: NetworkPolicy | None) -> None:
        meta = latest(before, after).metadata
        self._policies.set_policy(meta.namespace, meta.name, after)
        self._changed.set()

    def _namespace_changed(self, before: Namespace | None, after: Namespace | None) -> None:
        meta = latest(before, after).metadata
        self._policies.set_namespace(meta.name, None if after is None else meta.labels)
        if self._records is not None and (before is None or after is None):
            self._records.touch_namespace(meta.name)
        self._changed.set()

    def _class_changed(self, before: RuntimeClass | None, after: RuntimeClass | None) -> None:
        del before
        if after is not None:
            self._policies.set_class(after.metadata.name, network_of(after))
            self._changed.set()

    def _pod_changed(self, before: PodObject | None, after: PodObject | None) -> None:
        uid = latest(before, after).metadata.uid
        if before is not None and before.metadata.uid != uid:
            self._forget(before.metadata.uid)
        if after is None or after.status.phase in _TERMINAL:
            self._forget(uid)
            return
        pod = network_pod(after)
        admitted = self._admitted.get(uid)
        if admitted is None and (pod is None or self._is_taken(pod)):
            return
        if admitted is not None:
            # The node knows its addresses first; labels may change while it runs.
            pod = replace(admitted, labels=after.metadata.labels)
            self._admitted[uid] = pod
        self._policies.set_pod(uid, pod)
        self._changed.set()

    def _is_taken(self, pod: NetworkPod) -> bool:
        """Say whether an address is an admitted pod's by now: a status may be late."""
        return any(
            not set(pod.addresses).isdisjoint(other.addresses) for other in self._admitted.values()
        )

    def _forget(self, uid: str) -> None:
        pod = self._admitted.pop(uid, None)
        if pod is not None:
            self._used_addresses.update(pod.addresses)
        self._policies.set_pod(uid, None)
        self._changed.set()

    def _node_changed(self, before: Node | None, after: Node | None) -> None:
        del before
        zone = after.metadata.labels.get(ZONE_LABEL, "") if after is not None else ""
        if zone != self._place.zone:
            self._place = Place(self._node, zone)
            for service in self._services:
                self._touch_service(object_key(service.metadata))

    def _informer(self, client: Client, resource: Resource[Any], **options: Any) -> Informer[Any]:
        return Informer(client, resource, clock=self._clock, **options)


def network_pod(pod: PodObject) -> NetworkPod | None:
    """Return a pod as policies see it, None without an address of its own."""
    addresses = tuple(one.ip for one in pod.status.pod_ips if one.ip)
    if pod.spec.host_network or not addresses:
        return None
    ports = tuple(
        (port.protocol or "TCP", port.name, port.container_port)
        for container in pod.spec.serving
        for port in container.ports
        if port.name
    )
    return NetworkPod(
        pod.metadata.uid,
        pod.metadata.namespace,
        pod.metadata.labels,
        addresses,
        ports,
        runtime_class=pod.spec.runtime_class_name or "",
    )
