"""Messages between the evaluator and its worker, in MessagePack."""

from __future__ import annotations

from typing import Any

import msgspec


class Problem(msgspec.Struct, frozen=True):
    """What is wrong with a rule of a schema. `path` starts at the schema: `.properties[a]…`.

    `is_cost`: the rule, or the schema with an empty path, costs too much; there is no value then.
    """

    path: str
    value: Any
    detail: str
    is_cost: bool = False


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


class KeepSchema(msgspec.Struct, frozen=True, tag="keep schema"):
    """Compile and keep the rules of a schema that was checked, under a key.

    Answered by why they do not compile, empty if they do.
    """

    key: str
    schema: dict[str, Any]


class CheckObject(msgspec.Struct, frozen=True, tag="check object"):
    """Evaluate the rules of a schema, which `key` names; answered by a list of violations.

    A worker that does not have the schema answers None.
    """

    key: str
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
    """What a policy says about a request with one object of parameters.

    `annotations` are the values of its audit annotations, by key, without those that are null.
    """

    decisions: list[Decision] = []
    annotations: dict[str, str] = {}


class Mutation(msgspec.Struct, frozen=True):
    """What one mutation of a policy makes of a request.

    `matches`: the match conditions hold; an error without it is theirs. `value` is an apply
    configuration, or the operations of a JSON patch.
    """

    matches: bool = True
    value: Any = None
    error: str = ""


class PolicyInput(msgspec.Struct, frozen=True):
    """What the expressions of a policy see of a request."""

    request: dict[str, Any]
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    namespace: dict[str, Any] | None = None


class CheckPolicy(msgspec.Struct, frozen=True, tag="check policy"):
    """Compile the expressions of a policy; answered by a list of problems."""

    policy: dict[str, Any]


class CheckTypes(msgspec.Struct, frozen=True, tag="check types"):
    """Compile a policy's validations for the objects of one kind; answered by a list of problems.

    `kind` and `params` are schemas without references.
    """

    policy: dict[str, Any]
    kind: dict[str, Any]
    params: dict[str, Any] | None


class EvaluatePolicy(msgspec.Struct, frozen=True, tag="evaluate policy"):
    """Evaluate a policy; answered by a result for each of `params`.

    `key` names the policy: a worker that has it needs no `policy`, one that does not answers None.
    """

    key: str
    policy: dict[str, Any] | None
    given: PolicyInput
    params: list[Any]


class EvaluateMutation(msgspec.Struct, frozen=True, tag="evaluate mutation"):
    """Evaluate the mutation at an index of a policy; answered by a Mutation.

    `key` and `policy` are as in EvaluatePolicy. The match conditions are part of the first one.
    """

    key: str
    policy: dict[str, Any] | None
    given: PolicyInput
    params: Any
    index: int


Request = (
    CheckSchema
    | KeepSchema
    | CheckObject
    | CheckPolicy
    | CheckTypes
    | EvaluatePolicy
    | EvaluateMutation
)


class Check(msgspec.Struct, frozen=True):
    """An authorization check that an expression makes: a question of the worker.

    `account` is the namespace and name of a service account, empty for the user of the request;
    `path` is that of a check of no resource.
    """

    verb: str
    account: tuple[str, str] | None = None
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""


class Verdict(msgspec.Struct, frozen=True):
    """The answer to an authorization check."""

    is_allowed: bool
    reason: str = ""


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """The answer to a request, encoded."""

    body: msgspec.Raw
    cpu_s: float = 0.0


class Question(msgspec.Struct, frozen=True, tag="question"):
    """What the worker has to know before it can answer; the evaluator sends a Verdict."""

    check: Check


Reply = Answer | Question
