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


class Decision(msgspec.Struct, frozen=True):
    """A validation of a policy that does not hold, or an error (`is_error`).

    `index` is that of the validation; `reason` that of the Status.
    """

    message: str
    index: int = 0
    reason: str = "Invalid"
    is_error: bool = False


class PolicyResult(msgspec.Struct, frozen=True):
    """What a policy says about a request with one object of parameters."""

    decisions: list[Decision] = []


class PolicyInput(msgspec.Struct, frozen=True):
    """What the expressions of a policy see of a request."""

    request: dict[str, Any]
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    namespace: dict[str, Any] | None = None


class CheckPolicy(msgspec.Struct, frozen=True, tag="check policy"):
    """Compile the expressions of a policy; answered by a list of problems."""

    policy: dict[str, Any]


class EvaluatePolicy(msgspec.Struct, frozen=True, tag="evaluate policy"):
    """Evaluate a policy; answered by a result for each of `params`.

    `key` names the policy: a worker that has it needs no `policy`, one that does not answers None.
    """

    key: str
    policy: dict[str, Any] | None
    given: PolicyInput
    params: list[Any]


Request = CheckSchema | CheckObject | CheckPolicy | EvaluatePolicy
