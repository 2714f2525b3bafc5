"""Admission chain: runs the plugins whose scope covers a write, mutating before validating.

The plugins are selected once per (resource, subresource, operation). Hot path: for a
pod, the whole mutating phase stays under 40 µs (bench/hotpaths.py). Source: API docs "Admission
Control in Kubernetes".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.request import Attributes

Hook = Callable[[Attributes], Awaitable[None] | None]
"""One step of a plugin. What it returns is awaited: most decide at once and return None."""

CREATE = "CREATE"
UPDATE = "UPDATE"
DELETE = "DELETE"
CONNECT = "CONNECT"
ANY = "*"

RESIZE = "resize"
"""The subresource by which the resources of a pod's containers change."""


class Scope(msgspec.Struct, frozen=True):
    """Writes that a plugin handles. `ANY` matches every resource or subresource."""

    resources: frozenset[str]
    operations: frozenset[str]
    subresources: frozenset[str] = frozenset({""})

    @classmethod
    def of(
        cls,
        resources: Sequence[str],
        operations: Sequence[str],
        subresources: Sequence[str] = ("",),
    ) -> Scope:
        """Return a scope; by default of the objects themselves, without subresources."""
        return cls(frozenset(resources), frozenset(operations), frozenset(subresources))

    def covers(self, resource: str, subresource: str, operation: str) -> bool:
        """Return whether a write is in the scope; `resource` is qualified (`Kind.resource`)."""
        return (
            operation in self.operations
            and (ANY in self.resources or resource in self.resources)
            and (ANY in self.subresources or subresource in self.subresources)
        )


class Plugin(Protocol):
    """One admission rule, applied to the writes in `scope`.

    `mutate` changes `attributes.obj` in place, `validate` only reads; either is None if the plugin
    has no such step. Both raise StatusError to refuse the write.
    """

    @property
    def name(self) -> str: ...

    @property
    def scope(self) -> Scope: ...

    @property
    def mutate(self) -> Hook | None: ...

    @property
    def validate(self) -> Hook | None: ...


class AdmissionChain:
    """Runs the plugins in their order; `registry.objects` calls it for every write."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self._plugins = tuple(plugins)
        self._hooks: dict[tuple[str, str, str], tuple[tuple[Hook, ...], tuple[Hook, ...]]] = {}

    async def mutate(self, attributes: Attributes) -> None:
        """Run the mutating steps of a write. Raises the StatusError of the first refusal.

        They run a second time after a webhook's change, so they must stand their own result.
        """
        await self._run(self._concerned(attributes)[0], attributes)
        again = attributes.reinvocation
        if again is not None and again.is_needed:
            again.is_second = True
            await self._run(self._concerned(attributes)[0], attributes)

    async def validate(self, attributes: Attributes) -> None:
        """Run the validating steps of a write. Raises the StatusError of the first refusal."""
        await self._run(self._concerned(attributes)[1], attributes)

    async def _run(self, hooks: Sequence[Hook], attributes: Attributes) -> None:
        for hook in hooks:
            if (awaited := hook(attributes)) is not None:
                await awaited

    def _concerned(self, attributes: Attributes) -> tuple[tuple[Hook, ...], tuple[Hook, ...]]:
        key = (attributes.kind.resource, attributes.subresource, attributes.operation)
        hooks = self._hooks.get(key)
        if hooks is None:
            plugins = [plugin for plugin in self._plugins if plugin.scope.covers(*key)]
            hooks = self._hooks[key] = (
                tuple(plugin.mutate for plugin in plugins if plugin.mutate is not None),
                tuple(plugin.validate for plugin in plugins if plugin.validate is not None),
            )
        return hooks


# Updates by the garbage collector, which needs no rights to what the object stands for.
#
# Source: registry `rbac.IsOnlyMutatingGCFields` of Kubernetes 1.36.

# Written by the garbage collector to finish a deletion; grants no permission, so needs none.
_FIELDS = ("ownerReferences", "finalizers", "managedFields", "resourceVersion")


def is_for_collector(attributes: Attributes) -> bool:
    """Return whether the update changes only fields that the garbage collector changes."""
    new, old = attributes.obj, attributes.old
    if attributes.operation != UPDATE or new is None or old is None:
        return False
    return _without_collector_fields(new) == _without_collector_fields(old)


def _without_collector_fields(obj: Obj) -> Obj:
    metadata = {field: value for field, value in obj["metadata"].items() if field not in _FIELDS}
    return {**obj, "metadata": metadata}
