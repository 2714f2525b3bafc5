"""Programs: one expression, compiled and evaluated, with errors in the words of cel-go.

Clients show these errors, so they read as kube-apiserver's. Source: cel-go `common/types`, compared
with kube-apiserver. An evaluation costs what it costs there, and is cut off at the same limit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cel_expr_python import cel

from moorage.apiserver.cel.checked import CheckedExpression
from moorage.apiserver.cel.construction import ConstructionError, rewrite, shown_error
from moorage.apiserver.cel.counted import counted
from moorage.apiserver.cel.environment import charged_functions
from moorage.apiserver.cel.library.declaring import CelType
from moorage.apiserver.cel.library.meter import EXCEEDED, metering

RUNTIME_BUDGET = 10_000_000
"""What all rules may cost for one object, and all validations of a policy for one request."""

_STATUS_CODE = re.compile(r"\A[A-Z_]+: ")
_STATUS_SUFFIX = re.compile(r" \[[A-Z_]+\]\Z")
_WORDS = (
    (re.compile(r'Key not found in map : "?(.*?)"?'), r"no such key: \1"),
    (re.compile(r"Index error: index=(-?\d+) size=\d+"), r"index out of bounds: \1"),
    (re.compile(r"divide by zero"), "division by zero"),
    (re.compile(r"No matching overloads found.*|Applying SELECT.*"), "no such overload"),
    (re.compile(r"(?i)iteration budget.*"), EXCEEDED),
)

_TYPE_NAME = re.compile(r"(?<![\w.])[A-Z_]+\b")
_TYPE_NAMES = {
    "DURATION": "google.protobuf.Duration",
    "NULL": "null_type",
    "TIMESTAMP": "google.protobuf.Timestamp",
}


class CompileError(ValueError):
    """An expression does not compile; the text says where and why."""


class EvaluationError(ValueError):
    """An expression has no value for this input."""

    @property
    def is_limit(self) -> bool:
        """Whether the evaluation was cut off."""
        return EXCEEDED in str(self)


class OutOfBudgetError(Exception):
    """The evaluations of one budget have cost more than they may."""

    def __init__(self) -> None:
        super().__init__(
            "validation failed due to running out of cost budget, no further validation rules will "
            "be run"
        )


class Budget:
    """What evaluations may still cost together."""

    def __init__(self, remaining: int) -> None:
        self.remaining = remaining

    def spend(self, cost: int) -> None:
        """Take a cost off. Raises OutOfBudgetError where less is left."""
        if cost > self.remaining:
            raise OutOfBudgetError
        self.remaining -= cost


class Program:
    """A compiled expression."""

    def __init__(
        self,
        environment: cel.Env,
        expression: str,
        *,
        has_constructions: bool = False,
        is_typed: bool = False,
    ) -> None:
        """Compile an expression. Raises CompileError.

        `has_constructions`: it may construct objects and patches. `is_typed`: costs are those of an
        expression whose dynamic values have known types.
        """
        self._environment = environment
        self._is_typed = is_typed
        self._counted: cel.Expression | None = None
        self._base_cost = 0
        try:
            rewritten = rewrite(expression, has_constructions=has_constructions)
        except ConstructionError as error:
            shown = shown_error(expression, error.offset, str(error))
            raise CompileError(f"ERROR: <input>:{shown}") from error
        try:
            self._compiled = environment.compile(rewritten.text)
        except RuntimeError as error:
            raise CompileError(rewritten.original_error(_without_status(str(error)))) from error

    @property
    def type(self) -> CelType:
        """The type of the value, as far as that is known without input."""
        return self._compiled.return_type()

    def returns(self, expected: CelType) -> bool:
        """Return whether the value is of a type, as far as that is known without input."""
        return self.type in (expected, cel.Type.DYN)

    def fields_of(self, variable: str) -> set[str]:
        """Return the fields of a variable that the expression mentions."""
        return CheckedExpression(self.serialized()).fields_of(variable)

    def serialized(self) -> bytes:
        """Return the checked expression as a message of the type `cel.expr.CheckedExpr`."""
        serialized: bytes = self._compiled.serialize()
        return serialized

    def evaluate(self, values: Mapping[str, Any], budget: Budget | None = None) -> Any:
        """Return the value for an input, and take its cost off a budget.

        Raises EvaluationError, and OutOfBudgetError whatever the value.
        """
        expression = self._counting()
        with metering() as meter:
            meter.cost = self._base_cost
            failure = ""
            try:
                value = expression.eval(data=dict(values))
            except (RuntimeError, ValueError) as error:
                failure = _in_words_of_cel_go(str(error))
        if budget is not None:
            budget.spend(meter.cost)
        if meter.is_exceeded or failure:
            raise EvaluationError(EXCEEDED if meter.is_exceeded else failure)
        if value.type() == cel.Type.ERROR:
            raise EvaluationError(_in_words_of_cel_go(str(value.plain_value())))
        try:
            return value.plain_value()
        except TypeError as error:
            raise EvaluationError(f"no value outside of expressions: {value.type()}") from error

    def _counting(self) -> cel.Expression:
        """Return the expression that counts its cost, made when it is first evaluated."""
        if self._counted is None:
            checked = CheckedExpression(self.serialized())
            tree = counted(checked, charged_functions(), is_typed=self._is_typed)
            self._counted = self._environment.deserialize(tree.serialized)
            self._base_cost = tree.base_cost
        return self._counted


def type_name(type_: CelType) -> str:
    """Return a type as cel-go names it: `list(int)`."""
    text = str(type_)
    if type_.is_message():
        return text
    renamed = _TYPE_NAME.sub(lambda match: _TYPE_NAMES.get(match[0], match[0].lower()), text)
    return renamed.replace("<", "(").replace(">", ")")


def _without_status(text: str) -> str:
    return _STATUS_SUFFIX.sub("", _STATUS_CODE.sub("", text.strip()))


def _in_words_of_cel_go(text: str) -> str:
    plain = _without_status(text)
    for pattern, words in _WORDS:
        match = pattern.fullmatch(plain)
        if match is not None:
            return match.expand(words)
    return plain
