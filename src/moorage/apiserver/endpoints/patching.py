"""PATCH: four media types, one update path.

A patch is applied to the object in the version of the URL; the result is validated like a body and
written as an update. Source: API docs "Updates to existing resources"; field validation KEP-2885.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from moorage.api import bounds
from moorage.api.errors import (
    BadRequestError,
    ConflictError,
    FieldError,
    InvalidError,
    NotFoundError,
    StatusError,
    TooLargeError,
    UnsupportedMediaTypeError,
)
from moorage.apiserver.endpoints.call import Call
from moorage.apiserver.endpoints.options import write_request
from moorage.apiserver.endpoints.routing import is_true
from moorage.apiserver.registry.codec import Codec, Media
from moorage.apiserver.registry.kind import Kind, Obj, Served
from moorage.apiserver.registry.objects import Objects, Updated
from moorage.apiserver.registry.ownership import Ownership
from moorage.apiserver.registry.patch import (
    TypedPatchError,
    apply_json_patch,
    merge_patch,
    strategic_merge,
)
from moorage.apiserver.registry.patch.json_patch import MAX_OPERATIONS
from moorage.apiserver.registry.patch.strategic import go_map
from moorage.apiserver.registry.request import Request
from moorage.apiserver.registry.schema.decode import json_name, parse_json, repeated_fields
from moorage.apiserver.registry.schema.errors import DecodeError
from moorage.apiserver.registry.worker import Worker, is_large
from moorage.apiserver.registry.yaml_body import parse_yaml

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

PATCH_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)

_BOOKKEEPING = frozenset({"finalizers", "ownerReferences", "resourceVersion", "uid"})

Change = Callable[[Obj], Obj]
"""An object of the patched version → the patched object."""


class Patcher(msgspec.Struct, frozen=True):
    """Handles PATCH requests."""

    codec: Codec
    worker: Worker
    objects: Objects
    ownership: Ownership

    async def patch(self, call: Call, subresource: str = "") -> tuple[Request, Updated]:
        """Patch an object, or a subresource that is written like the object."""
        if _media(call) == APPLY_PATCH:
            return await self._apply(call, subresource)
        kind, served = self._kind(call)
        request, change = await self.prepare(call, kind.name, served.api_version, served.type)

        def make_new(old: Obj | None) -> Obj:
            assert old is not None
            versioned = self.codec.from_storage(served, old)
            new = self.codec.to_storage(kind, served, change(versioned))
            _check_unchanged_name(new, call.target.name)
            return new

        updated = await self.objects.update(
            request,
            kind,
            served,
            call.namespace,
            call.target.name,
            make_new,
            subresource=subresource,
            is_patch=True,
        )
        return request, updated

    def _kind(self, call: Call) -> tuple[Kind, Served]:
        """Return the kind in whose version an object is patched: nearly always that of the URL.

        Finalizers and owners are the same in all versions of a custom resource. A patch of these
        alone is made in the version it is stored in, so that garbage collection and the end of a
        namespace do not depend on a conversion webhook.
        """
        view = call.kind.view
        if view is not None and view.is_remote and _is_bookkeeping(call.body):
            item = self.objects.find(call.kind, call.namespace, call.target.name)
            if item is not None and (kept := view.kept(item)) is not None:
                return kept, kept.storage
        return call.kind, call.served

    async def prepare(
        self, call: Call, name: str, api_version: str, type_name: str
    ) -> tuple[Request, Change]:
        """Return the write request, and the patch as a function on objects of one type."""
        media = _media(call)
        request = write_request(
            call.user, call.user_agent, call.query, "PatchOptions", annotations=call.annotations
        )
        request.is_large = is_large(call.body, Media.JSON)
        patch, complaints = await self.worker.run(request, parse_patch, call.body, media)
        if isinstance(patch, list) and len(patch) > MAX_OPERATIONS:
            raise TooLargeError(
                f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, "
                f"got {len(patch)}"
            )

        def shown(new: Any) -> str:
            return go_map(patch) if media == STRATEGIC_PATCH else _json(new)

        def change(obj: Obj) -> Obj:
            whole = {"kind": name, "apiVersion": api_version, **obj}
            new = self._patched(media, type_name, whole, patch)
            # Operations can nest values that earlier ones added, and a large object can grow.
            if (request.is_large or media == JSON_PATCH) and (excess := excess_of(new)):
                raise BadRequestError(f"the patched object cannot be taken: {excess}")
            if not isinstance(new, dict):
                raise _unfit(shown(new), "json: cannot unmarshal into an object")
            if media != STRATEGIC_PATCH and new.get("kind") != name:
                raise _unfit(
                    shown(new),
                    f'no kind "{new.get("kind", "")}" is registered for version "{api_version}" '
                    'in scheme "pkg/api/legacyscheme/scheme.go:30"',
                )
            try:
                fitted = self.codec.fit_type(type_name, new)
            except DecodeError as error:
                raise _unfit(shown(new), str(error)) from error
            settle_complaints(request, [*complaints, *fitted.complaints], lambda: shown(new))
            return fitted.obj

        return request, change

    def _patched(self, media: str, type_name: str, obj: Obj, patch: Any) -> Any:
        match media:
            case "application/json-patch+json":
                return apply_json_patch(obj, patch)
            case "application/merge-patch+json":
                return merge_patch(obj, patch)
            case _:
                return strategic_merge(self.codec.schema, type_name, obj, patch)

    async def _apply(self, call: Call, subresource: str) -> tuple[Request, Updated]:
        request = write_request(
            call.user,
            call.user_agent,
            call.query,
            "PatchOptions",
            is_apply=True,
            annotations=call.annotations,
        )
        force = is_true(call.query, "force")
        request.is_large = is_large(call.body, Media.YAML)
        config = await self.worker.run(request, self._config, call)

        def make_new(live: Obj | None) -> Obj:
            if live is None and subresource:
                raise NotFoundError.of(call.kind.plural, call.target.name, group=call.kind.group)
            if live is None and config["metadata"].get("uid"):
                raise _uid_mismatch(config["metadata"]["uid"])
            try:
                merged = self.ownership.apply(
                    request, call.kind, call.served, live, config, subresource, force=force
                )
            except TypedPatchError as error:
                raise _untyped(call, str(error)) from error
            try:
                fitted = self.codec.fit_type(call.served.type, merged).obj
            except DecodeError as error:
                raise StatusError(f"failed to convert the applied object: {error}") from error
            return self.codec.to_storage(call.kind, call.served, fitted)

        updated = await self.objects.update(
            request,
            *call.place,
            make_new,
            subresource=subresource,
            authorize_create=None if subresource else partial(call.require, "create"),
            is_patch=True,
            is_applied=True,
        )
        return request, updated

    def _config(self, call: Call) -> Obj:
        """Return the applied configuration, canonical but without defaults."""
        kind, served = call.kind, call.served
        try:
            document, repeated = parse_yaml(call.body)
        except DecodeError as error:
            raise BadRequestError(f"error decoding YAML: {error}") from error
        if repeated:
            raise StatusError(f"error decoding YAML: {repeated[0]}")
        if not isinstance(document, dict):
            raise BadRequestError("error decoding YAML: not an object")
        given = (document.get("apiVersion"), document.get("kind"))
        if given != (served.api_version, kind.name):
            raise BadRequestError(f"invalid object type: /{given[0]}, Kind={given[1]}")
        metadata = document.setdefault("metadata", {})
        if not isinstance(metadata, dict):
            raise BadRequestError("error decoding YAML: metadata is not an object")
        if metadata.get("managedFields"):
            raise BadRequestError("metadata.managedFields must be nil")
        name = metadata.setdefault("name", call.target.name)
        if name != call.target.name:
            raise BadRequestError(
                f"the name of the object ({name}) does not match the name on the URL "
                f"({call.target.name})"
            )
        if kind.is_namespaced:
            metadata.setdefault("namespace", call.namespace)
        try:
            decoded = self.codec.fit_partial(served.type, document)
        except DecodeError as error:
            raise _untyped(call, str(error)) from error
        if decoded.complaints:
            field = decoded.complaints[0].partition('"')[2].rstrip('"')
            raise _untyped(call, f".{field}: field not declared in schema")
        return decoded.obj


def _is_bookkeeping(body: bytes) -> bool:
    """Return whether a merge patch changes nothing but finalizers and owners."""
    try:
        patch = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    metadata = patch.get("metadata") if isinstance(patch, dict) and len(patch) == 1 else None
    return isinstance(metadata, dict) and metadata.keys() <= _BOOKKEEPING


def excess_of(obj: Any) -> str:
    """Return the limit that an object exceeds, managed fields aside; empty for none."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    if not isinstance(metadata, dict):
        return bounds.exceeded(obj)
    own = {key: value for key, value in metadata.items() if key != "managedFields"}
    return bounds.exceeded({**obj, "metadata": own})


def _media(call: Call) -> str:
    """Return the media type of the patch. Raises UnsupportedMediaTypeError."""
    media = call.http.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if media == STRATEGIC_PATCH and call.kind.is_custom:
        supported = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)
        raise UnsupportedMediaTypeError(
            "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join(supported)
        )
    if media not in PATCH_TYPES:
        raise UnsupportedMediaTypeError("415: Unsupported Media Type", {})
    return media


def parse_patch(body: bytes, media: str) -> tuple[Any, list[str]]:
    """Return a patch in JSON and a complaint per repeated key. Raises BadRequestError."""
    prefix = "" if media == STRATEGIC_PATCH else "error decoding patch: "
    try:
        patch = parse_json(body)
    except DecodeError as error:
        raise BadRequestError(f"{prefix}{error}") from error
    if media != JSON_PATCH and not isinstance(patch, dict):
        raise BadRequestError(
            f"{prefix}json: cannot unmarshal {json_name(patch)} into Go value of type "
            "map[string]interface {}"
        )
    try:
        return patch, repeated_fields(body, patch)
    except DecodeError as error:
        raise BadRequestError(f"{prefix}{error}") from error


def settle_complaints(request: Request, complaints: list[str], shown: Callable[[], str]) -> None:
    """Apply `fieldValidation` to the complaints of decoding the result."""
    if not complaints or request.field_validation == "Ignore":
        return
    if request.field_validation == "Strict":
        raise _unfit(shown(), f"strict decoding error: {', '.join(complaints)}")
    for complaint in complaints:
        request.warn(complaint)


def _unfit(shown: str, why: str) -> InvalidError:
    error = FieldError.invalid("patch", shown, why)
    return InvalidError(
        f' "" is invalid: {error}',
        {"causes": [{"reason": error.kind, "message": error.text, "field": error.field}]},
    )


def _untyped(call: Call, why: str) -> StatusError:
    served = call.served
    return StatusError(
        f"failed to create typed patch object (/{call.target.name}; {served.group}/"
        f"{served.version}, Kind={call.kind.name}): {why}"
    )


def _json(document: Any) -> str:
    return msgspec.json.encode(document).decode()


def _check_unchanged_name(obj: Obj, name: str) -> None:
    given = obj["metadata"].get("name", name)
    if given != name:
        raise BadRequestError(
            f"the name of the object ({given}) does not match the name on the URL ({name})"
        )


def _uid_mismatch(uid: str) -> StatusError:
    return ConflictError(
        f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
    )
