"""Finalizers: requests that add one to an object, or remove one from it."""

from __future__ import annotations

from typing import Any

from moorage.api.errors import NotFoundError
from moorage.api.meta import ObjectMeta
from moorage.wire.client.resources import Resource
from moorage.wire.client.rest import Client, PatchType


async def remove_finalizer(
    client: Client, resource: Resource[Any], meta: ObjectMeta, finalizer: str
) -> None:
    """Remove a finalizer from an object; one that is gone has lost it.

    Raises StatusError or UnreachableError.
    """
    changes = {"uid": meta.uid, "$deleteFromPrimitiveList/finalizers": [finalizer]}
    await _patch(client, resource, meta, changes)


async def add_finalizer(
    client: Client, resource: Resource[Any], meta: ObjectMeta, finalizer: str
) -> None:
    """Add a finalizer to an object that is not being deleted; one that is gone needs none.

    Raises ConflictError if it has changed since it was read, StatusError or UnreachableError.
    """
    changes = {
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
        "finalizers": [finalizer],
    }
    await _patch(client, resource, meta, changes)


async def _patch(
    client: Client, resource: Resource[Any], meta: ObjectMeta, changes: dict[str, Any]
) -> None:
    namespace = meta.namespace if resource.is_namespaced else None
    try:
        await client.patch(
            resource, meta.name, {"metadata": changes}, namespace, kind=PatchType.STRATEGIC
        )
    except NotFoundError:
        return
