"""Host ports: collisions between pods and with the listeners of cluster components.

Pure. A host port receives every connection to its address on the node, through packet filter rules
and in place of existing listeners; so a pod with the API's or the agent's port makes the cluster
unreachable. Source: core/v1 `ContainerPort`; CNI plugin portmap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    # The supervisor only uses listeners and does not need the pod types.
    from moorage.api.containers import ContainerPort
    from moorage.api.pods import Pod

_ANY_ADDRESS = frozenset({"", "0.0.0.0", "::"})
_TCP = "TCP"

HostPort = tuple[str, int, str]
"""Protocol, port, address of the host."""


class Listener(msgspec.Struct, frozen=True):
    """A TCP listener of a cluster component on the host. `owner` names the component."""

    owner: str
    address: str
    port: int

    @property
    def host_port(self) -> HostPort:
        return _TCP, self.port, self.address


def host_port_of(port: ContainerPort) -> HostPort:
    return port.protocol or _TCP, port.host_port, port.host_ip


def collide(left: HostPort, right: HostPort) -> bool:
    """Return whether two host ports cannot be used on one node."""
    return left[:2] == right[:2] and (
        left[2] == right[2] or left[2] in _ANY_ADDRESS or right[2] in _ANY_ADDRESS
    )


def complaint(pod: Pod, listeners: Iterable[Listener]) -> str:
    """Return an error naming the listener whose port the pod requests; empty for none."""
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
    """Return a host port with its address in canonical form, `::ffff:127.0.0.1` as IPv4."""
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
