"""Own objects: policies and other objects of our group, checked against their kinds' definitions.

What an API server with these definitions would refuse, without one: unknown fields as kubectl's
strict validation does, values by the schema, and rules in CEL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import msgspec

from moorage.api.errors import FieldError, InvalidError
from moorage.api.meta import Raw
from moorage.api.runtime_group import GROUP
from moorage.apiserver.cel.evaluator import Evaluator
from moorage.apiserver.registry.custom.decoding import CustomType
from moorage.apiserver.registry.custom.definition import schema_of, type_of
from moorage.apiserver.registry.custom.expressions import expressions_of
from moorage.apiserver.registry.expressions import Expressions
from moorage.runtimes.custom_resources import definitions

_UNKNOWN = re.compile(r'unknown field "(.*)"')


class _Kind(msgspec.Struct, frozen=True):
    type: CustomType
    expressions: Expressions | None
    has_status: bool


async def own_object_errors(objects: Sequence[Raw]) -> list[list[FieldError]]:
    """Return the errors of each object of our group, none for a valid one."""
    kinds = _kinds()
    async with Evaluator() as evaluator:
        return [await _errors(value, kinds, evaluator) for value in objects]


def _kinds() -> dict[tuple[str, str], _Kind]:
    """Return the kinds of our group by API version and name."""
    return {
        (f"{GROUP}/{version['name']}", definition["spec"]["names"]["kind"]): _Kind(
            type_of(definition, version),
            expressions_of(schema_of(version)),
            "status" in version.get("subresources", {}),
        )
        for definition in definitions()
        for version in definition["spec"]["versions"]
    }


async def _errors(
    value: Raw, kinds: dict[tuple[str, str], _Kind], evaluator: Evaluator
) -> list[FieldError]:
    version, name = str(value.get("apiVersion", "")), str(value.get("kind", ""))
    kind = kinds.get((version, name))
    if kind is None:
        known = ", ".join(" ".join(pair) for pair in sorted(kinds))
        detail = f"{version} has no kind {name}; those of the group: {known}"
        return [FieldError.invalid("kind", name, detail)]
    fitted: dict[str, Any] = deepcopy(value)
    if kind.has_status:
        # As at a creation, which has none.
        fitted.pop("status", None)
    try:
        unknown = [_unknown_field(sentence) for sentence in kind.type.fit(fitted)]
    except InvalidError as error:
        return list(error.errors)
    errors = unknown + kind.type.errors(fitted)
    if not errors and kind.expressions is not None:
        errors += (await kind.expressions(evaluator, fitted, None)).errors
    return errors


def _unknown_field(sentence: str) -> FieldError:
    match = _UNKNOWN.fullmatch(sentence)
    return FieldError(match[1] if match else "", "FieldValueInvalid", "unknown field")
