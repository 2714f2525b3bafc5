"""OpenAPI dialects: operations rendered in v3 and in v2 (Swagger)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moorage.apiserver.registry.openapi.operations import Operation, Parameter

JSON = "application/json"


def paths_v3(operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the `paths` object of OpenAPI v3."""
    paths: dict[str, Any] = {}
    for operation in operations:
        written = {
            **_common(operation),
            "parameters": [_parameter_v3(parameter) for parameter in operation.parameters],
            "responses": {
                "200": _answer_v3(operation.answer),
                "401": {"description": "Unauthorized"},
            },
        }
        if operation.body:
            schema = {"$ref": f"#/components/schemas/{operation.body}"}
            written["requestBody"] = {
                "content": {type_: {"schema": schema} for type_ in operation.consumes},
                "required": operation.method != "delete",
            }
        paths.setdefault(operation.path, {})[operation.method] = written
    return paths


def _common(operation: Operation) -> dict[str, Any]:
    tag = f"{operation.group.partition('.')[0] or 'core'}_{operation.version}"
    return {
        "description": operation.description,
        "operationId": operation.id,
        "tags": [tag],
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {
            "group": operation.group,
            "kind": operation.kind,
            "version": operation.version,
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
    for operation in operations:
        parameters = [_parameter_v2(parameter) for parameter in operation.parameters]
        if operation.body:
            parameters.append(
                {
                    "in": "body",
                    "name": "body",
                    "required": operation.method != "delete",
                    "schema": {"$ref": f"#/definitions/{operation.body}"},
                }
            )
        schema = (
            {"$ref": f"#/definitions/{operation.answer}"}
            if operation.answer
            else {"type": "string"}
        )
        paths.setdefault(operation.path, {})[operation.method] = {
            **_common(operation),
            "consumes": list(operation.consumes),
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
