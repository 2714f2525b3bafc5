"""OpenAPI v2 of custom resources: their definitions and paths, joined to the document of the API.

Swagger 2.0 has neither `nullable` nor `oneOf`, and clients take fields that a schema does not name
for unknown; what they cannot read is left out. The joined document is written when a client asks
for it, with the parts that other servers describe. Source: apiextensions
`controller/openapi/builder`, `controller/openapi/v2` of Kubernetes 1.36.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from moorage.apiserver.registry.custom.openapi import CustomDocuments, Version, common_properties
from moorage.apiserver.registry.custom.swagger_parts import SwaggerPart, add_parts
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.openapi.dialects import paths_v2
from moorage.apiserver.registry.openapi.documents import Document, Documents
from moorage.apiserver.registry.openapi.operations import META, operations
from moorage.apiserver.registry.openapi.protobuf import encode_swagger

_OPEN = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED = "x-kubernetes-embedded-resource"
_DEFINITIONS = b'},"definitions":{'
_KEPT = frozenset({
    "default", "description", "enum", "example", "exclusiveMaximum", "exclusiveMinimum",
    "externalDocs", "format", "maxItems", "maxLength", "maxProperties", "maximum", "minItems",
    "minLength", "minProperties", "minimum", "multipleOf", "pattern", "required", "title", "type",
    "uniqueItems", _EMBEDDED, _OPEN, "x-kubernetes-int-or-string", "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type", "x-kubernetes-map-type", "x-kubernetes-validations",
})  # fmt: skip
"""What is copied of a schema; what has schemas inside is converted."""


class SwaggerDocument:
    """The v2 document in one form, JSON or protobuf, compressed as clients ask for it."""

    def __init__(self, digest: str, text: bytes) -> None:
        self.hash = digest
        self._compressed = gzip.compress(text, compresslevel=1)

    def compressed(self) -> bytes:
        return self._compressed

    def text(self) -> bytes:
        return gzip.decompress(self._compressed)


class Swagger:
    """The v2 document of the API and of all custom resources, in both forms."""

    def __init__(
        self,
        documents: Documents,
        custom: CustomDocuments,
        parts: Callable[[], Awaitable[Sequence[SwaggerPart]]] | None = None,
    ) -> None:
        """`parts` returns what other servers describe, which is joined too."""
        self._documents = documents
        self._custom = custom
        self._parts = parts
        self._written: dict[bool, SwaggerDocument] = {}
        self._turn = asyncio.Lock()

    async def document(self, *, is_protobuf: bool) -> Document | SwaggerDocument:
        """Return the document of now; a new one is written in a thread."""
        documents = self._documents
        own = documents.swagger_protobuf if is_protobuf else documents.swagger
        versions = self._custom.versions()
        parts = () if self._parts is None else await self._parts()
        if not versions and not parts:
            return own
        digest = self._custom.digest(own, versions, [part.digest for part in parts])
        async with self._turn:
            known = self._written.get(is_protobuf)
            if known is None or known.hash != digest:
                write = _protobuf if is_protobuf else _json
                known = self._written[is_protobuf] = await asyncio.to_thread(
                    _document, digest, own, versions, parts, documents, write
                )
            return known


def _document(
    digest: str,
    own: Document,
    versions: Iterable[Version],
    parts: Sequence[SwaggerPart],
    documents: Documents,
    write: Callable[[bytes, Obj], bytes],
) -> SwaggerDocument:
    definitions: Obj = {}
    paths: Obj = {}
    for version in versions:
        definitions |= definitions_of(version, documents)
        served = replace(version.served, type=version.type)
        paths |= paths_v2(operations(version.kind, served))
    joined = {"paths": paths, "definitions": definitions}
    if parts:
        add_parts(documents.swagger.text(), joined, parts)
    return SwaggerDocument(digest, write(own.text(), joined))


def _json(own: bytes, custom: Obj) -> bytes:
    """Return the API's document with more paths and definitions: bytes are joined, not parsed."""
    at = own.index(_DEFINITIONS)
    paths, definitions = (msgspec.json.encode(custom[key])[1:-1] for key in custom)
    after = at + len(_DEFINITIONS)
    joined = (own[:at], paths and b",", paths, _DEFINITIONS, definitions, definitions and b",")
    return b"".join((*joined, own[after:]))


def _protobuf(own: bytes, custom: Obj) -> bytes:
    """Return the API's document with more paths and definitions.

    A message that is repeated is joined with the former, as protobuf defines it.
    """
    return own + encode_swagger(custom)


def definitions_of(version: Version, documents: Documents) -> Obj:
    """Return the definitions of a kind and of its list."""
    common = _in_v2(common_properties(documents))
    listed = {
        "description": f"{version.kind.list_kind} is a list of {version.kind.name}",
        "type": "object",
        "required": ["items"],
        "properties": {
            **common,
            "items": {
                "description": f"List of {version.kind.plural}. More info: https://git.k8s.io/"
                "community/contributors/devel/sig-architecture/api-conventions.md",
                "type": "array",
                "items": {"$ref": f"#/definitions/{version.type}"},
            },
            "metadata": {"$ref": f"#/definitions/{META}.ListMeta"},
        },
    }
    return {
        version.type: {
            **_definition(version.schema(), common),
            **version.names(version.kind.name),
        },
        f"{version.type}List": {**listed, **version.names(version.kind.list_kind)},
    }


def _definition(schema: Obj, common: Obj) -> Obj:
    if not schema or schema.get(_OPEN):
        # Any property here would make clients refuse all others.
        return {"type": "object"}
    definition = schema_v2(schema, common)
    definition["properties"] = {**definition.get("properties", {}), **common}
    return definition


def schema_v2(schema: Obj, common: Obj) -> Obj:
    """Return a schema as Swagger 2.0 has it; `common` is what embedded resources have."""
    written = {key: value for key, value in schema.items() if key in _KEPT}
    is_open, is_nullable = bool(schema.get(_OPEN)), bool(schema.get("nullable"))
    properties, items = schema.get("properties"), schema.get("items")
    _filter_required(written, schema)
    if properties and not (is_nullable or is_open):
        written["properties"] = {
            name: schema_v2(inner, common) for name, inner in properties.items()
        }
    if isinstance(items, dict) and not (is_nullable or is_open):
        written["items"] = schema_v2(items, common)
    additional = schema.get("additionalProperties")
    if additional is not None:
        is_schema = isinstance(additional, dict)
        written["additionalProperties"] = schema_v2(additional, common) if is_schema else additional
    is_list_of_any = written.get("type") == "array" and "items" not in written
    if is_nullable or is_list_of_any or (is_open and written.get("type") == "object"):
        written.pop("type", None)
    if schema.get(_EMBEDDED) and not is_open:
        written["properties"] = {**written.get("properties", {}), **common}
        required = written.get("required", [])
        missing = [name for name in ("kind", "apiVersion") if name not in required]
        written["required"] = [*required, *missing]
    return written


def _filter_required(written: Obj, schema: Obj) -> None:
    """Drop required fields that may be null, which clients take for absent."""
    additional = schema.get("additionalProperties")
    properties = schema.get("properties") or {}
    required = [
        name for name in schema.get("required", ()) if not properties.get(name, {}).get("nullable")
    ]
    is_any_nullable = isinstance(additional, dict) and additional.get("nullable")
    if required and not is_any_nullable:
        written["required"] = required
    else:
        written.pop("required", None)


def _in_v2(schemas: Any) -> Any:
    """Return schemas with references as in v2: without the `allOf` that v3 puts around them."""
    if isinstance(schemas, list):
        return [_in_v2(item) for item in schemas]
    if not isinstance(schemas, dict):
        return schemas
    copied = {key: _in_v2(value) for key, value in schemas.items() if key != "default"}
    branches = copied.pop("allOf", None)
    if branches and len(branches) == 1:
        copied |= branches[0]
    if isinstance(reference := copied.get("$ref"), str):
        copied["$ref"] = reference.replace("#/components/schemas/", "#/definitions/")
    return copied
