"""Object codec: between the bytes of a served version and objects in the storage version.

    body ──decode──▶ canonical object in the storage version
    stored bytes ──encode──▶ bytes in the requested version

Where a version differs from the stored one only by name, encoding is a prefix and a copy.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

import msgspec

from moorage.api.errors import BadRequestError, UnsupportedMediaTypeError
from moorage.apiserver.registry.custom.decoding import CustomType, check_custom_type
from moorage.apiserver.registry.custom.structure import OBJECT_META, Structure
from moorage.apiserver.registry.kind import Kind, Obj, Served
from moorage.apiserver.registry.messages import Messages
from moorage.apiserver.registry.schema.decode import (
    JsonDecoder,
    json_name,
    parse_json,
    repeated_fields,
)
from moorage.apiserver.registry.schema.errors import DecodeError
from moorage.apiserver.registry.schema.normalize import Normalizer
from moorage.apiserver.registry.schema.protobuf import ProtobufDecoder, open_envelope
from moorage.apiserver.registry.schema.protobuf_encoder import ProtobufEncoder, enveloped
from moorage.apiserver.registry.schema.types import Field, Schema, Type
from moorage.apiserver.registry.stored import Stored
from moorage.apiserver.registry.yaml_body import parse_yaml

_SUMMARY_BYTES = 30
RESOURCE = Type(
    name="moorage.apiserver.registry.Resource",
    fields=(Field(name="metadata", kind="object", type=OBJECT_META, number=1, is_always=True),),
)
"""What every resource has: the type by which the metadata of custom resources is decoded.

Its message is that of PartialObjectMetadata, and of a bookmark of any kind.
"""


class Media(Enum):
    """Media type of a body."""

    JSON = "application/json"
    YAML = "application/yaml"
    PROTOBUF = "application/vnd.kubernetes.protobuf"


class Decoded(msgspec.Struct):
    """The object of a body and the complaints of strict field validation."""

    obj: Obj
    complaints: list[str] = msgspec.field(default_factory=list)


class Codec:
    """Decodes and encodes the objects of one schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._json = JsonDecoder(schema)
        self._protobuf = ProtobufDecoder(schema)
        self._protobuf_encoder = ProtobufEncoder(schema)
        self._messages = Messages()
        self._normalizer = Normalizer(schema)
        self._partial_normalizer = Normalizer(schema, completes=False)
        self._prefixes: dict[tuple[str, str], bytes] = {}
        self._custom: dict[str, CustomType] = {}
        schema.add((RESOURCE,))

    def add_custom(self, type_: CustomType, types: Iterable[Type]) -> None:
        """Add the type of a custom resource, or replace it. `types` are its merge types."""
        self.schema.add(types)
        self._custom[type_.name] = type_

    def remove_custom(self, name: str, types: Iterable[str]) -> None:
        """Remove the type of a custom resource and its merge types."""
        self._custom.pop(name, None)
        self.schema.remove(types)

    def decode(self, kind: Kind, served: Served, body: bytes, media: Media) -> Decoded:
        """Decode a create or update body and return the defaulted object in the storage version.

        Raises BadRequestError when the body is not an object of that kind and version.
        """
        decoded = self.decode_as(kind.name, served.api_version, served.type, body, media)
        decoded.obj = self.to_storage(kind, served, decoded.obj)
        return decoded

    def decode_as(
        self,
        name: str,
        api_version: str,
        type_name: str,
        body: bytes,
        media: Media,
        also: tuple[str, ...] = (),
    ) -> Decoded:
        """Decode a body of the given kind and type and return the canonical object.

        `also`: further apiVersions that the body may name.
        """
        custom = self._custom.get(type_name)
        if custom is not None:
            return self._decode_custom(custom, name, api_version, body, media)
        try:
            obj, complaints = self._parse(type_name, body, media)
            given = obj.get("apiVersion")
            _check_type(obj, name, given if given in also else api_version)
            self._normalizer.normalize(type_name, obj)
        except DecodeError as error:
            raise BadRequestError(_cannot_handle(name, api_version, error, body)) from error
        obj.pop("kind", None)
        obj.pop("apiVersion", None)
        return Decoded(obj, list(complaints))

    def fit_type(self, type_name: str, obj: Obj) -> Decoded:
        """Validate and normalise the result of a patch as an object of a type.

        Raises DecodeError when a value does not fit.
        """
        if (custom := self._custom.get(type_name)) is not None:
            return self._fit_custom(custom, obj, completes=True)
        fitted, complaints = self._json.check(type_name, obj)
        self._normalizer.normalize(type_name, fitted)
        fitted.pop("kind", None)
        fitted.pop("apiVersion", None)
        return Decoded(fitted, list(complaints))

    def fit_partial(self, type_name: str, obj: Obj) -> Decoded:
        """Validate a partial object as `fit_type` does; no field is added."""
        if (custom := self._custom.get(type_name)) is not None:
            return self._fit_custom(custom, obj, completes=False)
        fitted, complaints = self._json.check(type_name, obj)
        self._partial_normalizer.normalize(type_name, fitted)
        fitted.pop("kind", None)
        fitted.pop("apiVersion", None)
        return Decoded(fitted, list(complaints))

    def _decode_custom(
        self, custom: CustomType, name: str, api_version: str, body: bytes, media: Media
    ) -> Decoded:
        try:
            document, complaints = _parse_untyped(body, media)
            if not isinstance(document, dict):
                raise DecodeError(
                    f"json: cannot unmarshal {json_name(document)} into Go value of type "
                    "map[string]interface {}"
                )
            check_custom_type(document, name, custom.group, api_version)
            decoded = self._fit_custom(custom, document, completes=True)
        except DecodeError as error:
            raise BadRequestError(_cannot_handle(name, api_version, error, body)) from error
        return Decoded(decoded.obj, [*complaints, *decoded.complaints])

    def _fit_custom(self, custom: CustomType, obj: Obj, *, completes: bool) -> Decoded:
        """Fit a custom resource in place: metadata as that of any kind, the rest by structure."""
        head, complaints = self._json.check(RESOURCE.name, {"metadata": obj.get("metadata")})
        normalizer = self._normalizer if completes else self._partial_normalizer
        normalizer.normalize(RESOURCE.name, head)
        obj.pop("kind", None)
        obj.pop("apiVersion", None)
        obj |= head
        complaints += custom.fit(obj, completes=completes)
        if custom.has_embedded:
            complaints += self._fit_embedded(obj, custom.structure, "")
        return Decoded(obj, complaints)

    def _fit_embedded(self, value: Any, structure: Structure, path: str) -> list[str]:
        """Fit the metadata of embedded resources in place; return an error per unknown field.

        Raises DecodeError for a field of the wrong type.
        """
        complaints: list[str] = []
        if isinstance(value, list) and structure.items is not None:
            for index, item in enumerate(value):
                complaints += self._fit_embedded(item, structure.items, f"{path}[{index}]")
        if not isinstance(value, dict):
            return complaints
        if structure.is_embedded:
            complaints += self._fit_resource(value, path)
        for name, member in value.items():
            inner = structure.properties.get(name) or structure.values
            if inner is not None:
                at = f"{path}.{name}" if path else name
                complaints += self._fit_embedded(member, inner, at)
        return complaints

    def _fit_resource(self, resource: Obj, path: str) -> list[str]:
        for name in ("apiVersion", "kind"):
            if name in resource and not isinstance(resource[name], str):
                shown = json_name(resource[name])
                raise DecodeError(f"{path}.{name}: Invalid value: {shown}: must be a string")
        if "metadata" not in resource:
            return []
        head, complaints = self._json.check(RESOURCE.name, {"metadata": resource["metadata"]})
        self._partial_normalizer.normalize(RESOURCE.name, head)
        resource |= head
        return [text.replace('"metadata', f'"{path}.metadata', 1) for text in complaints]

    def normalize(self, type_name: str, obj: Obj) -> Obj:
        return self._normalizer.normalize(type_name, obj)

    def to_storage(self, kind: Kind, served: Served, obj: Obj) -> Obj:
        """Convert a canonical object of a served version to the storage version, with defaults."""
        if served.to_storage is not None:
            obj = served.to_storage(obj)
            if (custom := self._custom.get(kind.storage.type)) is not None:
                custom.refit(obj)
            else:
                self._normalizer.normalize(kind.storage.type, obj)
        kind.strategy.default(obj)
        return obj

    def from_storage(self, served: Served, obj: Obj) -> Obj:
        """Convert a stored object to a served version."""
        return served.from_storage(obj) if served.from_storage is not None else obj

    def encode_item(self, served: Served, item: Stored) -> bytes:
        """Return the JSON of a stored object without kind and apiVersion, as in list items."""
        if served.from_storage is None:
            return b"{" + item.tail
        return msgspec.json.encode(served.from_storage(item.obj))

    def encode(self, kind: Kind, served: Served, item: Stored) -> bytes:
        """Return the JSON of a stored object, starting with kind and apiVersion."""
        prefix = self.prefix(kind.name, served.api_version)
        if served.from_storage is None:
            return prefix + item.tail
        return prefix + msgspec.json.encode(served.from_storage(item.obj))[1:]

    def message(self, served: Served, item: Stored, *, is_kept: bool = True) -> bytes:
        """Return the protobuf message of a stored object of a built-in kind.

        `is_kept`: further readers may follow.
        """
        if served.from_storage is not None:
            return self.to_message(served.type, served.from_storage(item.obj))
        if not item.is_stored:
            return self.to_message(served.type, item.obj)
        message = self._messages.get(item.key, item.revision)
        if message is None:
            message = self.to_message(served.type, item.obj)
            if is_kept:
                self._messages.keep(item.key, item.revision, message)
        return message

    def to_message(self, type_name: str, obj: Obj) -> bytes:
        """Return the protobuf message of an object of a type."""
        return self._protobuf_encoder.encode(type_name, obj)

    def to_protobuf(self, type_name: str, document: Obj) -> bytes:
        """Return a document that has kind and apiVersion as a message in its envelope."""
        message = self.to_message(type_name, document)
        return enveloped(document.get("apiVersion", "v1"), document["kind"], message)

    def prefix(self, name: str, api_version: str) -> bytes:
        """Return the first bytes of an object's JSON: `{"kind":"Pod","apiVersion":"v1",`."""
        key = (name, api_version)
        prefix = self._prefixes.get(key)
        if prefix is None:
            head = msgspec.json.encode({"kind": name, "apiVersion": api_version})
            prefix = self._prefixes[key] = head[:-1] + b","
        return prefix

    def _parse(self, type_name: str, body: bytes, media: Media) -> tuple[Obj, list[str]]:
        match media:
            case Media.PROTOBUF:
                envelope = open_envelope(body)
                obj = self._protobuf.decode(type_name, envelope.raw)
                obj |= {"kind": envelope.kind, "apiVersion": envelope.api_version}
                return obj, []
            case Media.YAML:
                document, complaints = parse_yaml(body)
                obj, strict_errors = self._json.check(type_name, document)
                return obj, [*complaints, *strict_errors]
            case Media.JSON:
                obj, strict_errors = self._json.decode(type_name, body)
                return obj, strict_errors


def _parse_untyped(body: bytes, media: Media) -> tuple[Any, list[str]]:
    """Parse a body of a custom resource; return the document and an error per repeated key."""
    match media:
        case Media.JSON:
            document = parse_json(body)
            return document, repeated_fields(body, document)
        case Media.YAML:
            return parse_yaml(body)
        case Media.PROTOBUF:
            raise UnsupportedMediaTypeError(
                "the body of the request was in an unknown format - accepted media types include: "
                "application/json, application/yaml"
            )


def _check_type(obj: Obj, name: str, api_version: str) -> None:
    """Raise BadRequestError if the kind or apiVersion in a body, where given, is another."""
    kind, version = obj.get("kind") or name, obj.get("apiVersion") or api_version
    if kind != name:
        raise BadRequestError(
            f'{kind} in version "{_bare(version)}" cannot be handled as a {name}: converting '
            f"({_go_kind(version, kind)}) to ({_go_kind(api_version, name)}): unknown conversion"
        )
    if version != api_version:
        raise BadRequestError(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({api_version})"
        )


def _cannot_handle(name: str, api_version: str, error: DecodeError, body: bytes) -> str:
    text = str(error)
    if text.startswith(("json parse error", "yaml:", "provided data")):
        if text.startswith("json"):
            text = f"couldn't get version/kind; {text}"
        return (
            f"the object provided is unrecognized (must be of type {name}): {text} "
            f"({_summary(body)})"
        )
    return f'{name} in version "{_bare(api_version)}" cannot be handled as a {name}: {text}'


def strict_error(name: str, api_version: str, complaints: list[str]) -> BadRequestError:
    """Return the error for a body refused under `fieldValidation=Strict`."""
    return BadRequestError(
        f'{name} in version "{_bare(api_version)}" cannot be handled as a {name}: '
        f"strict decoding error: {', '.join(complaints)}"
    )


def _summary(body: bytes) -> str:
    if not body:
        return "<empty>"
    dots = " ..." if len(body) > _SUMMARY_BYTES else ""
    start = body[:_SUMMARY_BYTES]
    if body[:1] == b"{":
        return start.decode(errors="replace") + dots
    return start.hex() + dots


def _bare(api_version: str) -> str:
    return api_version.rpartition("/")[2]


def _go_kind(api_version: str, kind: str) -> str:
    return f"{_bare(api_version)}.{kind}"
