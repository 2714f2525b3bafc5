"""OpenAPI v3 of custom resources: one document for each group and version.

A document is written when a client asks for it; its hash is of the revisions of the definitions, so
that the index costs nothing. Source: apiextensions `controller/openapi/builder` of Kubernetes 1.36.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec

from moorage.api.release import KUBERNETES
from moorage.apiserver.registry.kind import Kind, Obj, Served
from moorage.apiserver.registry.openapi.dialects import paths_v3
from moorage.apiserver.registry.openapi.documents import Document, Documents
from moorage.apiserver.registry.openapi.operations import META, operations
from moorage.apiserver.registry.resource_map import ResourceMap
from moorage.apiserver.registry.stored import Stored

_SHARED = "apis/apps/v1"
"""The document whose schemas of metadata, options, status and scale are copied."""

_MODEL = "io.k8s.api.apps.v1.Deployment"
_COMMON = ("apiVersion", "kind", "metadata")
_VALUES = ("default", "enum", "example")
_REFERENCE = re.compile(rb'"#/components/schemas/([^"]+)"')
_SCALE = "io.k8s.api.autoscaling.v1.Scale"
# Part of each hash: raised when the same definitions are written otherwise, since clients keep a
# document for as long as its hash stays.
_FORM = "2"


class CustomDocument:
    """The document of one group and version: written when first asked for, and kept compressed."""

    def __init__(self, digest: str, write: Callable[[], bytes]) -> None:
        self.hash = digest
        self._write = write
        self._compressed = b""

    def compressed(self) -> bytes:
        if not self._compressed:
            self._compressed = gzip.compress(self._write(), compresslevel=1)
        return self._compressed

    def text(self) -> bytes:
        return gzip.decompress(self.compressed())


class CustomDocuments:
    """The documents of the custom resources that are served, by path (`apis/GROUP/VERSION`).

    `find` returns a definition as stored, by name. A path of the API's own kinds has one document
    for both.
    """

    def __init__(
        self, resource_map: ResourceMap, find: Callable[[str], Stored | None], own: Documents
    ) -> None:
        self._resource_map = resource_map
        self._find = find
        self._own = own
        self._documents: dict[str, CustomDocument] = {}

    def by_path(self) -> dict[str, CustomDocument]:
        """Return the documents of now."""
        versions: dict[str, list[Version]] = {}
        for version in self.versions():
            path = f"apis/{version.served.group}/{version.served.version}"
            versions.setdefault(path, []).append(version)
        self._documents = {path: self._document(path, found) for path, found in versions.items()}
        return self._documents

    def versions(self) -> list[Version]:
        """Return the versions that are served now."""
        found = ((self._find(name), kind) for name, kind in self._resource_map.custom_kinds())
        return [Version(definition, kind, kind.storage) for definition, kind in found if definition]

    def digest(
        self, own: Document | None, versions: list[Version], others: Iterable[str] = ()
    ) -> str:
        """Return the hash of a document of versions, and of the API's own at that path.

        `others` are the hashes of what else is in it.
        """
        parts = [_FORM, *([own.hash] if own else []), *others]
        parts += [f"{item.type}@{item.definition.revision}" for item in versions]
        return hashlib.sha512("\n".join(parts).encode()).hexdigest().upper()

    def _document(self, path: str, versions: list[Version]) -> CustomDocument:
        own = self._own.v3.get(path)
        digest = self.digest(own, versions)
        known = self._documents.get(path)
        if known is not None and known.hash == digest:
            return known
        return CustomDocument(digest, lambda: _written(versions, own, self._own))


class Version(msgspec.Struct, frozen=True):
    """A version that is served, and the definition as stored."""

    definition: Stored
    kind: Kind
    served: Served

    @property
    def type(self) -> str:
        """Return the full name of the type: `com.example.v1.Foo` for a group `example.com`."""
        return ".".join([*reversed(self.served.group.split(".")), self.served.version,
                         self.kind.name])  # fmt: skip

    def schema(self) -> Obj:
        """Return the schema of the version in the definition, empty if it has none."""
        for version in self.definition.obj["spec"]["versions"]:
            if version["name"] == self.served.version:
                schema: Obj = version.get("schema", {}).get("openAPIV3Schema") or {}
                return schema
        return {}

    def names(self, kind: str) -> Obj:
        """Return a schema's extensions that name its kind, or its list's."""
        names = {"group": self.served.group, "kind": kind, "version": self.served.version}
        selectable = [{"fieldPath": field.label} for field in self.kind.selectable]
        said: Obj = {"x-kubernetes-group-version-kind": [names]}
        return said | ({"x-kubernetes-selectable-fields": selectable} if selectable else {})


def _written(versions: list[Version], own: Document | None, documents: Documents) -> bytes:
    document: Obj = {"paths": {}, "components": {"schemas": {}}}
    if own is not None:
        document = msgspec.json.decode(own.text())
    schemas = document["components"]["schemas"]
    for version in versions:
        served = replace(version.served, type=version.type)
        document["paths"] |= paths_v3(operations(version.kind, served))
        schemas |= _schemas(version, documents)
    return msgspec.json.encode(
        {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": f"v{KUBERNETES}"},
            "paths": document["paths"],
            "components": {"schemas": schemas | _shared(documents)},
        }
    )


def _schemas(version: Version, documents: Documents) -> Obj:
    """Return the schemas of a kind and of its list."""
    common = common_properties(documents)
    schema: Obj = version.schema()
    if schema:
        schema = _with_resource_fields(schema, common)
        schema["properties"] = {**schema.get("properties", {}), **common}
    listed = {
        "description": f"{version.kind.list_kind} is a list of {version.kind.name}",
        "type": "object",
        "required": ["items"],
        "properties": {
            **common,
            "items": {"type": "array", "items": {"allOf": [_reference(version.type)]}},
            "metadata": {"allOf": [_reference(f"{META}.ListMeta")]},
        },
    }
    return {
        version.type: {"type": "object", **schema, **version.names(version.kind.name)},
        f"{version.type}List": {**listed, **version.names(version.kind.list_kind)},
    }


def _reference(type_: str) -> Obj:
    return {"$ref": f"#/components/schemas/{type_}"}


def _with_resource_fields(schema: Any, common: Obj) -> Any:
    """Return a copy of a schema, with the fields that every resource has in embedded ones."""
    if isinstance(schema, list):
        return [_with_resource_fields(item, common) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copied = {
        key: value if key in _VALUES else _with_resource_fields(value, common)
        for key, value in schema.items()
    }
    if copied.get("x-kubernetes-embedded-resource") is True:
        copied["properties"] = {**copied.get("properties", {}), **common}
        required = copied.get("required", [])
        missing = [name for name in ("kind", "apiVersion") if name not in required]
        copied["required"] = [*required, *missing]
    return copied


@lru_cache(maxsize=1)
def _own_schemas(documents: Documents) -> Obj:
    document = msgspec.json.decode(documents.v3[_SHARED].text())
    roots = [f"{META}.{name}" for name in ("DeleteOptions", "ListMeta", "Patch", "Status")]
    everything: Obj = document["components"]["schemas"]
    model = {
        name: value for name, value in everything[_MODEL]["properties"].items() if name in _COMMON
    }
    return {_MODEL: model, **_closure(everything, [*roots, f"{META}.ObjectMeta", _SCALE])}


def _shared(documents: Documents) -> Obj:
    """Return the schemas to which those of custom resources refer."""
    return {name: value for name, value in _own_schemas(documents).items() if name != _MODEL}


def common_properties(documents: Documents) -> Obj:
    """Return apiVersion, kind and metadata as they are documented of any kind."""
    model: Obj = _own_schemas(documents)[_MODEL]
    return model


def _closure(schemas: Obj, roots: Iterable[str]) -> Obj:
    """Return schemas with all to which they refer."""
    found: Obj = {}
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = schemas[name]
            waiting += _references(schemas[name])
    return found


def _references(schema: Obj) -> Iterator[str]:
    for match in _REFERENCE.finditer(msgspec.json.encode(schema)):
        yield match.group(1).decode()
