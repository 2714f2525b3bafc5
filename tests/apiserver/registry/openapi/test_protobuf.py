"""The v2 document in protobuf, read back by the protobuf library with gnostic's descriptors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf import unknown_fields
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from moorage.apiserver.registry.openapi import Documents
from moorage.apiserver.registry.openapi.protobuf import encode_swagger

# Message: fields as NAME=NUMBER:TYPE, `*` for repeated ones. The numbers are those of gnostic's
# OpenAPIv2.proto, not taken from the writer. What is a `oneof` there is the same on the wire.
_MESSAGES = {
    "Document": "swagger=1:string info=2:Info paths=8:Paths definitions=9:Definitions",
    "Info": "title=1:string version=2:string",
    "Paths": "path=2:NamedPathItem*",
    "NamedPathItem": "name=1:string value=2:PathItem",
    "PathItem": "get=2:Operation put=3:Operation post=4:Operation delete=5:Operation "
    "patch=8:Operation",
    "Operation": "tags=1:string* description=3:string operationId=5:string produces=6:string* "
    "consumes=7:string* parameters=8:ParametersItem* responses=9:Responses schemes=10:string* "
    "extension=13:NamedAny*",
    "ParametersItem": "parameter=1:Parameter",
    "Parameter": "body=1:Body other=2:NonBody",
    "NonBody": "query=3:Query path=4:Path",
    "Body": "description=1:string name=2:string in=3:string required=4:bool schema=5:Schema",
    "Query": "required=1:bool in=2:string description=3:string name=4:string type=6:string "
    "format=7:string items=8:Primitive uniqueItems=20:bool",
    "Path": "required=1:bool in=2:string description=3:string name=4:string type=5:string "
    "format=6:string items=7:Primitive uniqueItems=19:bool",
    "Primitive": "type=1:string format=2:string",
    "Responses": "code=1:NamedResponseValue*",
    "NamedResponseValue": "name=1:string value=2:ResponseValue",
    "ResponseValue": "response=1:Response",
    "Response": "description=1:string schema=2:SchemaItem",
    "SchemaItem": "schema=1:Schema",
    "Definitions": "entry=1:NamedSchema*",
    "NamedSchema": "name=1:string value=2:Schema",
    "Schema": "reference=1:string format=2:string title=3:string description=4:string "
    "default=5:Any required=19:string* enum=20:Any* additional=21:Additional type=22:TypeItem "
    "items=23:Items allOf=24:Schema* properties=25:Definitions extension=31:NamedAny*",
    "Additional": "schema=1:Schema boolean=2:bool",
    "TypeItem": "value=1:string*",
    "Items": "schema=1:Schema*",
    "Any": "yaml=2:string",
    "NamedAny": "name=1:string value=2:Any",
}
_SCALARS = {"string": FieldDescriptorProto.TYPE_STRING, "bool": FieldDescriptorProto.TYPE_BOOL}


def _document_class() -> type[Message]:
    file = FileDescriptorProto(name="openapi.proto", package="openapi", syntax="proto2")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for text in fields.split():
            field_name, _, rest = text.partition("=")
            number, _, type_ = rest.partition(":")
            is_repeated, type_ = type_.endswith("*"), type_.removesuffix("*")
            field = message.field.add(name=field_name, number=int(number))
            field.label = (
                FieldDescriptorProto.LABEL_REPEATED
                if is_repeated
                else FieldDescriptorProto.LABEL_OPTIONAL
            )
            if type_ in _SCALARS:
                field.type = _SCALARS[type_]
            else:
                field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".openapi.{type_}"
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("openapi.Document"))


def _read(raw: bytes) -> dict[str, Any]:
    document = _document_class()()
    document.ParseFromString(raw)
    shown: dict[str, Any] = _json(document)
    return shown


def _json(message: Any) -> Any:
    """Return the JSON that a message stands for. Fails on a field that the table lacks."""
    assert not len(unknown_fields.UnknownFieldSet(message)), message.DESCRIPTOR.name
    fields: dict[str, Any] = {
        field.name: [_json(item) if field.message_type else item for item in value]
        if field.is_repeated
        else _json(value)
        if field.message_type
        else value
        for field, value in message.ListFields()
    }
    match message.DESCRIPTOR.name:
        case "Any":
            return json.loads(fields["yaml"])
        case "Paths" | "Definitions" | "Responses":
            (entries,) = fields.values() or ([],)
            return {entry["name"]: entry["value"] for entry in entries}
        case "ParametersItem" | "Parameter" | "NonBody" | "ResponseValue" | "SchemaItem":
            (wrapped,) = fields.values()
            return wrapped
        case "Additional" | "Items" | "TypeItem":
            (wrapped,) = fields.values()
            return wrapped[0] if isinstance(wrapped, list) and len(wrapped) == 1 else wrapped
        case "Operation" | "Schema":
            extensions = {entry["name"]: entry["value"] for entry in fields.pop("extension", ())}
            names = {"reference": "$ref", "additional": "additionalProperties"}
            return {names.get(name, name): value for name, value in fields.items()} | extensions
    return fields


def test_the_served_document_is_the_one_in_json() -> None:
    documents = Documents()
    assert _read(documents.swagger_protobuf.text()) == json.loads(documents.swagger.text())


@pytest.mark.parametrize(
    "schema",
    [
        {"type": ["string", "null"], "default": {"a": [1, None]}, "enum": ["a", 2]},
        {"additionalProperties": False},
        {"additionalProperties": {"type": "string"}},
        {"type": "array", "items": {"$ref": "#/definitions/x"}, "required": ["a", "b"]},
        {"x-kubernetes-list-map-keys": ["name"], "description": "é" * 200},
    ],
)
def test_schemas_read_back(schema: dict[str, Any]) -> None:
    document = {"swagger": "2.0", "definitions": {"a": schema}}
    assert _read(encode_swagger(document)) == document


def test_an_unknown_key_is_not_dropped_silently() -> None:
    with pytest.raises(KeyError, match="discriminator"):
        encode_swagger({"definitions": {"a": {"discriminator": "kind"}}})
