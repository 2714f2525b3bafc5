"""What Moorage does not serve yet of custom resources, and refuses at creation.

A definition that asks for it would be established and not behave as it says.
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.errors import FieldError
from moorage.registry.kind import Obj
from moorage.registry.kinds.customresourcedefinition.versions import schema_of
from moorage.registry.validation.structural_schema import Schema, children


def unserved_errors(definition: Obj) -> Iterator[FieldError]:
    """Yield an error for each part of a legal definition that is not served yet."""
    spec = definition["spec"]
    if spec.get("conversion", {}).get("strategy") == "Webhook":
        yield FieldError.forbidden(
            "spec.conversion.strategy", "conversion webhooks are not called by Moorage yet"
        )
    for index, version in enumerate(spec.get("versions", ())):
        path = f"spec.versions[{index}]"
        schema = schema_of(version.get("schema"))
        if schema is not None and _has_expressions(schema):
            yield FieldError.forbidden(
                f"{path}.schema.openAPIV3Schema",
                "CEL rules (x-kubernetes-validations) are not evaluated by Moorage yet",
            )


def _has_expressions(schema: Schema) -> bool:
    return bool(schema.get("x-kubernetes-validations")) or any(
        map(_has_expressions, children(schema))
    )
