"""Patched objects: what webhooks and policies make of an object, as a legal object again.

    stored object ─▶ form in a version ─▶ change ─▶ decoded, with defaults ─▶ stored object

Name, namespace, UID, times and managed fields stay as they are. Source: apiserver
`webhook/mutating`, `policy/mutating`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from moorage.api import bounds
from moorage.api.errors import InternalError, StatusError
from moorage.apiserver.admission.admission_request import in_version, shown
from moorage.apiserver.registry.codec import Codec
from moorage.apiserver.registry.kind import Obj, Served
from moorage.apiserver.registry.request import Attributes
from moorage.apiserver.registry.schema.errors import DecodeError
from moorage.apiserver.registry.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")

Change = Callable[[Obj], object]
"""Returns the changed object, which it may have been given as it was."""

_SYSTEM_FIELDS = (
    "name", "generateName", "namespace", "uid", "resourceVersion", "generation",
    "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields",
)  # fmt: skip
"""Metadata that stays as it is, whatever a change does."""


class Patching:
    """Applies changes to the objects of writes."""

    def __init__(self, codec: Codec, worker: Worker) -> None:
        self._codec = codec
        self._worker = worker

    async def run(
        self, attributes: Attributes, step: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run a step of a change, in the worker's thread if the write is large."""
        return await self._worker.run(attributes.request, step, *args, **kwargs)

    async def apply(
        self,
        attributes: Attributes,
        served: Served,
        change: Change,
        *,
        is_strict: bool = False,
    ) -> bool:
        """Apply a change to the object in a version. Returns whether it is another object then.

        Raises InternalError for a result that is no legal object, and what the change raises.
        `is_strict`: fields that its type does not have make it illegal; else they are dropped.
        """
        obj = attributes.obj
        assert obj is not None, "a deletion has no object to change"
        if served.is_remote:
            new = await in_version(
                attributes, served, self._changed, attributes, served, change, is_strict
            )
        else:
            new = await self._worker.run(
                attributes.request, self._changed, attributes, served, change, is_strict
            )
        is_changed = bool(new != obj)
        obj.clear()
        obj.update(new)
        return is_changed

    def _changed(
        self, attributes: Attributes, served: Served, change: Change, is_strict: bool
    ) -> Obj:
        """Return the object after a change, with defaults, in the storage version."""
        old, form = attributes.obj, attributes.form
        assert old is not None
        whole = shown(attributes, served, old)
        assert whole is not None
        changed = change(whole)
        if excess := bounds.exceeded(changed):
            raise InternalError.of(f"the patched object cannot be taken: {excess}")
        new = _of_the_same_kind(changed, whole)
        try:
            if form is not None:
                return self._put(attributes, new, is_strict)
            fitted = self._fitted(served.type, new, is_strict)
        except DecodeError as error:
            raise InternalError.of(f"the patched object does not decode: {error}") from error
        stored = self._codec.to_storage(attributes.kind, served, fitted)
        _keep_system_fields(stored, old)
        return stored

    def _fitted(self, type_name: str, new: Obj, is_strict: bool) -> Obj:
        decoded = self._codec.fit_type(type_name, new)
        if is_strict and decoded.complaints:
            raise InternalError.of(f"strict decoding error: {', '.join(decoded.complaints)}")
        return decoded.obj

    def _put(self, attributes: Attributes, new: Obj, is_strict: bool) -> Obj:
        """Return the object after a change of its form."""
        form, old = attributes.form, attributes.obj
        assert form is not None
        assert old is not None
        fitted = self._fitted(form.type, new, is_strict) if form.type else _bare(new)
        _keep_system_fields(fitted, form.show(old))
        try:
            return form.put(old, fitted)
        except StatusError as error:
            raise InternalError.of(error.message) from error


def _bare(obj: Obj) -> Obj:
    return {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}


def _of_the_same_kind(new: object, old: Obj) -> Obj:
    """Return a changed object. Raises InternalError if it is of another kind, or no object."""
    if not isinstance(new, dict) or not isinstance(new.get("metadata", {}), dict):
        raise InternalError.of("the patched object has no metadata")
    if "metadata" in old and "metadata" not in new:
        raise InternalError.of("the patched object has no metadata")
    for field in ("apiVersion", "kind"):
        if new.get(field) != old[field]:
            raise InternalError.of(f"the patch changes {field}")
    return new


def _keep_system_fields(new: Obj, old: Obj) -> None:
    was = old.get("metadata", {})
    meta = new.setdefault("metadata", {}) if "metadata" in old else new.get("metadata", {})
    for field in _SYSTEM_FIELDS:
        if field in was:
            meta[field] = was[field]
        else:
            meta.pop(field, None)
