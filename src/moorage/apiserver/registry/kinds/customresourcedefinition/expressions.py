"""CEL rules of definitions: whether those of its schemas compile."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.errors import FieldError, TooManyRequestsError
from moorage.apiserver.cel.evaluator import BusyError, Evaluator, LimitError
from moorage.apiserver.registry.custom.expressions import has_rules
from moorage.apiserver.registry.expressions import Evaluated
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.customresourcedefinition.versions import (
    schema_of,
    shared_fields,
)
from moorage.apiserver.registry.validation.structural_schema import Schema

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
