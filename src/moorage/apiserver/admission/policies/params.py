"""Parameters: the objects that a binding gives to a policy.

Source: API docs "Parameter resources"; apiserver `policy/generic`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from moorage.api import labels
from moorage.apiserver.admission.admission_request import versioned
from moorage.apiserver.registry.kind import Kind, Obj, Served


class ParamError(ValueError):
    """The parameters of a binding cannot be found; the text is for the refusal."""


class ParamSource(Protocol):
    """Finds kinds and reads their objects."""

    def kind_of(self, api_version: str, kind: str) -> tuple[Kind, Served] | None:
        """Return the kind and version that are served under these names."""

    def find(self, kind: Kind, namespace: str, name: str) -> Obj | None:
        """Return an object as stored."""

    def all(self, kind: Kind, namespace: str) -> list[Obj]:
        """Return the objects of a namespace as stored; of a cluster-scoped kind all."""


def collect_params(
    param_kind: Mapping[str, str] | None,
    reference: Mapping[str, Any] | None,
    namespace: str,
    source: ParamSource,
) -> list[Any]:
    """Return the parameters of each evaluation of the policy: one None without parameters.

    `namespace` is that of the request. Raises ParamError.
    """
    if param_kind is None or reference is None:
        return [None]
    api_version, name = param_kind.get("apiVersion", ""), param_kind.get("kind", "")
    found = source.kind_of(api_version, name)
    if found is None:
        raise ParamError(f"paramKind kind `{api_version}, Kind={name}` not known")
    kind, served = found
    objects = _objects(kind, reference, namespace, source)
    if not objects and reference.get("parameterNotFoundAction") == "Deny":
        raise ParamError("no params found for policy binding with `Deny` parameterNotFoundAction")
    return [versioned(kind.name, served, obj) for obj in objects]


def _objects(
    kind: Kind, reference: Mapping[str, Any], namespace: str, source: ParamSource
) -> list[Obj]:
    own = reference.get("namespace", "")
    if kind.is_namespaced:
        namespace = own or namespace
        if not namespace:
            raise ParamError(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped "
                "resources"
            )
    elif own:
        raise ParamError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
    else:
        namespace = ""
    if name := reference.get("name"):
        obj = source.find(kind, namespace, name)
        return [] if obj is None else [obj]
    selector = labels.from_object(reference.get("selector"))
    return [
        obj
        for obj in source.all(kind, namespace)
        if selector.matches(obj["metadata"].get("labels") or {})
    ]
