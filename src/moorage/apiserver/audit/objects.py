"""Objects in audit events: the bodies of requests and answers as JSON, in the log's thread.

An object that cannot be shown (a body that is no object, a list that was encoded while it was sent)
is left out under the annotation that upstream sets on truncated events.
"""

from __future__ import annotations

from typing import Any

import msgspec

from moorage.api.errors import StatusError
from moorage.apiserver.audit.policy import Level, Recorded
from moorage.apiserver.endpoints.call import Call
from moorage.apiserver.endpoints.replies import Reply
from moorage.apiserver.registry.codec import Codec, Media
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.schema.errors import DecodeError
from moorage.apiserver.registry.yaml_body import parse_yaml

_TRUNCATED = "audit.k8s.io/truncated"
_UNREADABLE = (StatusError, DecodeError, ValueError, RecursionError)
_WRITES = frozenset({"create", "update"})


class RecordedObjects(msgspec.Struct, frozen=True):
    """Decodes bodies into the objects of events."""

    codec: Codec

    def of_request(self, call: Call) -> Any:
        """Return the body of a request. Raises StatusError, ValueError."""
        if call.verb == "patch":
            return _patch(call.body)
        media = call.media()
        if media is Media.JSON:
            return msgspec.json.decode(call.body)
        if call.verb not in _WRITES:
            raise ValueError("the body has no JSON form")
        return self._decoded(call, call.body, media)

    def of_reply(self, call: Call, reply: Reply) -> Any:
        """Return the object of an answer. Raises StatusError, ValueError."""
        if reply.long is not None:
            raise ValueError("the body is encoded while it is sent")
        kind = reply.content_type.partition(";")[0]
        if reply.message_type or kind == Media.JSON.value:
            return msgspec.json.decode(reply.body)
        media = Media.PROTOBUF if kind == Media.PROTOBUF.value else Media.YAML
        return self._decoded(call, reply.body, media)

    def _decoded(self, call: Call, body: bytes, media: Media) -> Any:
        kind, version, type_ = call.kind.name, call.served.api_version, call.served.type
        part = call.kind.subresources.get(call.target.subresource)
        if part is not None and part.type:
            kind, type_ = part.kind, part.type
            version = f"{part.group}/{part.version}" if part.group else part.version or "v1"
        decoded = self.codec.decode_as(kind, version, type_, body, media)
        return {"kind": kind, "apiVersion": version, **decoded.obj}


def object_fields(
    objects: RecordedObjects, recorded: Recorded, call: Call | None, reply: Reply | None
) -> Obj:
    """Return the fields of an event that are taken from bodies, and annotations about them."""
    fields: Obj = {}
    if call is None:
        return fields
    is_whole = True
    if call.body.strip():
        try:
            sent = objects.of_request(call)
        except _UNREADABLE:
            # Refused bodies are seen here too.
            is_whole = recorded.level < Level.request
        else:
            if call.verb in _WRITES:
                fields["objectRef"] = _reference(sent)
            if recorded.level >= Level.request:
                fields["requestObject"] = _shown(sent, recorded)
    if reply is not None and recorded.level >= Level.request_response:
        try:
            fields["responseObject"] = _shown(objects.of_reply(call, reply), recorded)
        except _UNREADABLE:
            is_whole = False
    if reply is not None and reply.body.startswith(b'{"kind":"Status"'):
        fields["responseStatus"] = msgspec.json.decode(reply.body)
    if not is_whole:
        fields["annotations"] = {_TRUNCATED: "true"}
    return fields


def _patch(body: bytes) -> Any:
    """Return a patch. One to apply may be YAML."""
    try:
        return msgspec.json.decode(body)
    except ValueError:
        return parse_yaml(body)[0]


def _reference(obj: Any) -> Obj:
    """Return name and version of an object, for the fields that the path does not give."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    if not isinstance(metadata, dict):
        return {}
    names = ("namespace", "name", "uid", "resourceVersion")
    return {name: text for name in names if isinstance(text := metadata.get(name), str) and text}


def _shown(obj: Any, recorded: Recorded) -> Any:
    if recorded.omits_managed_fields and isinstance(obj, dict):
        items = obj.get("items") if isinstance(obj.get("items"), list) else ()
        rows = obj.get("rows") if isinstance(obj.get("rows"), list) else ()
        shown = [row.get("object") for row in rows or () if isinstance(row, dict)]
        for entry in (obj, *(items or ()), *shown):
            metadata = entry.get("metadata") if isinstance(entry, dict) else None
            if isinstance(metadata, dict):
                metadata.pop("managedFields", None)
    return obj
