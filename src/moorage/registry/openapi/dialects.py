"""OpenAPI dialects: operations rendered in v3 and in v2 (Swagger)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moorage.registry.openapi.operations import PATCH_TYPES, Operation, Parameter

JSON = "application/json"
_BODY_TYPES = (JSON, "application/yaml", "application/vnd.kubernetes.protobuf")


def paths_v3(operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the `paths` object of OpenAPI v3."""
    paths: dict[str, Any] = {}
    for each in operations:
        written = {
            **_common(each),
            "parameters": [_parameter_v3(parameter) for parameter in each.parameters],
            "responses": {"200": _answer_v3(each.answer), "401": {"description": "Unauthorized"}},
        }
        if each.body:
            types = PATCH_TYPES if each.method == "patch" else _BODY_TYPES
            schema = {"$ref": f"#/components/schemas/{each.body}"}
            written["requestBody"] = {
                "content": {type_: {"schema": schema} for type_ in types},
                "required": each.method != "delete",
            }
        paths.setdefault(each.path, {})[each.method] = written
    return paths


def _common(each: Operation) -> dict[str, Any]:
    tag = f"{each.group.partition('.')[0] or 'core'}_{each.version}"
    return {
        "description": each.description,
        "operationId": each.id,
        "tags": [tag],
        "x-kubernetes-action": each.action,
        "x-kubernetes-group-version-kind": {
            "group": each.group,
            "kind": each.kind,
            "version": each.version,
        },
    }


def _schema_of(parameter: Parameter) -> dict[str, Any]:
    if parameter.type == "array":
        return {"type": "array", "items": {"type": "string"}}
    return {"type": parameter.type}


def _parameter_v3(parameter: Parameter) -> dict[str, Any]:
    written = {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.description,
        "schema": _schema_of(parameter),
    }
    return written | ({"required": True} if parameter.place == "path" else {})


def _answer_v3(type_: str) -> dict[str, Any]:
    if not type_:
        return {"description": "OK", "content": {"*/*": {"schema": {"type": "string"}}}}
    schema = {"$ref": f"#/components/schemas/{type_}"}
    return {"description": "OK", "content": {JSON: {"schema": schema}}}


def paths_v2(operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the `paths` object of Swagger 2.0."""
    paths: dict[str, Any] = {}
    for each in operations:
        parameters = [_parameter_v2(parameter) for parameter in each.parameters]
        if each.body:
            parameters.append(
                {
                    "in": "body",
                    "name": "body",
                    "required": each.method != "delete",
                    "schema": {"$ref": f"#/definitions/{each.body}"},
                }
            )
        schema = {"$ref": f"#/definitions/{each.answer}"} if each.answer else {"type": "string"}
        paths.setdefault(each.path, {})[each.method] = {
            **_common(each),
            "consumes": list(PATCH_TYPES if each.method == "patch" else _BODY_TYPES),
            "produces": [JSON, "application/yaml"],
            "schemes": ["https"],
            "parameters": parameters,
            "responses": {
                "200": {"description": "OK", "schema": schema},
                "401": {"description": "Unauthorized"},
            },
        }
    return paths


def _parameter_v2(parameter: Parameter) -> dict[str, Any]:
    written = {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.description,
        "uniqueItems": True,
        **_schema_of(parameter),
    }
    return written | ({"required": True} if parameter.place == "path" else {})
