"""Admission policies: compilation and evaluation of their expressions.

Expressions see `object`, `oldObject`, `request`, `params`, `namespaceObject` and, by name,
`variables`. Variables are evaluated first, in their order; one that has no value is an error only
where an expression reaches it. Source: API docs "Validating Admission Policy"; apiserver
`admission/plugin/policy/validating` of Kubernetes 1.37.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from moorage.cel.environment import make_environment
from moorage.cel.messages import Decision, PolicyInput, PolicyResult, Problem
from moorage.cel.program import CompileError, EvaluationError, Program
from moorage.cel.values import CelType, Type

_LONGEST_MESSAGE = 5 * 1024
_NO_SUCH_KEY = "no such key: "

Policy = Mapping[str, Any]
"""The specification of a policy, as JSON."""


@dataclass(frozen=True, slots=True)
class _Condition:
    """An expression and its program."""

    expression: str
    program: Program

    def evaluate(self, values: _Values) -> Any:
        """Return the value. Raises EvaluationError, which names the expression."""
        try:
            return self.program.evaluate(values.known)
        except EvaluationError as error:
            raise EvaluationError(
                f"expression '{self.expression}' resulted in error: {values.explain(error)}"
            ) from error


@dataclass(frozen=True, slots=True)
class _Validation:
    source: Policy
    condition: _Condition
    message: _Condition | None


@dataclass(slots=True)
class _Values:
    """What expressions see, and the variables without a value, with the reason."""

    known: dict[str, Any]
    failed: dict[str, EvaluationError] = field(default_factory=dict)

    def explain(self, error: EvaluationError) -> str:
        """Return an error's text; that of a variable where the expression needed one."""
        text = str(error)
        failure = self.failed.get(text.removeprefix(_NO_SUCH_KEY))
        if failure is None or not text.startswith(_NO_SUCH_KEY):
            return text
        name = text.removeprefix(_NO_SUCH_KEY)
        return f'composited variable "{name}" fails to evaluate: {failure}'


class CompiledPolicy:
    """The programs of a policy."""

    def __init__(self, policy: Policy) -> None:
        """Compile a policy's expressions. Raises CompileError."""
        types = _types(policy)
        self._variables = [
            (variable["name"], _compile(variable["expression"], types))
            for variable in policy.get("variables", ())
        ]
        self._conditions = [
            _compile(condition["expression"], types)
            for condition in policy.get("matchConditions", ())
        ]
        self._validations = [
            _Validation(
                source,
                _compile(source["expression"], types),
                _compile(text, types) if (text := source.get("messageExpression")) else None,
            )
            for source in policy.get("validations", ())
        ]
        self._annotations = [
            _compile(annotation["valueExpression"], types)
            for annotation in policy.get("auditAnnotations", ())
        ]

    def evaluate(self, given: PolicyInput, params: Any) -> PolicyResult:
        """Evaluate the policy for a request and one object of parameters."""
        values = self._values(given, params)
        try:
            if not self._matches(values):
                return PolicyResult()
        except EvaluationError as error:
            return PolicyResult([Decision(str(error), is_error=True)])
        decisions = [*self._decisions(values), *self._annotation_errors(values)]
        return PolicyResult(decisions)

    def _values(self, given: PolicyInput, params: Any) -> _Values:
        variables: dict[str, Any] = {}
        values = _Values(
            {
                "object": given.object,
                "oldObject": given.old_object,
                "request": given.request,
                "namespaceObject": given.namespace,
                "params": params,
                "variables": variables,
            }
        )
        for name, condition in self._variables:
            try:
                variables[name] = _as_input(condition.program.evaluate(values.known))
            except EvaluationError as error:
                values.failed[name] = EvaluationError(values.explain(error))
        return values

    def _matches(self, values: _Values) -> bool:
        """Return whether all match conditions hold. Raises EvaluationError if none is false."""
        errors = []
        for condition in self._conditions:
            try:
                if condition.evaluate(values) is False:
                    return False
            except EvaluationError as error:
                errors.append(str(error))
        if errors:
            raise EvaluationError(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
        return True

    def _decisions(self, values: _Values) -> Iterator[Decision]:
        for index, validation in enumerate(self._validations):
            try:
                if validation.condition.evaluate(values) is True:
                    continue
            except EvaluationError as error:
                yield Decision(str(error), index=index, is_error=True)
                if error.is_limit:
                    return
                continue
            reason = validation.source.get("reason") or "Invalid"
            yield Decision(_message(validation, values), index=index, reason=reason)

    def _annotation_errors(self, values: _Values) -> Iterator[Decision]:
        """Yield the errors of audit annotations, which are not written anywhere yet."""
        for condition in self._annotations:
            try:
                value = condition.evaluate(values)
            except EvaluationError as error:
                yield Decision(str(error), is_error=True)
                continue
            if value is not None and not isinstance(value, str):
                yield Decision(
                    f"valueExpression '{condition.expression}' resulted in unsupported return "
                    f"type: {type(value).__name__}. Return type must be either string or null.",
                    is_error=True,
                )


def _message(validation: _Validation, values: _Values) -> str:
    """Return why a validation failed: its evaluated message, its message, or the expression."""
    text = ""
    if validation.message is not None:
        try:
            evaluated = validation.message.evaluate(values)
        except EvaluationError:
            evaluated = ""
        text = evaluated.strip() if isinstance(evaluated, str) else ""
        if "\n" in text or len(text.encode()) > _LONGEST_MESSAGE:
            text = ""
    text = text or validation.source.get("message", "").strip()
    return text or f"failed expression: {validation.condition.expression.strip()}"


def policy_problems(policy: Policy) -> list[Problem]:
    """Return what is wrong with the expressions of a policy that is otherwise valid."""
    types = _types(policy)
    problems: list[Problem] = []
    for path, expression, allowed in _expressions(policy):
        detail = _problem(expression, types, allowed)
        if detail:
            problems.append(Problem(path, expression, detail))
    return problems


def _expressions(policy: Policy) -> Iterator[tuple[str, str, Sequence[CelType]]]:
    """Yield each expression with its path and the types that it may have; none for any."""
    for index, condition in enumerate(policy.get("matchConditions", ())):
        path = f".matchConditions[{index}].expression"
        yield path, condition["expression"], (Type.BOOL,)
    for index, variable in enumerate(policy.get("variables", ())):
        yield f".variables[{index}].expression", variable["expression"], ()
    for index, validation in enumerate(policy.get("validations", ())):
        path = f".validations[{index}]"
        yield f"{path}.expression", validation["expression"], (Type.BOOL,)
        if text := validation.get("messageExpression"):
            yield f"{path}.messageExpression", text, (Type.STRING,)
    for index, annotation in enumerate(policy.get("auditAnnotations", ())):
        path = f".auditAnnotations[{index}].valueExpression"
        yield path, annotation["valueExpression"], (Type.STRING, Type.NULL)


def _problem(expression: str, types: Mapping[str, CelType], allowed: Sequence[CelType]) -> str:
    """Return why an expression cannot be used, empty if it can."""
    try:
        program = Program(make_environment(types), expression)
    except CompileError as error:
        return f"compilation failed: {error}"
    if not allowed or any(program.returns(type_) for type_ in allowed):
        return ""
    names = " ".join(str(type_).lower() for type_ in allowed)
    return (
        f"must evaluate to {names}" if len(allowed) == 1 else f"must evaluate to one of [{names}]"
    )


def _types(policy: Policy) -> dict[str, CelType]:
    """Return the variables of a policy's expressions: parameters only where it has a kind of them,
    variables only where it has some."""
    names = ["object", "oldObject", "request", "namespaceObject"]
    if "paramKind" in policy:
        names.append("params")
    if policy.get("variables"):
        names.append("variables")
    return dict.fromkeys(names, Type.DYN)


def _compile(expression: str, types: Mapping[str, CelType]) -> _Condition:
    return _Condition(expression, Program(make_environment(types), expression))


def _as_input(value: Any) -> Any:
    """Return a value as the library takes it again: spans and moments as messages."""
    match value:
        case dict():
            return {key: _as_input(item) for key, item in value.items()}
        case list():
            return [_as_input(item) for item in value]
        case datetime.timedelta():
            span = Duration()
            span.FromTimedelta(value)
            return span
        case datetime.datetime():
            moment = Timestamp()
            moment.FromDatetime(value)
            return moment
    return value
