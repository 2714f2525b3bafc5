"""Selection of policies: those, and their bindings, that a write is subject to.

Source: API docs "Validating Admission Policy"; apiserver `policy/generic`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from moorage.apiserver.admission.admission_request import is_shown
from moorage.apiserver.admission.matching import matched_version
from moorage.apiserver.registry.kind import Obj, Served
from moorage.apiserver.registry.request import Attributes


class PolicySource(Protocol):
    """Reads policies and bindings, in the order of their names."""

    def policies(self) -> tuple[Obj, ...]: ...

    def bindings(self, policy: str) -> tuple[Obj, ...]:
        """Return the bindings of a policy."""


class Selection:
    """Selects policies of one kind."""

    def __init__(self, source: PolicySource, namespace: Callable[[str], Obj | None]) -> None:
        """`namespace` returns a Namespace by its name."""
        self._source = source
        self._namespace = namespace

    def policies(self, attributes: Attributes) -> list[tuple[Obj, Served]]:
        """Return the policies that select a write, each with the version in which it does."""
        policies = self._source.policies()
        if not policies or not is_shown(attributes):
            return []
        return [
            (policy, served)
            for policy in policies
            if (served := self._selects(policy["spec"].get("matchConstraints"), attributes))
        ]

    def bindings(self, policy: Obj, attributes: Attributes) -> Iterator[Obj]:
        """Yield the bindings of a policy that select a write."""
        for binding in self._source.bindings(policy["metadata"]["name"]):
            if self._selects(binding["spec"].get("matchResources"), attributes) is not None:
                yield binding

    def namespace_of(self, attributes: Attributes) -> Obj | None:
        """Return the namespace of a write, None outside of namespaces."""
        return self._namespace(attributes.namespace) if attributes.namespace else None

    def _selects(self, match: Mapping[str, Any] | None, attributes: Attributes) -> Served | None:
        return matched_version(match or {}, attributes, self._labels_of)

    def _labels_of(self, namespace: str) -> Mapping[str, str]:
        found = self._namespace(namespace)
        labels: Mapping[str, str] = ((found or {}).get("metadata") or {}).get("labels") or {}
        return labels
