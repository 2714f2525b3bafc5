"""OpenAPI v3 schemas of the definitions.

Source: Kubernetes' published v3 documents: a reference with siblings is wrapped in `allOf`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moorage.apiserver.registry.schema.definitions import Definition, reachable

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
