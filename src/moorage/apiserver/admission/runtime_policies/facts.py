"""Facts seam: what the runtime policies ask of classes, nodes, profiles and policies.

The API server answers from its own copy (`sources.py`), the webhook from informers
(`moorage.attach.webhook`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from moorage.api.meta import Object
from moorage.api.runtime_policies import ClusterRuntimePolicy, RuntimePolicy
from moorage.runtimeclass.class_index import ClassIndex
from moorage.runtimeclass.policies import EffectivePolicy, effective_policy


class NamespaceMeta(Object, frozen=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class NamespaceFacts(Object, frozen=True):
    """A namespace as far as policies look at it."""

    metadata: NamespaceMeta = NamespaceMeta()


class NamespaceRules(msgspec.Struct, frozen=True):
    """The policy of a namespace, and its annotations."""

    policy: EffectivePolicy = EffectivePolicy()
    annotations: Mapping[str, str] = {}


def rules_of(
    namespace: NamespaceFacts,
    cluster_policies: Sequence[ClusterRuntimePolicy],
    own_policies: Sequence[RuntimePolicy],
) -> NamespaceRules:
    """Return the rules of a namespace, from all policies of the cluster and its own."""
    metadata = namespace.metadata
    policy = effective_policy(metadata.labels, cluster_policies, own_policies)
    return NamespaceRules(policy, metadata.annotations)


class Facts(Protocol):
    """What admission knows."""

    @property
    def has_policies(self) -> bool:
        """Return whether there is any policy."""

    @property
    def has_profiles(self) -> bool:
        """Return whether there is any RuntimeProfile."""

    def index(self) -> ClassIndex:
        """Return the index of classes as of now."""

    def rules(self, namespace: str) -> NamespaceRules:
        """Return the rules for the pods of a namespace."""
