"""Label selectors: the query-string form, the object form, and matching.

Source: apimachinery `labels.Parse` and `metav1.LabelSelector`. `!=` and `notin` match objects that
lack the key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from moorage.api import names
from moorage.api.numbers import parse_int
from moorage.api.remembered import remembered

Labels = Mapping[str, str]


class Requirement(msgspec.Struct, frozen=True):
    """One comma-separated part of a selector. `values` is sorted."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Labels) -> bool:
        return _MATCH[self.operator](labels.get(self.key), self.values)

    def __str__(self) -> str:
        match self.operator:
            case "exists":
                return self.key
            case "!":
                return f"!{self.key}"
            case "in" | "notin":
                return f"{self.key} {self.operator} ({','.join(self.values)})"
            case "gt":
                return f"{self.key}>{self.values[0]}"
            case "lt":
                return f"{self.key}<{self.values[0]}"
            case _:
                return f"{self.key}{self.operator}{self.values[0]}"


def _as_int(text: str) -> int | None:
    try:
        return parse_int(text)
    except ValueError:
        return None


def _is_ordered(
    value: str | None, bounds: tuple[str, ...], holds: Callable[[int, int], bool]
) -> bool:
    """Return whether a value is beyond the bound; an unvalidated selector may have none."""
    left = _as_int(value) if value is not None else None
    right = _as_int(bounds[0]) if bounds else None
    return left is not None and right is not None and holds(left, right)


_MATCH: dict[str, Callable[[str | None, tuple[str, ...]], bool]] = {
    "=": lambda value, values: value == values[0],
    "==": lambda value, values: value == values[0],
    "!=": lambda value, values: value != values[0],
    "in": lambda value, values: value is not None and value in values,
    "notin": lambda value, values: value is None or value not in values,
    "exists": lambda value, _: value is not None,
    "!": lambda value, _: value is None,
    "gt": lambda value, values: _is_ordered(value, values, int.__gt__),
    "lt": lambda value, values: _is_ordered(value, values, int.__lt__),
}


class Selector(msgspec.Struct, frozen=True):
    """A conjunction of requirements; with none it matches everything."""

    requirements: tuple[Requirement, ...] = ()
    matches_nothing: bool = False

    def matches(self, labels: Labels) -> bool:
        if self.matches_nothing:
            return False
        return all(requirement.matches(labels) for requirement in self.requirements)

    @property
    def is_everything(self) -> bool:
        return not self.requirements and not self.matches_nothing

    def __str__(self) -> str:
        return ",".join(str(requirement) for requirement in self.requirements)


EVERYTHING = Selector()
NOTHING = Selector(matches_nothing=True)

_TOKEN = re.compile(r"\s*(?P<token>==|!=|[=!<>(),]|[^\s=!<>(),]+)")
_SYMBOLS = {"=": "=", "==": "==", "!=": "!=", ">": "gt", "<": "lt"}
_OPERATORS = "in, notin, =, ==, !=, gt, lt"


@remembered(1024)
def parse(text: str) -> Selector:
    """Parse a `labelSelector=` query value. Raises ValueError with found and expected token."""
    tokens = _tokens(text)
    requirements: list[Requirement] = []
    position = 0
    while position < len(tokens):
        requirement, position = _parse_requirement(tokens, position)
        requirements.append(requirement)
        if position == len(tokens):
            break
        if tokens[position] != ",":
            raise ValueError(f"found '{tokens[position]}', expected: ',' or 'end of string'")
        position += 1
        if position == len(tokens):
            raise ValueError("found '', expected: identifier after ','")
    return Selector(tuple(sorted(requirements, key=lambda r: r.key)))


def _tokens(text: str) -> list[str]:
    stripped = text.rstrip()
    tokens: list[str] = []
    position = 0
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None:
            raise ValueError(f"unable to parse requirement: found '{stripped[position:]}'")
        tokens.append(match["token"])
        position = match.end()
    return tokens


def _parse_requirement(tokens: Sequence[str], at: int) -> tuple[Requirement, int]:
    if tokens[at] == "!":
        if at + 1 == len(tokens):
            raise ValueError("unable to parse requirement: found '', expected: identifier")
        return _checked(tokens[at + 1], "!", ()), at + 2
    key = tokens[at]
    if at + 1 == len(tokens) or tokens[at + 1] == ",":
        return _checked(key, "exists", ()), at + 1
    operator = tokens[at + 1]
    if operator in _SYMBOLS:
        value, after = _exact_value(tokens, at + 2)
        return _checked(key, _SYMBOLS[operator], (value,)), after
    if operator in ("in", "notin"):
        values, after = _value_set(tokens, at + 2)
        return _checked(key, operator, values), after
    raise ValueError(f"unable to parse requirement: found '{operator}', expected: {_OPERATORS}")


def _exact_value(tokens: Sequence[str], at: int) -> tuple[str, int]:
    if at == len(tokens) or tokens[at] == ",":
        return "", at
    if tokens[at] in "()=!<>":
        raise ValueError(f"unable to parse requirement: found '{tokens[at]}', expected: identifier")
    return tokens[at], at + 1


def _value_set(tokens: Sequence[str], at: int) -> tuple[tuple[str, ...], int]:
    if at == len(tokens) or tokens[at] != "(":
        actual_token = tokens[at] if at < len(tokens) else ""
        raise ValueError(f"unable to parse requirement: found '{actual_token}' expected: '('")
    values: set[str] = set()
    current = ""
    for position in range(at + 1, len(tokens)):
        token = tokens[position]
        if token == ")":
            values.add(current)
            return tuple(sorted(values)), position + 1
        if token == ",":
            values.add(current)
            current = ""
        elif current:
            raise ValueError(f"found '{token}', expected: ',', or ')'")
        else:
            current = token
    raise ValueError("unable to parse requirement: found '', expected: ',' or ')'")


def _checked(key: str, operator: str, values: tuple[str, ...]) -> Requirement:
    complaints = names.qualified_name_errors(key)
    if complaints:
        raise ValueError(f'key: Invalid value: "{key}": {"; ".join(complaints)}')
    if operator in ("gt", "lt") and _as_int(values[0]) is None:
        raise ValueError(
            f"values[0][{key}]: Invalid value: \"{values[0]}\": for 'Gt', 'Lt' operators, "
            "the value must be an integer"
        )
    for index, value in enumerate(values):
        complaints = names.label_value_errors(value)
        if complaints:
            raise ValueError(
                f'values[{index}][{key}]: Invalid value: "{value}": {"; ".join(complaints)}'
            )
    return Requirement(key, operator, values)


_OBJECT_OPERATORS = {
    "In": "in",
    "NotIn": "notin",
    "Exists": "exists",
    "DoesNotExist": "!",
    "Gt": "gt",
    "Lt": "lt",
}


def from_object(selector: Mapping[str, Any] | None) -> Selector:
    """Parse a `metav1.LabelSelector` as raw JSON; None selects nothing, `{}` everything.

    Raises ValueError for an unknown operator.
    """
    if selector is None:
        return NOTHING
    requirements = [
        Requirement(key, "=", (value,))
        for key, value in (selector.get("matchLabels") or {}).items()
    ]
    for expression in selector.get("matchExpressions") or ():
        operator = _OBJECT_OPERATORS.get(expression.get("operator", ""))
        if operator is None:
            raise ValueError(
                f'"{expression.get("operator")}" is not a valid label selector operator'
            )
        values = tuple(sorted(expression.get("values") or ()))
        requirements.append(Requirement(expression.get("key", ""), operator, values))
    return Selector(tuple(sorted(requirements, key=lambda r: r.key)))


def from_labels(labels: Labels) -> Selector:
    """Return a selector that requires these pairs."""
    return Selector(tuple(Requirement(key, "=", (value,)) for key, value in sorted(labels.items())))
