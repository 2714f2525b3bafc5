"""Subresource `scale`: the replica count of any scalable kind in one schema.

Source: autoscaling/v1 `Scale`.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from moorage.api import labels
from moorage.api.errors import BadRequestError, InvalidError
from moorage.apiserver.call import Call
from moorage.apiserver.decoding import BodyDecoder
from moorage.apiserver.options import write_request
from moorage.apiserver.patching import Patcher
from moorage.apiserver.replies import Reply, formed
from moorage.registry.kind import Obj
from moorage.registry.objects import Objects
from moorage.registry.validation.subresources import validate_scale

SCALE_TYPE = "io.k8s.api.autoscaling.v1.Scale"
_API_VERSION = "autoscaling/v1"


@dataclass(frozen=True, slots=True)
class ScaleSubresource:
    """Reads and writes `spec.replicas` of any kind that has a scale."""

    decoder: BodyDecoder
    objects: Objects
    patcher: Patcher

    async def get(self, call: Call) -> Reply:
        item = self.objects.get(call.kind, call.namespace, call.target.name)
        return self._reply(call, scale_of(item.obj))

    async def update(self, call: Call) -> Reply:
        request = write_request(call.user, call.user_agent, call.query, "UpdateOptions")
        wanted = await self.decoder.decode_as(call, request, "Scale", _API_VERSION, SCALE_TYPE)
        updated = await self.objects.update(
            request,
            *call.place,
            lambda old: _scaled(old, wanted),
            subresource="scale",
        )
        return self._reply(call, scale_of(updated.item.obj))

    async def patch(self, call: Call) -> Reply:
        """Answer PATCH of a `/scale`."""
        request, change = await self.patcher.prepare(call, "Scale", _API_VERSION, SCALE_TYPE)

        def make_new(old: Obj | None) -> Obj:
            assert old is not None
            return _scaled(old, change(scale_of(old)))

        updated = await self.objects.update(
            request,
            *call.place,
            make_new,
            subresource="scale",
            is_patch=True,
        )
        return self._reply(call, scale_of(updated.item.obj))

    def _reply(self, call: Call, scale: Obj) -> Reply:
        document = {"kind": "Scale", "apiVersion": _API_VERSION, **scale}
        return formed(msgspec.json.encode(document) + b"\n", call.form())


def scale_of(obj: Obj) -> Obj:
    """Return the Scale of an object with replicas."""
    meta = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    selector = labels.from_object(obj["spec"].get("selector"))
    status: Obj = {"replicas": obj.get("status", {}).get("replicas", 0)}
    if not selector.is_everything:
        status["selector"] = str(selector)
    spec: Obj = {}
    if obj["spec"].get("replicas"):
        spec["replicas"] = obj["spec"]["replicas"]
    return {
        "metadata": {field: meta[field] for field in kept if field in meta},
        "spec": spec,
        "status": status,
    }


def _scaled(old: Obj | None, scale: Obj) -> Obj:
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
    old["spec"]["replicas"] = scale.get("spec", {}).get("replicas", 0)
    old["metadata"]["resourceVersion"] = meta.get("resourceVersion", "")
    return old
