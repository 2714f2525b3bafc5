"""Validating policies: compilation and evaluation of their expressions, and checks of all policies.

Source: API docs "Validating Admission Policy"; apiserver `admission/plugin/policy/validating` of
Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moorage.apiserver.cel.environment import make_environment
from moorage.apiserver.cel.messages import Decision, PolicyInput, PolicyResult, Problem
from moorage.apiserver.cel.mutations import MUTATIONS, MutationForm
from moorage.apiserver.cel.policy_scope import (
    Condition,
    Policy,
    PolicyScope,
    Spending,
    Values,
    compile_condition,
    types_of,
)
from moorage.apiserver.cel.program import (
    RUNTIME_BUDGET,
    Budget,
    CompileError,
    EvaluationError,
    OutOfBudgetError,
    Program,
    type_name,
)
from moorage.apiserver.cel.values import CelType, Type

_VARIABLES = "variables"
_LONGEST_MESSAGE = 5 * 1024
_LONGEST_ANNOTATION = 10 * 1024


@dataclass(frozen=True, slots=True)
class _Validation:
    source: Policy
    condition: Condition
    message: Condition | None


class CompiledPolicy:
    """The programs of a validating policy."""

    def __init__(self, policy: Policy) -> None:
        """Compile a policy's expressions. Raises CompileError."""
        self._scope = PolicyScope(policy)
        types = self._scope.types
        self._validations = [
            _Validation(
                source,
                compile_condition(source["expression"], types),
                compile_condition(text, types)
                if (text := source.get("messageExpression"))
                else None,
            )
            for source in policy.get("validations", ())
        ]
        self._annotations = [
            (annotation["key"], compile_condition(annotation["valueExpression"], types))
            for annotation in policy.get("auditAnnotations", ())
        ]

    def evaluate(self, given: PolicyInput, params: Any) -> PolicyResult:
        """Evaluate the policy for a request and one object of parameters."""
        values = self._scope.values(given, params)
        try:
            if not self._scope.matches(values):
                return PolicyResult()
        except EvaluationError as error:
            return PolicyResult([Decision(str(error), is_error=True)])
        annotations: dict[str, str] = {}
        budget = Budget(RUNTIME_BUDGET)
        try:
            decisions = [*self._decisions(values, budget), *self._annotate(values, annotations)]
        except OutOfBudgetError as error:
            return PolicyResult([Decision(str(error), is_error=True)])
        return PolicyResult(decisions, annotations)

    def _decisions(self, values: Values, budget: Budget) -> list[Decision]:
        """Return the decisions. Raises OutOfBudgetError; messages are paid for last."""
        failed: list[tuple[int, _Validation]] = []
        errors: list[Decision] = []
        spending = Spending(budget)
        for index, validation in enumerate(self._validations):
            try:
                if validation.condition.evaluate(values, spending) is not True:
                    failed.append((index, validation))
            except EvaluationError as error:
                errors.append(Decision(str(error), index=index, is_error=True))
        spending = Spending(budget)
        try:
            decisions = [
                Decision(
                    _message(validation, values, spending),
                    index=index,
                    reason=validation.source.get("reason") or "Invalid",
                )
                for index, validation in failed
            ]
        except OutOfBudgetError as error:
            has_error = {decision.index for decision in errors}
            decisions = [
                Decision(f"failed messageExpression: {error}", index=index, is_error=True)
                for index in range(len(self._validations))
                if index not in has_error
            ]
        return sorted([*errors, *decisions], key=lambda decision: decision.index)

    def _annotate(self, values: Values, annotations: dict[str, str]) -> Iterator[Decision]:
        """Fill in the audit annotations. Yields the errors of those without a usable value.

        Raises OutOfBudgetError.
        """
        spending = Spending(Budget(RUNTIME_BUDGET))
        for key, condition in self._annotations:
            try:
                value = condition.evaluate(values, spending)
            except EvaluationError as error:
                yield Decision(str(error), is_error=True)
                continue
            if isinstance(value, str):
                if text := value.strip()[:_LONGEST_ANNOTATION]:
                    annotations[key] = text
            elif value is not None:
                yield Decision(
                    f"valueExpression '{condition.expression}' resulted in unsupported return "
                    f"type: {type(value).__name__}. Return type must be either string or null.",
                    is_error=True,
                )


def _message(validation: _Validation, values: Values, spending: Spending) -> str:
    """Return why a validation failed: its evaluated message, its message, or the expression.

    Raises OutOfBudgetError.
    """
    text = ""
    if validation.message is not None:
        try:
            evaluated = validation.message.evaluate(values, spending)
        except EvaluationError:
            evaluated = ""
        text = evaluated.strip() if isinstance(evaluated, str) else ""
        if "\n" in text or len(text.encode()) > _LONGEST_MESSAGE:
            text = ""
    text = text or validation.source.get("message", "").strip()
    return text or f"failed expression: {validation.condition.expression.strip()}"


def policy_problems(policy: Policy) -> list[Problem]:
    """Return the errors of the expressions of a policy that is otherwise valid."""
    types = types_of(policy)
    problems: list[Problem] = []
    for path, expression, allowed in _expressions(policy):
        if detail := _problem(expression, types, allowed):
            problems.append(Problem(path, expression, detail))
    for path, expression, form in _mutations(policy):
        if detail := _mutation_problem(expression, types, form):
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
    # Variables are of the type dyn here, and of that of their expression upstream: an expression
    # with one is checked when it is evaluated.
    is_of_variable = program.type == Type.DYN and f"{_VARIABLES}." in expression
    if not allowed or program.type in allowed or is_of_variable:
        return ""
    names = " ".join(type_name(type_) for type_ in allowed)
    wanted = names if len(allowed) == 1 else f"one of [{names}]"
    return f"must evaluate to {wanted} but got {type_name(program.type)}"


def _mutations(policy: Policy) -> Iterator[tuple[str, str, MutationForm]]:
    for index, mutation in enumerate(policy.get("mutations", ())):
        form = MUTATIONS[mutation["patchType"]]
        path = f".mutations[{index}].{form.field}.expression"
        yield path, mutation[form.field]["expression"], form


def _mutation_problem(expression: str, types: Mapping[str, CelType], form: MutationForm) -> str:
    try:
        program = compile_condition(expression, types, has_constructions=True).program
    except CompileError as error:
        return f"compilation failed: {error}"
    if program.type == form.type:
        return ""
    return f"must evaluate to {form.type_name} but got {type_name(program.type)}"
