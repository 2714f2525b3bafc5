"""Sources of policies: classes, nodes, profiles and policies in the server's own copy.

What changes is noted by key and read at the next question, so that a status that changes each
second costs a set insertion, and a server without policies and profiles nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from moorage.api.errors import StatusError
from moorage.api.logs import Log
from moorage.api.meta import Object
from moorage.api.runtime_group import (
    GROUP,
    VERSION,
    ClusterRuntimePolicy,
    RuntimeClass,
    RuntimePolicy,
    RuntimeProfile,
)
from moorage.apiserver.registry.kind import Kind
from moorage.apiserver.registry.kinds.core import NAMESPACE
from moorage.apiserver.registry.kinds.node import NODE
from moorage.apiserver.registry.kinds.runtimeclass import RUNTIME_CLASS
from moorage.apiserver.registry.resource_map import ResourceMap
from moorage.apiserver.registry.stored import Stored
from moorage.apiserver.storage import Change, WatchCache
from moorage.runtimeclass.class_index import ClassIndex
from moorage.runtimeclass.node_sets import NodeFacts
from moorage.runtimeclass.policies import EffectivePolicy, effective_policy

# Facts seam: what the runtime policies ask of classes, nodes, profiles and policies.
#
# The API server answers from its own copy (`sources.py`), the webhook from informers
# (`moorage.attach.webhook`).


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


T = TypeVar("T", bound=Object)

PROFILES = "runtimeprofiles"
POLICIES = "runtimepolicies"
CLUSTER_POLICIES = "clusterruntimepolicies"
CLASS_QUOTAS = "runtimeclassquotas"

log = Log(__name__)


def table_of(plural: str) -> str:
    """Return the beginning of the store keys of a resource of our group."""
    return f"{plural}.{GROUP}/"


class CustomReader(Generic[T]):
    """Reads custom objects of our group as `T`, decoded once per revision.

    Objects whose definition is not served are not there, nor are those that do not decode: a server
    with a definition of other people's making must not fail for it.
    """

    def __init__(
        self, cache: WatchCache[Stored], resource_map: ResourceMap, plural: str, type_: type[T]
    ) -> None:
        self._cache = cache
        self._resource_map = resource_map
        self._plural = plural
        self._type = type_
        self._decoded: dict[str, tuple[int, T | None]] = {}

    @property
    def kind(self) -> Kind | None:
        """Return the kind, None while it is not served."""
        found = self._resource_map.find(GROUP, VERSION, self._plural)
        return None if found is None else found[0]

    def all(self, namespace: str = "") -> list[T]:
        """Return the objects of a namespace, of all for `""`."""
        kind = self.kind
        if kind is None:
            return []
        items = self._cache.scan(kind.prefix(namespace))
        return [typed for item in items if (typed := self._typed(kind, item)) is not None]

    def at(self, key: str) -> T | None:
        """Return the object under a store key, None if there is none."""
        kind = self.kind
        item = self._cache.get(key)
        if kind is None or item is None:
            self._decoded.pop(key, None)
            return None
        return self._typed(kind, item)

    def _typed(self, kind: Kind, item: Stored) -> T | None:
        known = self._decoded.get(item.key)
        if known is not None and known[0] == item.revision:
            return known[1]
        if len(self._decoded) > 2 * self._cache.count(kind.prefix("")):
            self._decoded.clear()
        try:
            seen = item if kind.view is None else kind.view.see_now(item)
            typed = msgspec.json.decode(b"{" + seen.tail, type=self._type)
        except (msgspec.ValidationError, StatusError) as error:
            log.warning("object cannot be read", kind=kind.name, object=item.name, error=error)
            typed = None
        self._decoded[item.key] = (item.revision, typed)
        return typed


_NO_RULES = NamespaceRules()


class RuntimeFacts:
    """What admission knows of classes, nodes and policies. Give `changed` to the store."""

    def __init__(self, cache: WatchCache[Stored], resource_map: ResourceMap) -> None:
        self._cache = cache
        self._index = ClassIndex()
        self._profiles = CustomReader(cache, resource_map, PROFILES, RuntimeProfile)
        self._policies = CustomReader(cache, resource_map, POLICIES, RuntimePolicy)
        self._cluster_policies = CustomReader(
            cache, resource_map, CLUSTER_POLICIES, ClusterRuntimePolicy
        )
        self._readers: dict[str, Callable[[str], None]] = {
            RUNTIME_CLASS.prefix(""): self._read_class,
            NODE.prefix(""): self._read_node,
            table_of(PROFILES): self._read_profile,
        }
        self._own_table, self._cluster_table = map(table_of, (POLICIES, CLUSTER_POLICIES))
        self._policy_tables = (self._own_table, self._cluster_table)
        self._watched = (*self._readers, *self._policy_tables, NAMESPACE.prefix(""))
        self._dirty: set[str] | None = None
        self._rules: dict[str, NamespaceRules] = {}
        self._has_policies: bool | None = None
        self._has_profiles: bool | None = None
        self._profile_table = table_of(PROFILES)
        resource_map.listen(self._definitions_changed)

    def changed(self, changes: Iterable[Change]) -> None:
        """Note what is to be read again."""
        for change in changes:
            key = change.key
            if not key.startswith(self._watched):
                continue
            if key.startswith(self._profile_table):
                self._has_profiles = None
            if key.startswith(self._policy_tables):
                if key.startswith(self._own_table):
                    # `runtimepolicies.runtime.moorage.dev/NAMESPACE/NAME`
                    self._rules.pop(key.split("/")[1], None)
                else:
                    self._rules.clear()
                self._has_policies = None
            elif key.startswith(NAMESPACE.prefix("")):
                self._rules.pop(key.rpartition("/")[2], None)
            elif self._dirty is not None:
                self._dirty.add(key)

    def _definitions_changed(self) -> None:
        """A kind is newly served, or no longer: read all again."""
        self._rules.clear()
        self._has_policies = self._has_profiles = None
        if self._dirty is not None:
            self._dirty.update(item.key for item in self._cache.scan(self._profile_table))

    @property
    def has_policies(self) -> bool:
        if self._has_policies is None:
            self._has_policies = any(self._cache.count(table) for table in self._policy_tables)
        return self._has_policies

    @property
    def has_profiles(self) -> bool:
        if self._has_profiles is None:
            self._has_profiles = self._cache.count(self._profile_table) > 0
        return self._has_profiles

    def index(self) -> ClassIndex:
        """Return the index as of now."""
        if self._dirty is None:
            self._dirty = {item.key for table in self._readers for item in self._cache.scan(table)}
        while self._dirty:
            key = self._dirty.pop()
            table = key[: key.index("/") + 1]
            self._readers[table](key)
        return self._index

    def rules(self, namespace: str) -> NamespaceRules:
        """Return the rules for the pods of a namespace."""
        known = self._rules.get(namespace)
        if known is not None:
            return known
        item = self._cache.get(NAMESPACE.key("", namespace))
        if item is None:
            return _NO_RULES
        rules = self._rules[namespace] = self._read_rules(namespace, item)
        return rules

    def _read_rules(self, name: str, item: Stored) -> NamespaceRules:
        namespace = _decoded(item, NamespaceFacts)
        return rules_of(namespace, self._cluster_policies.all(), self._policies.all(name))

    def _read_class(self, key: str) -> None:
        item = self._cache.get(key)
        if item is None:
            self._index.remove_class(_name(key))
        else:
            self._index.put_class(_decoded(item, RuntimeClass))

    def _read_node(self, key: str) -> None:
        item = self._cache.get(key)
        if item is None:
            self._index.remove_node(_name(key))
        else:
            self._index.put_node(_decoded(item, NodeFacts))

    def _read_profile(self, key: str) -> None:
        profile = self._profiles.at(key)
        if profile is None:
            self._index.remove_profile(_name(key))
        else:
            self._index.put_profile(profile)


def _name(key: str) -> str:
    return key.rpartition("/")[2]


def _decoded(item: Stored, type_: type[Any]) -> Any:
    return msgspec.json.decode(b"{" + item.tail, type=type_)
