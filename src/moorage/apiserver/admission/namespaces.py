"""NamespaceLifecycle plugin: new objects need a namespace that exists and is not terminating.

Source: apiserver plugin NamespaceLifecycle.
"""

from __future__ import annotations

from collections.abc import Callable

from moorage.api.errors import Cause, ForbiddenError, NotFoundError, qualified
from moorage.api.names import Namespace
from moorage.apiserver.admission.chain import ANY, CREATE, DELETE, UPDATE, Scope
from moorage.apiserver.registry.request import Attributes

IMMORTAL = frozenset({"default", "kube-system", "kube-public"})
"""Namespaces that cannot be deleted."""


class NamespaceLifecycle:
    """Refuses creates in a missing or terminating namespace, and deletes of `IMMORTAL` ones.

    `find` returns a namespace by name, or None.
    """

    name = "NamespaceLifecycle"
    scope = Scope.of([ANY], [CREATE, UPDATE, DELETE], [ANY])
    validate = None

    def __init__(self, find: Callable[[str], Namespace | None]) -> None:
        self._find = find
        self.mutate = self._check

    def _check(self, attributes: Attributes) -> None:
        if attributes.kind.resource == "namespaces":
            if attributes.operation == DELETE and attributes.name in IMMORTAL:
                raise ForbiddenError.of(
                    "namespaces", attributes.name, "this namespace may not be deleted"
                )
            return
        # Existing objects may still be changed and deleted: that is how a namespace is emptied.
        if not attributes.namespace or attributes.operation != CREATE:
            return
        namespace = self._find(attributes.namespace)
        if namespace is None:
            raise NotFoundError.of("namespaces", attributes.namespace)
        if namespace.status.phase == "Terminating" and attributes.kind.is_stored:
            raise _terminating(attributes)


def _terminating(attributes: Attributes) -> ForbiddenError:
    kind = attributes.kind
    refusal = ForbiddenError.of(
        kind.plural,
        attributes.name,
        f"unable to create new content in namespace {attributes.namespace} because it is being "
        "terminated",
        group=kind.group,
    )
    cause = Cause(
        "NamespaceTerminating",
        f"namespace {attributes.namespace} is being terminated",
        "metadata.namespace",
    )
    refusal.details = {
        **(refusal.details or {"kind": qualified(kind.plural, kind.group)}),
        "causes": [cause.to_object()],
    }
    return refusal
