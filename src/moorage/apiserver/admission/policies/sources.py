"""Sources of policies: the server's own copy of the stored objects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from moorage.api.errors import StatusError
from moorage.apiserver.admission.policies.validating import ParamError
from moorage.apiserver.registry.kind import Kind, Obj, Served
from moorage.apiserver.registry.resource_map import ResourceMap
from moorage.apiserver.registry.stored import Stored
from moorage.apiserver.storage import Change, WatchCache


class CachedPolicies:
    """Policies of one kind and their bindings, decoded when they have changed.

    Give `changed` to the store.
    """

    def __init__(self, cache: WatchCache[Stored], policy: Kind, binding: Kind) -> None:
        self._cache = cache
        self._table, self._binding_table = policy.prefix(""), binding.prefix("")
        self._policies: tuple[Obj, ...] = ()
        self._bindings: dict[str, tuple[Obj, ...]] = {}
        self._is_current = False

    def changed(self, changes: Iterable[Change]) -> None:
        """Forget what was decoded if a policy or binding is among the changes."""
        if any(change.key.startswith((self._table, self._binding_table)) for change in changes):
            self._is_current = False

    def policies(self) -> tuple[Obj, ...]:
        """Return all policies that have bindings, in the order of their names."""
        if not self._is_current:
            self._read()
        return self._policies

    def bindings(self, policy: str) -> tuple[Obj, ...]:
        """Return the bindings of a policy, in the order of their names."""
        return self._bindings.get(policy, ())

    def _read(self) -> None:
        self._is_current = True
        bindings = defaultdict(list)
        for item in self._cache.scan(self._binding_table):
            binding = item.obj
            bindings[binding["spec"]["policyName"]].append(binding)
        self._bindings = {policy: tuple(own) for policy, own in bindings.items()}
        stored = self._cache.scan(self._table)
        policies = (item.obj for item in stored if item.name in self._bindings)
        self._policies = tuple(policies)


class CachedParams:
    """Objects of any kind that is served, as parameters of policies."""

    def __init__(self, cache: WatchCache[Stored], resource_map: ResourceMap) -> None:
        self._cache = cache
        self._resource_map = resource_map

    def kind_of(self, api_version: str, kind: str) -> tuple[Kind, Served] | None:
        """Return the kind and version that are served under these names."""
        for candidate, served in self._resource_map.resources():
            if candidate.name == kind and served.api_version == api_version:
                return (candidate, served) if candidate.is_stored else None
        return None

    def find(self, kind: Kind, namespace: str, name: str) -> Obj | None:
        """Return an object, None if there is none. Raises ParamError."""
        item = self._cache.get(kind.key(namespace, name))
        return None if item is None else _seen(kind, item)

    def all(self, kind: Kind, namespace: str) -> list[Obj]:
        """Return the objects of a namespace; of a cluster-scoped kind all. Raises ParamError."""
        return [_seen(kind, item) for item in self._cache.scan(kind.prefix(namespace))]


def _seen(kind: Kind, item: Stored) -> Obj:
    """Return an object: of built-in kinds as stored, of custom ones in the kind's version.

    Raises ParamError for one that a webhook would have to convert.
    """
    if kind.view is None:
        return item.obj
    try:
        return kind.view.see_now(item).obj
    except StatusError as error:
        raise ParamError(f"{kind.name} {item.name!r} cannot be used: {error.message}") from error
