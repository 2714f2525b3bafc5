"""Facts: the classes, nodes, profiles, policies and namespaces that manifests are checked against.

They come from a cluster, or from files: what `kubectl get -o yaml` writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import msgspec

from moorage.api.conditions import is_true
from moorage.api.errors import FieldError, ForbiddenError, InvalidError, NotFoundError
from moorage.api.meta import Object, ObjectMeta, Raw
from moorage.api.names import Namespace
from moorage.api.nodes import NodeRuntimeHandler
from moorage.api.runtime_group import (
    GROUP,
    WORKING,
    ClusterRuntimePolicy,
    RuntimeClass,
    RuntimePolicy,
    RuntimeProfile,
    handler_label,
)
from moorage.apiserver.cel.evaluator import Evaluator
from moorage.apiserver.registry.custom.decoding import CustomType
from moorage.apiserver.registry.custom.definition import schema_of, type_of
from moorage.apiserver.registry.custom.expressions import expressions_of
from moorage.apiserver.registry.expressions import Expressions
from moorage.runtimeclass.class_index import ClassIndex
from moorage.runtimeclass.demands import Path
from moorage.runtimeclass.node_sets import NodeFacts, NodeFactsStatus
from moorage.runtimeclass.placing import TRUE
from moorage.runtimeclass.policies import EffectivePolicy, effective_policy
from moorage.runtimes.custom_resources import definitions
from moorage.wire.client.resources import (
    CLUSTER_RUNTIME_POLICIES,
    NAMESPACES,
    RUNTIME_CLASSES,
    RUNTIME_POLICIES,
    RUNTIME_PROFILES,
    Resource,
)
from moorage.wire.client.rest import Client

# Own objects of manifests: which ones are of our group, and where their errors are.

_STEP = re.compile(r"[^.\[\]]+")


def is_own(value: Raw) -> bool:
    """Return whether an object is of our group."""
    return str(value.get("apiVersion", "")).partition("/")[0] == GROUP


def path_of(error: FieldError) -> Path:
    """Return the steps of an error's field."""
    steps = _STEP.findall(error.field)
    return tuple(int(step) if step.isdigit() else step for step in steps)


# Own objects: policies and other objects of our group, checked against their kinds' definitions.
#
# What an API server with these definitions would refuse, without one: unknown fields as kubectl's
# strict validation does, values by the schema, and rules in CEL.

_UNKNOWN = re.compile(r'unknown field "(.*)"')


class _Kind(msgspec.Struct, frozen=True):
    type: CustomType
    expressions: Expressions | None
    has_status: bool


async def own_object_errors(objects: Sequence[Raw]) -> list[list[FieldError]]:
    """Return the errors of each object of our group, none for a valid one."""
    kinds = _kinds()
    async with Evaluator() as evaluator:
        return [await _errors(value, kinds, evaluator) for value in objects]


def _kinds() -> dict[tuple[str, str], _Kind]:
    """Return the kinds of our group by API version and name."""
    return {
        (f"{GROUP}/{version['name']}", definition["spec"]["names"]["kind"]): _Kind(
            type_of(definition, version),
            expressions_of(schema_of(version)),
            "status" in version.get("subresources", {}),
        )
        for definition in definitions()
        for version in definition["spec"]["versions"]
    }


async def _errors(
    value: Raw, kinds: dict[tuple[str, str], _Kind], evaluator: Evaluator
) -> list[FieldError]:
    version, name = str(value.get("apiVersion", "")), str(value.get("kind", ""))
    kind = kinds.get((version, name))
    if kind is None:
        known = ", ".join(" ".join(pair) for pair in sorted(kinds))
        detail = f"{version} has no kind {name}; those of the group: {known}"
        return [FieldError.invalid("kind", name, detail)]
    fitted: dict[str, Any] = deepcopy(value)
    if kind.has_status:
        # As at a creation, which has none.
        fitted.pop("status", None)
    try:
        unknown = [_unknown_field(sentence) for sentence in kind.type.fit(fitted)]
    except InvalidError as error:
        return list(error.errors)
    errors = unknown + kind.type.errors(fitted)
    if not errors and kind.expressions is not None:
        errors += (await kind.expressions(evaluator, fitted, None)).errors
    return errors


def _unknown_field(sentence: str) -> FieldError:
    match = _UNKNOWN.fullmatch(sentence)
    return FieldError(match[1] if match else "", "FieldValueInvalid", "unknown field")


class FactsError(ValueError):
    """A fact that does not decode; the message names it."""


class Facts:
    """What is known. Add objects in any order, then ask."""

    def __init__(self) -> None:
        self.index = ClassIndex()
        self._profiled: dict[str, dict[str, bool]] = {}
        self._nodes: dict[str, NodeFacts] = {}
        self._namespaces: dict[str, Namespace] = {}
        self._cluster_policies: dict[str, ClusterRuntimePolicy] = {}
        self._policies: dict[str, dict[str, RuntimePolicy]] = {}
        self._effective: dict[str, EffectivePolicy] = {}
        self._add: dict[str, Callable[[Any], None]] = {
            "RuntimeClass": self.index.put_class,
            "Node": self._add_node,
            "RuntimeProfile": self._add_profile,
            "Namespace": self._add_namespace,
            "RuntimePolicy": self._add_policy,
            "ClusterRuntimePolicy": self._add_cluster_policy,
        }

    def add(self, obj: Mapping[str, Any]) -> bool:
        """Add an object as JSON. Return whether its kind is a fact. Raises FactsError."""
        kind = obj.get("kind")
        if not isinstance(kind, str) or kind not in _TYPES:
            return False
        try:
            self.put(kind, msgspec.convert(obj, _TYPES[kind]))
        except (msgspec.ValidationError, ValueError) as error:
            metadata = obj.get("metadata")
            name = metadata.get("name", "") if isinstance(metadata, dict) else ""
            raise FactsError(f"{kind} {name}: {error}") from error
        return True

    def put(self, kind: str, obj: Object) -> None:
        """Add a typed object. Raises ValueError for amounts that are none."""
        self._add[kind](obj)
        self._effective.clear()

    @property
    def knows_nodes(self) -> bool:
        """Return whether any node is known with its labels, which profiles do not have."""
        return bool(self._nodes)

    def policy(self, namespace: str) -> EffectivePolicy:
        """Return the effective policy of a namespace, which need not be known."""
        known = self._effective.get(namespace)
        if known is None:
            found = self._namespaces.get(namespace)
            known = self._effective[namespace] = effective_policy(
                {} if found is None else found.metadata.labels,
                self._cluster_policies.values(),
                self._policies.get(namespace, {}).values(),
            )
        return known

    def annotations(self, namespace: str) -> Mapping[str, str]:
        """Return the annotations of a namespace, none if it is not known."""
        found = self._namespaces.get(namespace)
        return {} if found is None else found.metadata.annotations

    def complete_nodes(self) -> None:
        """Add what only profiles say of nodes: the labels of handlers that work there.

        Nodes that only profiles name are added, with room for everything.
        """
        for name, handlers in self._profiled.items():
            node = self._nodes.get(name)
            if node is None:
                reported = tuple(NodeRuntimeHandler(name=handler) for handler in sorted(handlers))
                node = NodeFacts(
                    metadata=ObjectMeta(name=name),
                    status=NodeFactsStatus(runtime_handlers=reported),
                )
            working = {handler_label(handler): TRUE for handler, works in handlers.items() if works}
            labels = {**working, **node.metadata.labels}
            metadata = msgspec.structs.replace(node.metadata, labels=labels)
            self.index.put_node(msgspec.structs.replace(node, metadata=metadata))

    def _add_node(self, node: NodeFacts) -> None:
        self._nodes[node.metadata.name] = node
        self.index.put_node(node)

    def _add_profile(self, profile: RuntimeProfile) -> None:
        works = is_true(profile.status.conditions, WORKING)
        self._profiled.setdefault(profile.spec.node_name, {})[profile.spec.handler] = works
        self.index.put_profile(profile)

    def _add_namespace(self, namespace: Namespace) -> None:
        self._namespaces[namespace.metadata.name] = namespace

    def _add_policy(self, policy: RuntimePolicy) -> None:
        meta = policy.metadata
        self._policies.setdefault(meta.namespace or "default", {})[meta.name] = policy

    def _add_cluster_policy(self, policy: ClusterRuntimePolicy) -> None:
        self._cluster_policies[policy.metadata.name] = policy


_TYPES: dict[str, type[Object]] = {
    "RuntimeClass": RuntimeClass,
    "Node": NodeFacts,
    "RuntimeProfile": RuntimeProfile,
    "Namespace": Namespace,
    "RuntimePolicy": RuntimePolicy,
    "ClusterRuntimePolicy": ClusterRuntimePolicy,
}

_NODE_FACTS = Resource("", "v1", "nodes", "Node", NodeFacts, is_namespaced=False)
_READ: Iterable[Resource[Any]] = (
    RUNTIME_CLASSES, _NODE_FACTS, NAMESPACES, RUNTIME_PROFILES, CLUSTER_RUNTIME_POLICIES,
    RUNTIME_POLICIES,
)  # fmt: skip


async def facts_of_cluster(client: Client) -> tuple[Facts, list[str]]:
    """Return the facts of a cluster, and a sentence for each kind that cannot be read.

    A cluster without our definitions has no profiles and policies; a user without rights to nodes
    sees none. Raises StatusError, UnreachableError.
    """
    facts = Facts()
    missing = []
    for resource in _READ:
        try:
            listed = await client.list(resource)
        except NotFoundError:
            continue
        except ForbiddenError as error:
            missing.append(f"{resource.plural} are not considered: {error.message}")
            continue
        for item in listed.items:
            facts.put(resource.kind, item)
    return facts, missing
