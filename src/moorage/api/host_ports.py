"""Host ports: which of them collide, and which are a cluster's own listeners.

Pure. A host port takes every connection to its address on the node, by rules of the packet filter
and whatever listens there already; so a pod that has the API's or the agent's port cuts the cluster
off from itself. Source: core/v1 `ContainerPort`; CNI plugin portmap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # The supervisor reads listeners from its settings, and needs no types of pods.
    from moorage.api.containers import ContainerPort
    from moorage.api.pods import Pod

_ANY_ADDRESS = frozenset({"", "0.0.0.0", "::"})
_TCP = "TCP"

HostPort = tuple[str, int, str]
"""Protocol, port, address of the host."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Where a part of the cluster listens on the host, by TCP. `owner` names the part."""

    owner: str
    address: str
    port: int

    @property
    def host_port(self) -> HostPort:
        return _TCP, self.port, self.address


def host_port_of(port: ContainerPort) -> HostPort:
    return port.protocol or _TCP, port.host_port, port.host_ip


def collide(left: HostPort, right: HostPort) -> bool:
    """Whether both cannot be had on one node."""
    return left[:2] == right[:2] and (
        left[2] == right[2] or left[2] in _ANY_ADDRESS or right[2] in _ANY_ADDRESS
    )


def complaint(pod: Pod, listeners: Iterable[Listener]) -> str:
    """Which listener's port the pod asks for, in a sentence; empty when it asks for none."""
    taken = tuple(listeners)
    for container, port in _host_ports(pod):
        for listener in taken:
            if collide(_canonical(host_port_of(port)), listener.host_port):
                return (
                    f'hostPort {port.host_port} of container "{container}" is used by the '
                    f"{listener.owner} ({listener.address}:{listener.port}); choose another port"
                )
    return ""


def _canonical(port: HostPort) -> HostPort:
    """A host port with its address as listeners write theirs, `::ffff:127.0.0.1` as IPv4."""
    protocol, number, text = port
    try:
        address = ip_address(text)
    except ValueError:
        return port
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return protocol, number, str(mapped or address)


def _host_ports(pod: Pod) -> Iterator[tuple[str, ContainerPort]]:
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        for port in container.ports:
            if port.host_port:
                yield container.name, port
