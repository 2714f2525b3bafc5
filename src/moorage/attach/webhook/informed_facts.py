"""Informed facts: classes, nodes, profiles and policies of a cluster, from informers.

The informers keep the names of nodes and profiles alone: what counts of them is in the index.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from moorage.api.clock import Clock
from moorage.api.runtime_group import ClusterRuntimePolicy, RuntimePolicy, RuntimeProfile
from moorage.apiserver.admission.runtime_policies import NamespaceFacts, NamespaceRules, rules_of
from moorage.runtimeclass.class_index import ClassIndex
from moorage.runtimeclass.index_feed import IndexFeed
from moorage.runtimeclass.node_sets import NodeFacts
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import (
    CLUSTER_RUNTIME_POLICIES,
    NAMESPACES,
    NODES,
    RUNTIME_CLASSES,
    RUNTIME_POLICIES,
    RUNTIME_PROFILES,
    read_as,
)
from moorage.wire.client.rest import Client

_NAMESPACE = "namespace"
_NODES_AT_ONCE, _PROFILES_AT_ONCE = 50, 50
"""Objects of a page: each has hundreds of labels or features, and memory keeps its peak."""
_NAMESPACE_S = 3.0
"""Time for a namespace to arrive that an API server has already."""


class InformedFacts:
    """What the webhook knows. Read it after `wait_synced()`; `run()` keeps it current."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._index = ClassIndex()
        self._classes = Informer(client, RUNTIME_CLASSES, clock=clock)
        self._nodes = Informer(
            client,
            read_as(NODES, NodeFacts),
            keep=_known,
            page_size=_NODES_AT_ONCE,
            clock=clock,
        )
        self._profiles = Informer(
            client,
            read_as(RUNTIME_PROFILES, RuntimeProfile),
            keep=_known,
            page_size=_PROFILES_AT_ONCE,
            clock=clock,
        )
        self._policies = Informer(
            client,
            RUNTIME_POLICIES,
            indexes={_NAMESPACE: lambda policy: [policy.metadata.namespace]},
            clock=clock,
        )
        self._cluster_policies = Informer(client, CLUSTER_RUNTIME_POLICIES, clock=clock)
        self._namespaces = Informer(client, read_as(NAMESPACES, NamespaceFacts), clock=clock)
        self._rules: dict[str, NamespaceRules] = {}
        self._awaited: dict[str, list[asyncio.Future[None]]] = {}
        feed = IndexFeed(self._index)
        self._classes.add_handler(feed.class_changed)
        self._nodes.add_handler(feed.node_changed)
        self._profiles.add_handler(feed.profile_changed)
        self._policies.add_handler(self._policy_changed)
        self._cluster_policies.add_handler(self._cluster_policy_changed)
        self._namespaces.add_handler(self._namespace_changed)

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers:
                tasks.create_task(informer.run())

    async def wait_synced(self) -> None:
        """Block until all is known."""
        for informer in self._informers:
            await informer.wait_synced()

    async def knows(self, namespace: str) -> bool:
        """Wait for a namespace, up to 3 s. Return whether it is known."""
        if self._namespaces.get(namespace) is not None:
            return True
        arrived = asyncio.get_running_loop().create_future()
        waiting = self._awaited.setdefault(namespace, [])
        waiting.append(arrived)
        try:
            async with asyncio.timeout(_NAMESPACE_S):
                await arrived
        except TimeoutError:
            return False
        finally:
            waiting.remove(arrived)
            if not waiting and self._awaited.get(namespace) is waiting:
                del self._awaited[namespace]
        return True

    @property
    def is_synced(self) -> bool:
        return all(informer.is_synced for informer in self._informers)

    @property
    def has_policies(self) -> bool:
        return bool(len(self._policies) or len(self._cluster_policies))

    @property
    def has_profiles(self) -> bool:
        return len(self._profiles) > 0

    def index(self) -> ClassIndex:
        return self._index

    def rules(self, namespace: str) -> NamespaceRules:
        """Return the rules for the pods of a namespace.

        Of one that is not known yet, those that hold for every namespace without labels.
        """
        known = self._rules.get(namespace)
        if known is not None:
            return known
        found = self._namespaces.get(namespace)
        rules = rules_of(
            found or NamespaceFacts(),
            list(self._cluster_policies),
            self._policies.by_index(_NAMESPACE, namespace),
        )
        if found is not None:
            self._rules[namespace] = rules
        return rules

    @property
    def _informers(self) -> tuple[Informer[Any], ...]:
        return (
            self._classes,
            self._nodes,
            self._profiles,
            self._policies,
            self._cluster_policies,
            self._namespaces,
        )

    def _policy_changed(self, before: RuntimePolicy | None, after: RuntimePolicy | None) -> None:
        changed = after or before
        if changed is not None:
            self._rules.pop(changed.metadata.namespace, None)

    def _cluster_policy_changed(
        self, before: ClusterRuntimePolicy | None, after: ClusterRuntimePolicy | None
    ) -> None:
        del before, after
        self._rules.clear()

    def _namespace_changed(
        self, before: NamespaceFacts | None, after: NamespaceFacts | None
    ) -> None:
        changed = after or before
        if changed is not None:
            self._rules.pop(changed.metadata.name, None)
        if after is not None:
            for arrived in self._awaited.get(after.metadata.name, ()):
                if not arrived.done():
                    arrived.set_result(None)


class Known(msgspec.Struct, frozen=True, gc=False):
    """What an informer keeps of an object that is in the index: its name and revision.

    It is its own metadata: one small object for each of 50,000 profiles.
    """

    name: str
    revision: int | str

    @property
    def resource_version(self) -> str:
        return str(self.revision)

    @property
    def metadata(self) -> Known:
        return self


def _known(obj: Any) -> Any:
    revision = obj.metadata.resource_version
    # A number takes half of the memory of its digits. Source: KEP-5504, comparable versions.
    is_number = revision.isascii() and revision.isdigit() and revision[0] != "0"
    return Known(obj.metadata.name, int(revision) if is_number else revision)
