"""Requests of controllers: batches, expected refusals, finalizers and patches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from moorage.api.errors import NotFoundError, StatusError
from moorage.api.meta import Object, ObjectMeta
from moorage.wire.client.resources import Resource
from moorage.wire.client.rest import Client, PatchType, UnreachableError

# Slow-start batches of similar requests.
#
# Batches of 1, 2, 4… requests: if all would fail for one reason (a quota, an admission rule),
# only a few are sent. Source: `slowStartBatch` of the workload controllers.

# Each request under way holds a TLS connection on both sides; more of them are not faster.
_SIDE_BY_SIDE = 16


async def slow_start(
    count: int, call: Callable[[], Awaitable[None]]
) -> tuple[int, StatusError | UnreachableError | None]:
    """Call `count` times in growing batches until one fails.

    Returns how many were called and the first failure; calls never made are the difference.
    """
    called = 0
    size = 1
    while called < count:
        size = min(size, count - called)
        failure = await at_once([call] * size)
        called += size
        if failure is not None:
            return called, failure
        size *= 2
    return called, None


async def at_once(
    calls: list[Callable[[], Awaitable[None]]],
) -> StatusError | UnreachableError | None:
    """Run all calls, with bounded concurrency.

    Returns the first failed request's error, None without one. Any other exception is raised.
    """
    turns = asyncio.Semaphore(_SIDE_BY_SIDE)
    results = await asyncio.gather(*(_outcome(call, turns) for call in calls))
    return next((result for result in results if result is not None), None)


async def _outcome(
    call: Callable[[], Awaitable[None]], turns: asyncio.Semaphore
) -> StatusError | UnreachableError | None:
    async with turns:
        try:
            await call()
        except (StatusError, UnreachableError) as failure:
            return failure
    return None


# Rejections by the API server that are expected and not reported as failures.

NAMESPACE_TERMINATING = "NamespaceTerminating"


def is_namespace_ending(error: Exception) -> bool:
    """Return whether a creation failed, for good, because the namespace is terminating."""
    if not isinstance(error, StatusError):
        return False
    causes = (error.details or {}).get("causes") or ()
    return any(cause.get("reason") == NAMESPACE_TERMINATING for cause in causes)


# Finalizers: requests that add one to an object, or remove one from it.


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


# Status patches: fields set to zero values are removed, as in the API's own encoding.


def status_patch(meta: ObjectMeta, before: Object, after: Object) -> dict[str, Any]:
    """Return the merge patch from one status to the other.

    It applies only to the resourceVersion that was read.
    """
    old, new = msgspec.to_builtins(before), msgspec.to_builtins(after)
    changes: dict[str, Any] = {
        key: _change(old.get(key), new.get(key))
        for key in old.keys() | new.keys()
        if old.get(key) != new.get(key)
    }
    return {"metadata": locked(meta), "status": changes}


def _change(before: Any, after: Any) -> Any:
    """Return a field's part of a merge patch, which removes the keys that a map has lost."""
    if isinstance(before, dict) and isinstance(after, dict):
        return {**dict.fromkeys(before), **after}
    return after


def locked(meta: ObjectMeta) -> dict[str, Any]:
    """Return patch metadata that applies only to the uid and resourceVersion that were read."""
    return {"uid": meta.uid, "resourceVersion": meta.resource_version}
