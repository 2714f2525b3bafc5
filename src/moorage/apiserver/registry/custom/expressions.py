"""CEL rules of custom resources (`x-kubernetes-validations`).

Source: API docs "Validation rules"; apiextensions `schema/cel` of Kubernetes 1.36.
"""

from __future__ import annotations

import hashlib

import msgspec

from moorage.api.errors import FieldError, TooManyRequestsError
from moorage.apiserver.cel.evaluator import BusyError, Evaluator, LimitError
from moorage.apiserver.cel.messages import Violation
from moorage.apiserver.registry.custom.structure import Schema
from moorage.apiserver.registry.expressions import Evaluated, Expressions, Obj

RULES = "x-kubernetes-validations"
_ROOT = "<nil>"
_RETRY = {"retryAfterSeconds": 1}
_DETAIL_ONLY = {
    "FieldValueForbidden": FieldError.forbidden,
    "FieldValueRequired": FieldError.required,
}


def has_rules(schema: Schema) -> bool:
    """Return whether a schema has rules anywhere that values reach."""
    inner = [schema.get("items"), schema.get("additionalProperties")]
    inner += (schema.get("properties") or {}).values()
    inner += schema.get("allOf") or ()
    return bool(schema.get(RULES)) or any(
        has_rules(below) for below in inner if isinstance(below, dict)
    )


def expressions_of(schema: Schema) -> Expressions | None:
    """Return the evaluation of a schema's rules, None without any."""
    if not has_rules(schema):
        return None
    plain = dict(schema)
    key = hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()

    async def evaluate(evaluator: Evaluator, new: Obj, old: Obj | None) -> Evaluated:
        try:
            violations = await evaluator.violations(key, plain, new, old)
        except LimitError as error:
            detail = f"validation failed: {error}, no further validation rules will be run"
            return Evaluated([FieldError.invalid(_ROOT, "object", detail)])
        except BusyError as error:
            raise TooManyRequestsError(str(error), dict(_RETRY)) from error
        return Evaluated(
            [_error(one) for one in violations if not one.is_warning],
            [str(_error(one)) for one in violations if one.is_warning],
        )

    return evaluate


def _error(violation: Violation) -> FieldError:
    path = violation.path or _ROOT
    if violation.reason in _DETAIL_ONLY:
        return _DETAIL_ONLY[violation.reason](path, violation.detail)
    if violation.reason == "FieldValueDuplicate":
        return FieldError.duplicate(path, violation.value)
    if not violation.shows_value:
        return FieldError(path, "FieldValueInvalid", f"Invalid value: {violation.detail}")
    return FieldError.invalid(path, violation.value, violation.detail)
