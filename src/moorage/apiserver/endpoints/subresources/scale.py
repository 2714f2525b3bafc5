"""Subresource `scale`: the replica count of any scalable kind in one schema.

Source: autoscaling/v1 `Scale`; API docs "Scale subresource" of custom resources.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from moorage.api import labels
from moorage.api.clock import Clock
from moorage.api.errors import BadRequestError, InternalError, InvalidError
from moorage.apiserver.endpoints.bodies import BodyDecoder
from moorage.apiserver.endpoints.call import Call
from moorage.apiserver.endpoints.negotiation import PARTIAL, TABLE
from moorage.apiserver.endpoints.options import write_request
from moorage.apiserver.endpoints.patching import Patcher
from moorage.apiserver.endpoints.replies import Reply, document_reply
from moorage.apiserver.endpoints.representations import include_object
from moorage.apiserver.registry.codec import Media
from moorage.apiserver.registry.columns.shared import CUSTOM_SCALE, SCALE
from moorage.apiserver.registry.columns.table import render_table
from moorage.apiserver.registry.kind import Obj, ScalePaths
from moorage.apiserver.registry.kinds.unstored import validate_scale
from moorage.apiserver.registry.objects import Objects
from moorage.apiserver.registry.request import Form

SCALE_TYPE = "io.k8s.api.autoscaling.v1.Scale"
_API_VERSION = "autoscaling/v1"


class ScaleSubresource(msgspec.Struct, frozen=True):
    """Reads and writes the replicas of any kind that has a scale."""

    decoder: BodyDecoder
    objects: Objects
    patcher: Patcher
    clock: Clock

    async def get(self, call: Call) -> Reply:
        item = await self.objects.read(call.kind, call.namespace, call.target.name)
        paths, obj = call.kind.scale_paths, item.obj
        if call.kind.is_custom and _replicas(obj, paths.spec_replicas) is None:
            path = _dotted(paths.spec_replicas)
            raise InternalError.of(f"the spec replicas field {path} does not exist")
        return self._reply(call, scale_of(obj, paths))

    async def update(self, call: Call) -> Reply:
        paths = call.kind.scale_paths
        request = write_request(
            call.user, call.user_agent, call.query, "UpdateOptions", annotations=call.annotations
        )
        wanted = await self.decoder.decode_as(call, request, "Scale", _API_VERSION, SCALE_TYPE)
        updated = await self.objects.update(
            request,
            *call.place,
            lambda old: _scaled(old, wanted, paths),
            subresource="scale",
            form=_form(paths),
        )
        return self._reply(call, scale_of(updated.item.obj, paths), request.warnings)

    async def patch(self, call: Call) -> Reply:
        """Answer PATCH of a `/scale`."""
        paths = call.kind.scale_paths
        request, change = await self.patcher.prepare(call, "Scale", _API_VERSION, SCALE_TYPE)

        def make_new(old: Obj | None) -> Obj:
            assert old is not None
            scale = change(scale_of(old, paths))
            is_set = _replicas(old, paths.spec_replicas) is not None
            if call.kind.is_custom and not is_set and "replicas" not in scale.get("spec", {}):
                raise BadRequestError(
                    f"the spec replicas field {_dotted(paths.spec_replicas)} cannot be empty"
                )
            return _scaled(old, scale, paths)

        updated = await self.objects.update(
            request,
            *call.place,
            make_new,
            subresource="scale",
            form=_form(paths),
            is_patch=True,
        )
        return self._reply(call, scale_of(updated.item.obj, paths), request.warnings)

    def _reply(self, call: Call, scale: Obj, warnings: Sequence[str] = ()) -> Reply:
        document: Obj = {"kind": "Scale", "apiVersion": _API_VERSION, **scale}
        form = call.form()
        if form.as_ and form.media is Media.PROTOBUF:
            form = call.form(allows_protobuf=False)
        if form.as_ == TABLE:
            document = render_table(
                CUSTOM_SCALE if call.kind.is_custom else SCALE,
                [scale],
                now=self.clock.now().timestamp(),
                include=include_object(call.query),
                list_metadata={"resourceVersion": scale["metadata"].get("resourceVersion", "")},
                version=form.version,
                as_served=lambda obj: {"kind": "Scale", "apiVersion": _API_VERSION, **obj},
            )
        elif form.as_:
            document = {
                "kind": PARTIAL,
                "apiVersion": f"meta.k8s.io/{form.version}",
                "metadata": scale["metadata"],
            }
        return document_reply(document, form, type_name=SCALE_TYPE, warnings=list(warnings))


def _form(paths: ScalePaths) -> Form:
    """Return how webhooks and policies see a scaled object."""
    return Form(
        kind="Scale",
        group="autoscaling",
        version="v1",
        type=SCALE_TYPE,
        show=lambda obj: scale_of(obj, paths),
        put=lambda obj, scale: _scaled(copy.deepcopy(obj), scale, paths),
    )


def scale_of(obj: Obj, paths: ScalePaths) -> Obj:
    """Return the Scale of an object.

    Raises InternalError for replicas that are no number and for a selector that cannot be parsed.
    """
    meta = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Obj = {"replicas": _replicas(obj, paths.status_replicas) or 0}
    if text := _selector_text(_value_at(obj, paths.selector) if paths.selector else None):
        status["selector"] = text
    replicas = _replicas(obj, paths.spec_replicas)
    return {
        "metadata": {field: meta[field] for field in kept if field in meta},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def _selector_text(selector: Any) -> str:
    if isinstance(selector, str):
        return selector
    try:
        return str(labels.from_object(selector))
    except ValueError as error:
        raise InternalError.of(str(error)) from error


def _value_at(obj: Obj, path: tuple[str, ...]) -> Any:
    value: Any = obj
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _replicas(obj: Obj, path: tuple[str, ...]) -> int | None:
    value = _value_at(obj, path)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise InternalError.of(f"{_dotted(path)} accessor error: {value!r} is not an integer")


def _dotted(path: tuple[str, ...]) -> str:
    return json.dumps("." + ".".join(path))


def _scaled(old: Obj | None, scale: Obj, paths: ScalePaths) -> Obj:
    assert old is not None
    meta = scale.get("metadata", {})
    name = old["metadata"]["name"]
    if meta.get("name", name) != name:
        raise BadRequestError(
            f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
        )
    errors = validate_scale(scale)
    if errors:
        raise InvalidError.of("Scale", name, errors, group="autoscaling")
    _put(old, paths.spec_replicas, scale.get("spec", {}).get("replicas", 0))
    if meta.get("resourceVersion"):
        old["metadata"]["resourceVersion"] = meta["resourceVersion"]
    return old


def _put(obj: Obj, path: tuple[str, ...], value: int) -> None:
    *above, last = path
    for name in above:
        inner = obj.setdefault(name, {})
        if not isinstance(inner, dict):
            raise InternalError.of(f"{_dotted(path)}: value cannot be set: {name} is no object")
        obj = inner
    obj[last] = value
