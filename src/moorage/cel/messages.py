"""Messages between the evaluator and its worker, in MessagePack."""

from __future__ import annotations

from typing import Any

import msgspec


class Problem(msgspec.Struct, frozen=True):
    """What is wrong with a rule of a schema. `path` starts at the schema: `.properties[a]…`."""

    path: str
    value: Any
    detail: str


class Violation(msgspec.Struct, frozen=True):
    """A rule that an object breaks, or that has no value for it.

    `path` starts at the object: `spec.replicas`. `reason` is that of the field error; `value` is
    left out of the error where `shows_value` is false. `is_warning`: the rule was broken before and
    the object may stay as it is.
    """

    path: str
    detail: str
    reason: str = "FieldValueInvalid"
    value: Any = None
    shows_value: bool = True
    is_warning: bool = False


class CheckSchema(msgspec.Struct, frozen=True, tag="check schema"):
    """Compile the rules of a schema; answered by a list of problems."""

    schema: dict[str, Any]


class CheckObject(msgspec.Struct, frozen=True, tag="check object"):
    """Evaluate the rules of a schema; answered by a list of violations.

    `key` names the schema: a worker that has it needs no `schema`, one that does not answers None.
    """

    key: str
    schema: dict[str, Any] | None
    new: dict[str, Any]
    old: dict[str, Any] | None


Request = CheckSchema | CheckObject
