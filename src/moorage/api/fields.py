"""Field selectors: `status.phase=Running,spec.nodeName!=n1`.

Source: apimachinery `fields.ParseSelector`. Backslash escapes `\\`, `,` and `=` in values.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from moorage.api.remembered import remembered


class FieldRequirement(msgspec.Struct, frozen=True):
    field: str
    value: str
    is_equal: bool = True


class FieldSelector(msgspec.Struct, frozen=True):
    """A conjunction of field comparisons; with none it matches everything."""

    requirements: tuple[FieldRequirement, ...] = ()

    def matches(self, values: Mapping[str, str]) -> bool:
        """Return whether these selectable fields match; an absent field is empty."""
        return all(
            (values.get(requirement.field, "") == requirement.value) is requirement.is_equal
            for requirement in self.requirements
        )

    def required_value(self, field: str) -> str | None:
        """Return the value that the selector requires of a field, or None."""
        for requirement in self.requirements:
            if requirement.field == field and requirement.is_equal:
                return requirement.value
        return None

    @property
    def is_everything(self) -> bool:
        return not self.requirements

    def __str__(self) -> str:
        return ",".join(
            f"{r.field}{'=' if r.is_equal else '!='}{r.value}" for r in self.requirements
        )


EVERYTHING = FieldSelector()


@remembered(1024)
def parse(text: str) -> FieldSelector:
    """Parse a `fieldSelector=` query value. Raises ValueError for a part without operator."""
    return FieldSelector(tuple(_parse_part(part) for part in _split_terms(text) if part))


def _split_terms(text: str) -> list[str]:
    terms: list[str] = []
    current = ""
    position = 0
    while position < len(text):
        char = text[position]
        if char == "\\" and position + 1 < len(text):
            current += text[position : position + 2]
            position += 2
            continue
        if char == ",":
            terms.append(current)
            current = ""
        else:
            current += char
        position += 1
    terms.append(current)
    return terms


def _parse_part(part: str) -> FieldRequirement:
    for position, char in enumerate(part):
        rest = part[position:]
        if rest.startswith("!="):
            return FieldRequirement(part[:position], _unescaped(rest[2:]), is_equal=False)
        if rest.startswith("=="):
            return FieldRequirement(part[:position], _unescaped(rest[2:]))
        if char == "=":
            return FieldRequirement(part[:position], _unescaped(rest[1:]))
    raise ValueError(f"invalid selector: '{part}'; can't understand '{part}'")


def _unescaped(value: str) -> str:
    result = ""
    position = 0
    while position < len(value):
        if value[position] == "\\":
            position += 1
            if position == len(value) or value[position] not in "\\,=":
                raise ValueError(f"invalid field selector: invalid escape sequence in {value!r}")
        result += value[position]
        position += 1
    return result
