"""Versions of a CustomResourceDefinition: schemas, subresources, columns, selectable fields.

What all versions have in common is validated once and reported at the top of the specification,
where the internal form of the API has it: `spec.validation` for `spec.versions[*].schema`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from moorage.api import names
from moorage.api.errors import FieldError, TooManyRequestsError
from moorage.apiserver.cel.evaluator import BusyError, Evaluator, LimitError
from moorage.apiserver.registry.custom.expressions import has_rules
from moorage.apiserver.registry.expressions import Evaluated
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.custom_schema import schema_errors
from moorage.apiserver.registry.validation.field_paths import FieldPathError, resolve_field_path
from moorage.apiserver.registry.validation.go_shapes import Shape, go_struct
from moorage.apiserver.registry.validation.structural_schema import (
    Schema,
    children,
    structure_problem,
)

_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = (
    "byte", "date", "date-time", "double", "float", "int32", "int64", "password",
)  # fmt: skip
_MAX_SELECTABLE = 8
_SELECTABLE_TYPES = ("string", "boolean", "integer")
_WARNING_MAX_BYTES = 256
_VERSION: Shape = (
    ("name", "Name", ""),
    ("served", "Served", False),
    ("storage", "Storage", False),
    ("deprecated", "Deprecated", False),
    ("deprecationWarning", "DeprecationWarning", None),
    ("schema", "Schema", None),
    ("subresources", "Subresources", None),
    ("additionalPrinterColumns", "AdditionalPrinterColumns", None),
    ("selectableFields", "SelectableFields", None),
)

_RETRY = {"retryAfterSeconds": 1}


async def definition_expressions(
    evaluator: Evaluator, definition: Obj, old: Obj | None
) -> Evaluated:
    """Compile the rules of a definition whose schemas are valid, unless the old one had them."""
    versions = definition["spec"].get("versions", [])
    if old is not None and old["spec"].get("versions", []) == versions:
        return Evaluated()
    known = [] if old is None else [schema for schema, _ in _schemas(old["spec"]["versions"])]
    errors: list[FieldError] = []
    for schema, path in _schemas(versions):
        if has_rules(schema):
            is_known = schema in known
            errors += await _schema_errors(evaluator, schema, path, counts_costs=not is_known)
    return Evaluated(errors)


def _schemas(versions: list[Obj]) -> Iterator[tuple[Schema, str]]:
    """Yield each schema with its path; one that all versions share once, as validation does."""
    shared = schema_of(shared_fields(versions).get("validation"))
    if shared is not None:
        yield shared, "spec.validation.openAPIV3Schema"
        return
    for index, version in enumerate(versions):
        schema = schema_of(version.get("schema"))
        if schema is not None:
            yield schema, f"spec.versions[{index}].schema.openAPIV3Schema"


async def _schema_errors(
    evaluator: Evaluator, schema: Schema, path: str, *, counts_costs: bool
) -> list[FieldError]:
    """Return the errors of a schema's rules. A schema that stays may go on costing too much."""
    try:
        problems = await evaluator.schema_problems(schema)
    except LimitError as error:
        return [FieldError.forbidden(path, f"compilation failed: {error}")]
    except BusyError as error:
        raise TooManyRequestsError(str(error), dict(_RETRY)) from error
    return [
        FieldError.forbidden(f"{path}{problem.path}", problem.detail)
        if problem.is_cost
        else FieldError.invalid(
            f"{path}{problem.path}", problem.value, problem.detail.replace("{root}", path)
        )
        for problem in problems
        if counts_costs or not problem.is_cost
    ]


_SHARED = {
    "schema": "validation",
    "subresources": "subresources",
    "additionalPrinterColumns": "additionalPrinterColumns",
    "selectableFields": "selectableFields",
}
"""Fields of a version that move to the specification if all versions agree, with the new name."""


def shared_fields(versions: list[Obj]) -> Obj:
    """Return the fields in which all versions agree, by their name in the specification."""
    if not versions:
        return {}
    return {
        shared: versions[0].get(field)
        for field, shared in _SHARED.items()
        if all(version.get(field) == versions[0].get(field) for version in versions)
    }


def _own_fields(version: Obj, shared: Obj) -> Obj:
    return {key: value for key, value in version.items() if _SHARED.get(key, "") not in shared}


def schema_of(validation: Obj | None) -> Schema | None:
    """Return the schema of a version's `schema` field, None without one."""
    schema: Schema | None = (validation or {}).get("openAPIV3Schema")
    return schema


def version_errors(spec: Obj, shared: Obj) -> Iterator[FieldError]:
    """Yield the errors of the versions, and then those of the list of versions."""
    versions = [_own_fields(version, shared) for version in spec.get("versions", ())]
    if schema_of(shared.get("validation")) is None:
        for index, version in enumerate(versions):
            if schema_of(version.get("schema")) is None:
                yield FieldError.required(f"spec.versions[{index}].schema.openAPIV3Schema")
    if spec.get("preserveUnknownFields") and _has_defaults(spec):
        yield FieldError.invalid(
            "spec.preserveUnknownFields",
            True,
            "must be false in order to use defaults in the schema",
        )
    for index, version in enumerate(versions):
        path, name = f"spec.versions[{index}]", version.get("name", "")
        if details := names.dns_1035_label_errors(name):
            yield FieldError.invalid(f"{path}.name", name, ",".join(details))
        yield from _version_errors(version, path, shared)
    yield from _list_errors(versions)


def _has_defaults(spec: Obj) -> bool:
    schemas = (schema_of(version.get("schema")) for version in spec.get("versions", ()))
    return any(_has_default(schema) for schema in schemas if schema is not None)


def _has_default(schema: Schema) -> bool:
    return schema.get("default") is not None or any(map(_has_default, children(schema)))


def _list_errors(versions: list[Obj]) -> Iterator[FieldError]:
    shown = [go_struct(version, _VERSION) for version in versions] or None
    version_names = [version.get("name", "") for version in versions]
    if len(set(version_names)) < len(version_names):
        yield FieldError.invalid("spec.versions", shown, "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield FieldError.invalid(
            "spec.versions", shown, "must have exactly one version marked as storage version"
        )
    first = version_names[0] if version_names else ""
    if first and (details := names.dns_1035_label_errors(first)):
        yield FieldError.invalid("spec.version", first, ",".join(details))


def _version_errors(version: Obj, path: str, shared: Obj) -> Iterator[FieldError]:
    yield from _deprecation_errors(version, f"{path}.deprecationWarning")
    subresources = shared.get("subresources") or version.get("subresources") or {}
    yield from part_errors(
        version.get("schema"),
        version,
        path,
        schema_path=f"{path}.schema",
        has_status="status" in subresources,
    )
    if fields := version.get("selectableFields"):
        at = f"{path}.selectableFields"
        schema = schema_of(version.get("schema"))
        if schema is None:
            # The word "not" is upstream's.
            yield FieldError.invalid(
                at, "", "may only be set when `version.schema.openAPIV3Schema` is not included"
            )
        else:
            yield from selectable_errors(fields, schema, at, f"{path}.schema.openAPIV3Schema")


def part_errors(
    validation: Obj | None, holder: Obj, path: str, *, schema_path: str, has_status: bool
) -> Iterator[FieldError]:
    """Yield the errors of a schema, and of the subresources and columns of `holder`."""
    if (schema := schema_of(validation)) is not None:
        yield from schema_errors(schema, f"{schema_path}.openAPIV3Schema", has_status=has_status)
    scale = (holder.get("subresources") or {}).get("scale")
    if scale is not None:
        yield from _scale_errors(scale, f"{path}.subresources.scale")
    for index, column in enumerate(holder.get("additionalPrinterColumns") or ()):
        yield from _column_errors(column, f"{path}.additionalPrinterColumns[{index}]")


def _deprecation_errors(version: Obj, path: str) -> Iterator[FieldError]:
    warning = version.get("deprecationWarning")
    if warning is None:
        return
    if not version.get("deprecated"):
        yield FieldError.invalid(path, warning, "can only be set for deprecated versions")
        return
    if len(warning.encode()) > _WARNING_MAX_BYTES:
        yield FieldError.invalid(path, warning, "must be <= 256 characters long")
    if not warning:
        yield FieldError.invalid(path, warning, "must not be an empty string")
    for index, character in enumerate(warning):
        if not character.isprintable():
            yield FieldError.invalid(
                path,
                warning,
                "must only contain printable UTF-8 characters; non-printable character found at "
                f"index {len(warning[:index].encode())}",
            )
            break


def _scale_errors(scale: Obj, path: str) -> Iterator[FieldError]:
    for field, parent in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        value = scale.get(field, "")
        if not value:
            yield FieldError.required(f"{path}.{field}")
        elif not value.startswith("."):
            yield _not_a_path(f"{path}.{field}", value)
        elif not value.startswith(parent):
            yield FieldError.invalid(
                f"{path}.{field}", value, f"should be a json path under {parent[:-1]}"
            )
    selector = scale.get("labelSelectorPath", "")
    if selector and not selector.startswith("."):
        yield _not_a_path(f"{path}.labelSelectorPath", selector)
    elif selector and not selector.startswith((".spec.", ".status.")):
        yield FieldError.invalid(
            f"{path}.labelSelectorPath",
            selector,
            "should be a json path under either .spec or .status",
        )


def _not_a_path(path: str, value: str) -> FieldError:
    return FieldError.invalid(path, value, "must be a simple json path starting with .")


def _column_errors(column: Obj, path: str) -> Iterator[FieldError]:
    if not column.get("name"):
        yield FieldError.required(f"{path}.name")
    kind, detail = column.get("type", ""), f"must be one of {','.join(_COLUMN_TYPES)}"
    if not kind:
        yield FieldError.required(f"{path}.type", detail)
    elif kind not in _COLUMN_TYPES:
        yield FieldError.invalid(f"{path}.type", kind, detail)
    format_ = column.get("format", "")
    if format_ and format_ not in _COLUMN_FORMATS:
        yield FieldError.invalid(
            f"{path}.format", format_, f"must be one of {','.join(_COLUMN_FORMATS)}"
        )
    json_path = column.get("jsonPath", "")
    if not json_path:
        yield FieldError.required(f"{path}.JSONPath")
    elif not json_path.startswith("."):
        yield _not_a_path(f"{path}.JSONPath", json_path)


def selectable_errors(
    fields: list[Obj], schema: Schema, path: str, schema_path: str
) -> Iterator[FieldError]:
    """Yield the errors of fields that field selectors of custom resources may name."""
    if problem := structure_problem(schema):
        yield FieldError.invalid(schema_path, "", problem)
        return
    seen: set[str] = set()
    for index, field in enumerate(fields):
        at, json_path = f"{path}[{index}].jsonPath", field.get("jsonPath", "")
        if not json_path:
            yield FieldError.required(at)
            continue
        try:
            name, found = resolve_field_path(json_path, schema, permits_brackets=False)
        except FieldPathError as error:
            yield FieldError.invalid(at, json_path, f"is an invalid path: {error}")
            continue
        yield from _selectable_field_errors(json_path, at, name, found)
        if name in seen:
            yield FieldError.duplicate(at, json_path)
        seen.add(name)
    if len(seen) > _MAX_SELECTABLE:
        yield FieldError.too_many(path, len(seen), _MAX_SELECTABLE)


def _selectable_field_errors(
    json_path: str, path: str, name: str, schema: Schema | None
) -> Iterator[FieldError]:
    if re.match(r"metadata(?![^.\[])", name):
        yield FieldError.invalid(path, json_path, "must not point to fields in metadata")
    kind: Any = (schema or {}).get("type")
    if kind not in _SELECTABLE_TYPES:
        yield FieldError.invalid(
            path,
            json_path,
            "must point to a field of type string, boolean or integer. Enum string fields and "
            "strings with formats are allowed.",
        )
