"""CEL rules of objects: what a strategy asks of the evaluator, beside its own validation.

The evaluation takes place in another process, so it is awaited, while validation is not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec

from moorage.api.errors import FieldError
from moorage.apiserver.cel.evaluator import Evaluator

Obj = dict[str, Any]

_ROOT = "<nil>"
"""Path of an error that is about the whole object."""

_BLOCKING = frozenset(
    ("FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany",
     "FieldValueTypeInvalid")
)  # fmt: skip
_NOT_CHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation"
)


class Evaluated(msgspec.Struct, frozen=True):
    """The errors of rules, and the texts of those that the object broke before its change too."""

    errors: Sequence[FieldError] = ()
    warnings: Sequence[str] = ()


Expressions = Callable[[Evaluator, Obj, Obj | None], Awaitable[Evaluated]]
"""Evaluates the rules of a new object, or of a change when there is an old one."""


async def evaluate(
    expressions: Expressions,
    evaluator: Evaluator,
    errors: Iterable[FieldError],
    new: Obj,
    old: Obj | None,
) -> Evaluated:
    """Evaluate rules after validation, whose errors are given.

    Values that fit their schema badly are not evaluated; one error more says so. Source:
    apiextensions `customresource` strategy.
    """
    if any(error.kind in _BLOCKING for error in errors):
        return Evaluated([FieldError.invalid(_ROOT, None, _NOT_CHECKED)])
    return await expressions(evaluator, new, old)
