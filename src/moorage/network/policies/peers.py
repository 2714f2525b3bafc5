"""Peers of a policy: which pods a pair of selectors selects, as a set of their addresses. Pure.

Source: networking.k8s.io/v1 `NetworkPolicyPeer`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from moorage.api.labels import Selector, from_object
from moorage.network.frame import Family
from moorage.network.objects import PolicyPeer
from moorage.network.tables import Collection, Fragment

_HASH_DIGITS = 32

Labels = Mapping[str, str]
NamedPorts = tuple[str, tuple[str, ...]]
"""A protocol, and names of ports."""


@dataclass(frozen=True, slots=True)
class NetworkPod:
    """A pod with an address of its own, as policies see it.

    `ports` are the named container ports: protocol, name, number.
    """

    key: str
    namespace: str
    labels: Labels
    addresses: tuple[str, ...]
    ports: tuple[tuple[str, str, int], ...] = ()
    runtime_class: str = ""

    def addresses_of(self, family: Family) -> tuple[str, ...]:
        is_wanted = (
            (lambda one: ":" in one) if family.name == "ip6" else (lambda one: ":" not in one)
        )
        return tuple(filter(is_wanted, self.addresses))


@dataclass(frozen=True)
class Peers:
    """The pods that a peer selects. Selectors are JSON, so that equal peers are one set.

    Without `namespaces`, the pods of `namespace`. With a `port`, the pods that have a port of such
    a name, each with its number.
    """

    namespace: str
    pods: bytes
    namespaces: bytes | None = None
    port: NamedPorts | None = None

    @cached_property
    def name(self) -> str:
        """The name of the set."""
        text = msgspec.json.encode((self.namespace, self.pods, self.namespaces, self.port))
        return f"peers-{hashlib.sha256(text).hexdigest()[:_HASH_DIGITS]}"

    def includes(self, pod: NetworkPod, namespaces: Mapping[str, Labels]) -> bool:
        """Say whether a pod is one of them, given the labels of the namespaces."""
        if self._namespaces is None:
            is_here = pod.namespace == self.namespace
        else:
            labels = namespaces.get(pod.namespace)
            is_here = labels is not None and self._namespaces.matches(labels)
        return is_here and self._pods.matches(pod.labels)

    def elements(self, pod: NetworkPod, family: Family) -> list[str]:
        """Return the elements of a pod that is one of them."""
        addresses = pod.addresses_of(family)
        if self.port is None:
            return list(addresses)
        wanted, names = self.port
        return [
            f"{address} . {number}"
            for protocol, name, number in pod.ports
            if protocol == wanted and name in names
            for address in addresses
        ]

    def collection(self, family: Family) -> Collection:
        return Collection(
            "set", family.type if self.port is None else f"{family.type} . inet_service"
        )

    def fragment(self, members: Iterable[NetworkPod], family: Family) -> Fragment:
        """Return the set with the addresses of the pods that belong to it."""
        elements = {element: "" for pod in members for element in self.elements(pod, family)}
        return Fragment(
            collections={self.name: self.collection(family)},
            elements={self.name: elements} if elements else {},
        )

    @cached_property
    def _pods(self) -> Selector:
        return from_object(msgspec.json.decode(self.pods))

    @cached_property
    def _namespaces(self) -> Selector | None:
        return (
            None if self.namespaces is None else from_object(msgspec.json.decode(self.namespaces))
        )


def peers_of(peer: PolicyPeer, namespace: str, port: NamedPorts | None = None) -> Peers:
    """Return the pods of a peer with selectors, in a policy of a namespace."""
    return Peers(
        "" if peer.namespace_selector is not None else namespace,
        _canonical(peer.pod_selector or {}),
        None if peer.namespace_selector is None else _canonical(peer.namespace_selector),
        port,
    )


def _canonical(selector: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(selector, order="sorted")
