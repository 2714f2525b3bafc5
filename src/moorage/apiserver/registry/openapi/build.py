"""OpenAPI generator: run by the build hook, never by a server."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from moorage.api.release import KUBERNETES
from moorage.apiserver.registry.kind import Kind, Served
from moorage.apiserver.registry.kinds import ALL_KINDS
from moorage.apiserver.registry.openapi.dialects import paths_v2, paths_v3
from moorage.apiserver.registry.openapi.documents import INDEX, SWAGGER, SWAGGER_PROTOBUF, file_name
from moorage.apiserver.registry.openapi.operations import META, Operation, operations
from moorage.apiserver.registry.openapi.protobuf import encode_swagger
from moorage.apiserver.registry.schema.definitions import Definition, load_definitions, reachable

_INFO = {"title": "Kubernetes", "version": f"v{KUBERNETES}"}


def generate_openapi(target: Path) -> None:
    """Write one v3 document for each group-version, the v2 document and the index of hashes."""
    target.mkdir(exist_ok=True)
    definitions = load_definitions()
    index = {}
    everything: list[Operation] = []
    for path, resources in _by_path().items():
        path_operations = [
            operation for kind, served in resources for operation in operations(kind, served)
        ]
        everything += path_operations
        document = {
            "openapi": "3.0.0",
            "info": _INFO,
            "paths": paths_v3(path_operations),
            "components": {"schemas": component_schemas(definitions, _types(path_operations))},
        }
        index[path] = _write(target / file_name(path), _json(document))
    swagger = {
        "swagger": "2.0",
        "info": _INFO,
        "paths": paths_v2(everything),
        "definitions": {
            name: definitions[name] for name in reachable(definitions, _types(everything))
        },
    }
    index[SWAGGER] = _write(target / file_name(SWAGGER), _json(swagger))
    index[SWAGGER_PROTOBUF] = _write(target / file_name(SWAGGER_PROTOBUF), encode_swagger(swagger))
    (target / INDEX).write_text(json.dumps(index))


def _by_path() -> dict[str, list[tuple[Kind, Served]]]:
    resources: dict[str, list[tuple[Kind, Served]]] = {}
    for kind in ALL_KINDS:
        for served in kind.served:
            path = f"apis/{served.group}/{served.version}" if served.group else "api/v1"
            resources.setdefault(path, []).append((kind, served))
    return resources


def _types(operation_list: Iterable[Operation]) -> set[str]:
    types = {
        type_
        for operation in operation_list
        for type_ in (operation.body, operation.answer)
        if type_
    }
    return types | {f"{META}.Status"}


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _write(path: Path, text: bytes) -> str:
    """Write a document compressed. Returns the hash of its text."""
    path.write_bytes(gzip.compress(text, mtime=0))
    return hashlib.sha512(text).hexdigest().upper()


# OpenAPI v3 schemas of the definitions.
#
# Source: Kubernetes' published v3 documents: a reference with siblings is wrapped in `allOf`.

_OLD, _NEW = "#/definitions/", "#/components/schemas/"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_NUMBER_OR_STRING = {"oneOf": [{"type": "string"}, {"type": "number"}]}
_INT_OR_STRING = {"type": "string", "format": "int-or-string"}


def component_schemas(
    definitions: dict[str, Definition], roots: Iterable[str]
) -> dict[str, Definition]:
    """Return the schemas of the roots and all their references, by full name."""
    return {
        name: _v3(definitions[name]) if name != _QUANTITY else _NUMBER_OR_STRING
        for name in reachable(definitions, roots)
    }


def _v3(node: Any) -> Any:
    if isinstance(node, list):
        return [_v3(item) for item in node]
    if not isinstance(node, dict):
        return node
    if node.get("type") == "string" and node.get("format") == "int-or-string":
        alternatives = [{"type": "integer"}, {"type": "string"}]
        rest = {key: value for key, value in node.items() if key not in _INT_OR_STRING}
        return {"oneOf": alternatives, "format": "int-or-string", **rest}
    converted = {key: _v3(value) for key, value in node.items() if key != "$ref"}
    reference = node.get("$ref")
    if not isinstance(reference, str):
        return converted
    target = {"$ref": reference.replace(_OLD, _NEW)}
    return {"allOf": [target], **converted} if converted else target
