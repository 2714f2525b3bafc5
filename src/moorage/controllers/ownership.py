"""Ownership: the controller of an object, adoption and release.

A controller's objects are those that name it as their controller and match its selector. Matching
orphans are adopted, controlled ones that no longer match are released. Source: API docs "Owners and
dependents", `ControllerRefManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from moorage.api.errors import ConflictError, InvalidError, NotFoundError
from moorage.api.labels import Selector
from moorage.api.meta import Object, ObjectMeta, OwnerReference
from moorage.wire.client.resources import Resource
from moorage.wire.client.rest import Client, PatchType, meta_of

T = TypeVar("T", bound=Object)


def controller_of(meta: ObjectMeta) -> OwnerReference | None:
    """Return the owner reference with `controller` set, of which there is at most one; or None."""
    return next((reference for reference in meta.owner_references if reference.controller), None)


def controller_reference(resource: Resource[Any], meta: ObjectMeta) -> dict[str, Any]:
    """Return the controller reference to `meta`'s object, as JSON."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


@dataclass(frozen=True, slots=True)
class Claims(Generic[T]):
    """The objects a controller keeps, has to adopt and has to release."""

    kept: tuple[T, ...] = ()
    adopted: tuple[T, ...] = ()
    released: tuple[T, ...] = ()


def sort_claims(
    owner: ObjectMeta,
    selector: Selector,
    candidates: Iterable[T],
    accepts: Callable[[T], bool] = lambda _: True,
) -> Claims[T]:
    """Sort the objects in the owner's namespace into kept, to adopt and to release.

    An object matches if the selector does and `accepts` returns true of it.
    """
    kept: list[T] = []
    adopted: list[T] = []
    released: list[T] = []
    for candidate in candidates:
        meta = meta_of(candidate)
        controller = controller_of(meta)
        is_match = selector.matches(meta.labels) and accepts(candidate)
        if controller is not None:
            if controller.uid != owner.uid:
                continue
            if is_match:
                kept.append(candidate)
            elif owner.deletion_timestamp is None:
                released.append(candidate)
        elif is_match and owner.deletion_timestamp is None and meta.deletion_timestamp is None:
            adopted.append(candidate)
    return Claims(tuple(kept), tuple(adopted), tuple(released))


class Claimer:
    """Adopts and releases objects of one kind for owners of another (ControllerRefManager).

    An adopted object gets the `finalizer`, if there is one.
    """

    def __init__(
        self,
        client: Client,
        owners: Resource[Any],
        owned: Resource[Any],
        *,
        finalizer: str | None = None,
    ) -> None:
        self._client = client
        self._owners = owners
        self._owned = owned
        self._finalizer = finalizer

    async def claim(self, owner: ObjectMeta, claims: Claims[T]) -> list[T]:
        """Carry out the adoptions and releases. Returns the owner's objects afterwards."""
        for obj in claims.released:
            await self._release(owner, meta_of(obj))
        mine = list(claims.kept)
        if claims.adopted:
            await self._check_may_adopt(owner)
        for obj in claims.adopted:
            if await self._adopt(owner, meta_of(obj)):
                mine.append(obj)
        return mine

    async def _check_may_adopt(self, owner: ObjectMeta) -> None:
        # The copy may be old: an owner that is being deleted, or was replaced by a namesake, must
        # not adopt.
        live = meta_of(await self._client.get(self._owners, owner.name, owner.namespace))
        subject = f"{self._owners.kind} {owner.namespace}/{owner.name}"
        if live.uid != owner.uid:
            raise ConflictError(
                f"original {subject} is gone: got uid {live.uid}, wanted {owner.uid}"
            )
        if live.deletion_timestamp is not None:
            raise ConflictError(f"{subject} has just been deleted at {live.deletion_timestamp}")

    async def _adopt(self, owner: ObjectMeta, meta: ObjectMeta) -> bool:
        reference = controller_reference(self._owners, owner)
        changes: dict[str, Any] = {"ownerReferences": [reference], "uid": meta.uid}
        if self._finalizer is not None:
            changes["finalizers"] = [self._finalizer]
        try:
            await self._patch(meta, {"metadata": changes})
        except NotFoundError:
            return False
        return True

    async def _release(self, owner: ObjectMeta, meta: ObjectMeta) -> None:
        removal = {"$patch": "delete", "uid": owner.uid}
        try:
            await self._patch(meta, {"metadata": {"ownerReferences": [removal], "uid": meta.uid}})
        except (NotFoundError, InvalidError):
            return  # It is gone already, or another object has its name, or it has no owners.

    async def _patch(self, meta: ObjectMeta, patch: dict[str, Any]) -> None:
        await self._client.patch(
            self._owned, meta.name, patch, meta.namespace, kind=PatchType.STRATEGIC
        )


def without_owners(meta: ObjectMeta, uids: Iterable[str]) -> list[dict[str, Any]]:
    """Return the object's owner references without these owners, as JSON."""
    gone = frozenset(uids)
    return [
        msgspec.to_builtins(reference)
        for reference in meta.owner_references
        if reference.uid not in gone
    ]
