"""Admission requests: what webhooks and expressions see of a write.

Source: API docs `AdmissionRequest`; apiserver `admission/plugin/cel`, `webhook/request`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from moorage.api import bounds
from moorage.api.errors import ForbiddenError, InternalError, StatusError
from moorage.apiserver.cel.messages import PolicyInput
from moorage.apiserver.registry.codec import Codec
from moorage.apiserver.registry.kind import Obj, Served
from moorage.apiserver.registry.request import Attributes
from moorage.apiserver.registry.schema.errors import DecodeError
from moorage.apiserver.registry.worker import Worker

# Admission refusals: the 403 that plugins raise.


def refused(attributes: Attributes, why: str) -> ForbiddenError:
    """Return a 403 about the object, named by its name or its `generateName` prefix."""
    meta = (attributes.obj or {}).get("metadata", {})
    name = attributes.name or meta.get("name") or meta.get("generateName") or "Unknown"
    return ForbiddenError.of(attributes.kind.plural, name, why, group=attributes.kind.group)


_GROUP = "admissionregistration.k8s.io"
_EXEMPT = frozenset(
    ("validatingadmissionpolicies", "validatingadmissionpolicybindings",
     "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
     "validatingwebhookconfigurations", "mutatingwebhookconfigurations")
)  # fmt: skip

_NAMESPACE_METADATA = (
    "name", "generateName", "uid", "resourceVersion", "generation", "creationTimestamp",
    "deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "finalizers",
)  # fmt: skip


def is_shown(attributes: Attributes) -> bool:
    """Return whether webhooks and policies see a write.

    They see neither what the server writes itself nor those objects by which they are configured,
    since a configuration must not forbid its own repair.
    """
    kind = attributes.kind
    if attributes.request.is_own:
        return False
    return kind.group != _GROUP or kind.plural not in _EXEMPT


def input_of(attributes: Attributes, served: Served, namespace: Obj | None) -> PolicyInput:
    """Return the variables for a policy that selects a write in a version."""
    return PolicyInput(
        request=request_of(attributes, served),
        object=shown(attributes, served, attributes.obj),
        old_object=shown(attributes, served, attributes.old),
        namespace=None if namespace is None else _namespace(namespace),
    )


P = ParamSpec("P")
R = TypeVar("R")


async def in_version(
    attributes: Attributes,
    served: Served,
    step: Callable[P, R],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> R:
    """Run a step that sees a write in a served version; in a thread where that asks a webhook.

    Raises what the step raises, StatusError for an object that cannot be converted.
    """
    view = attributes.kind.view
    if view is None or not served.is_remote:
        return step(*args, **kwargs)
    return await view.run(step, *args, **kwargs)


def versioned(kind: str, served: Served, obj: Obj | None) -> Obj | None:
    """Return a stored object in a served version, with apiVersion and kind."""
    if obj is None:
        return None
    if served.from_storage is not None:
        obj = served.from_storage(obj)
    return {"apiVersion": served.api_version, "kind": kind, **obj}


def shown(attributes: Attributes, served: Served, obj: Obj | None) -> Obj | None:
    """Return an object of a write as webhooks and policies see it in a version."""
    form = attributes.form
    if form is None or obj is None:
        return versioned(attributes.kind.name, served, obj)
    return {"apiVersion": form.api_version, "kind": form.kind, **form.show(obj)}


def request_of(attributes: Attributes, served: Served) -> dict[str, Any]:
    """Return the AdmissionRequest of a write in a version, without UID, objects and options.

    Texts, lists and maps that are empty are left out, as upstream's `omitempty` does: clients ask
    whether `subResource` is there. `dryRun` and the parts of kinds and resources always are.
    """
    request, kind = attributes.request, attributes.kind
    user, form = request.user, attributes.form
    own = None if form is None else {
        "group": form.group, "version": form.version, "kind": form.kind
    }  # fmt: skip
    user_info = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
    }
    fields: dict[str, Any] = {
        "kind": own or _kind(kind.name, served),
        "resource": _resource(kind.plural, served),
        "subResource": attributes.subresource,
        "requestKind": own or _kind(kind.name, attributes.served),
        "requestResource": _resource(kind.plural, attributes.served),
        "requestSubResource": attributes.subresource,
        "name": attributes.name,
        "namespace": attributes.namespace or _own_namespace(attributes),
        "operation": attributes.operation,
        "userInfo": {key: value for key, value in user_info.items() if value},
        "dryRun": request.is_dry_run,
    }
    return {key: value for key, value in fields.items() if value != ""}


def _own_namespace(attributes: Attributes) -> str:
    """Return the name of a Namespace, which upstream's request for it names as its namespace."""
    kind = attributes.kind
    return attributes.name if (kind.group, kind.plural) == ("", "namespaces") else ""


def _kind(name: str, served: Served) -> dict[str, str]:
    return {"group": served.group, "version": served.version, "kind": name}


def _resource(plural: str, served: Served) -> dict[str, str]:
    return {"group": served.group, "version": served.version, "resource": plural}


def _namespace(namespace: Obj) -> Obj:
    metadata = namespace["metadata"]
    return {
        "metadata": {key: metadata[key] for key in _NAMESPACE_METADATA if key in metadata},
        "spec": namespace.get("spec", {}),
        "status": namespace.get("status", {}),
    }


# Patched objects: what webhooks and policies make of an object, as a legal object again.
#
#     stored object ─▶ form in a version ─▶ change ─▶ decoded, with defaults ─▶ stored object
#
# Name, namespace, UID, times and managed fields stay as they are. Source: apiserver
# `webhook/mutating`, `policy/mutating`.

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
