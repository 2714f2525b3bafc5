"""Schemas of kinds, from the OpenAPI documents that the API server serves.

References are replaced by what they refer to; one that leads back to itself becomes an object of
which nothing is known. Source: apiserver `cel/openapi/resolver` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from moorage.api.errors import NotFoundError
from moorage.wire.client.rest import Client

Schema = dict[str, Any]
Kind = tuple[str, str, str]
"""(group, version, kind)."""

_REFERENCE = "#/components/schemas/"
_KINDS = "x-kubernetes-group-version-kind"
_ANY = "x-kubernetes-int-or-string"
_NODES = 100_000
"""The most that a schema may grow to; the largest of Kubernetes has 2,000."""


class _Components(msgspec.Struct, frozen=True):
    schemas: dict[str, Any] = {}


class _Document(msgspec.Struct, frozen=True):
    components: _Components = _Components()


class Schemas:
    """The schemas of one server. The document of each group version is read once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._documents: dict[str, dict[str, Any]] = {}

    async def find(self, kind: Kind) -> Schema | None:
        """Return the schema of a kind, None where the server describes none.

        Raises StatusError and UnreachableError.
        """
        group, version, name = kind
        path = f"apis/{group}/{version}" if group else f"api/{version}"
        if path not in self._documents:
            self._documents[path] = await self._read(path)
        schemas = self._documents[path]
        wanted = {"group": group, "version": version, "kind": name}
        for schema in schemas.values():
            if wanted in schema.get(_KINDS, ()):
                return _Resolution(schemas).resolve(schema)
        return None

    async def _read(self, path: str) -> dict[str, Any]:
        try:
            body = await self._client.request("GET", f"/openapi/v3/{path}")
        except NotFoundError:
            return {}
        return msgspec.json.decode(body, type=_Document).components.schemas


class _Resolution:
    """Copies a schema, with its references replaced."""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self._schemas = schemas
        self._open: list[str] = []
        self._count = 0

    def resolve(self, schema: Schema) -> Schema:
        """Return a schema without references, cut off below where it grows without end."""
        self._count += 1
        reference = _reference(schema)
        if reference is None:
            return self._copy(schema)
        if reference in self._open or reference not in self._schemas or self._count > _NODES:
            return {"type": "object"}
        self._open.append(reference)
        try:
            return self.resolve(self._schemas[reference])
        finally:
            self._open.pop()

    def _copy(self, schema: Schema) -> Schema:
        copied = dict(schema)
        if "type" not in schema and ("oneOf" in schema or "anyOf" in schema):
            # Amounts, and numbers that may be text: all types, to be checked at evaluation.
            copied[_ANY] = True
        if isinstance(properties := schema.get("properties"), dict):
            copied["properties"] = {name: self.resolve(one) for name, one in properties.items()}
        for part in ("additionalProperties", "items"):
            if isinstance(inner := schema.get(part), dict):
                copied[part] = self.resolve(inner)
        return copied


def _reference(schema: Schema) -> str | None:
    """Return the name that a schema refers to; a description stands beside it in `allOf`."""
    if isinstance(text := schema.get("$ref"), str):
        return text.removeprefix(_REFERENCE)
    for part in schema.get("allOf", ()):
        if (inner := _reference(part)) is not None:
            return inner
    return None
