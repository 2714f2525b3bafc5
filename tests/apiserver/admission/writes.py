"""Short ways to build the writes that admission looks at."""

from __future__ import annotations

from typing import Any

from moorage.apiserver.admission.chain import Plugin
from moorage.apiserver.registry.kind import Kind, Obj
from moorage.apiserver.registry.kinds.pod import POD
from moorage.apiserver.registry.request import Attributes, Request, User

ALICE = User("alice", groups=("dev", "system:authenticated"))


def write(
    kind: Kind = POD,
    obj: Obj | None = None,
    *,
    operation: str = "CREATE",
    old: Obj | None = None,
    subresource: str = "",
    user: User = ALICE,
    name: str | None = None,
    namespace: str = "default",
    is_dry_run: bool = False,
) -> Attributes:
    """A write as the registry hands it to admission; the name defaults to the object's."""
    if name is None:
        name = ((obj or old or {}).get("metadata") or {}).get("name", "")
    return Attributes(
        request=Request(user=user, is_dry_run=is_dry_run),
        operation=operation,
        kind=kind,
        served=kind.storage,
        namespace=namespace if kind.is_namespaced else "",
        name=name,
        obj=obj,
        old=old,
        subresource=subresource,
    )


def pod(spec: dict[str, Any] | None = None, **metadata: Any) -> Obj:
    """A pod named `p`; `spec` is laid over one container."""
    return {
        "metadata": {"name": "p", "namespace": "default", **metadata},
        "spec": {"containers": [{"name": "c", "image": "i"}], **(spec or {})},
    }


def admit(plugin: Plugin, attributes: Attributes) -> Obj:
    """Both phases of one plugin, as the chain runs them; the object afterwards."""
    kind = attributes.kind.resource
    assert plugin.scope.covers(kind, attributes.subresource, attributes.operation)
    if plugin.mutate is not None:
        plugin.mutate(attributes)
    if plugin.validate is not None:
        plugin.validate(attributes)
    return attributes.obj or {}
