"""Templates of a chart, made of the objects that stand-ins give.

An object that is the same whatever the switches are is plain YAML. Where it differs, the smallest
part that does stands in an `if` for each switch that matters. Source: Helm docs "Chart Template
Guide".
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

from moorage.attach.chart.stand_ins import (
    CLOSE,
    LISTS,
    MAPS,
    NUMBERS,
    OPEN,
    SWITCHES,
    TEXTS,
    ListMarks,
    values_with,
)
from moorage.attach.manifests.identity import Obj
from moorage.attach.values import Values

Make: TypeAlias = Callable[[Values], list[Obj]]
Key: TypeAlias = tuple[str, str, str]
_States: TypeAlias = tuple[bool, ...]
_Variants: TypeAlias = Mapping[_States, Any]
"""A value for each combination of the switches that matter; `_ABSENT` where there is none."""

_ABSENT = object()
_CONDITIONS = {switch.path: switch.condition for switch in SWITCHES}
_STEP = "  "
_PATTERN = re.compile("|".join(re.escape(text) for text in sorted(TEXTS, key=len, reverse=True)))


class TemplateError(Exception):
    """An object uses a value in a way that no template can repeat."""


def templates(make: Make) -> dict[Key, str]:
    """Return the template of each object that `make` may return, by kind, namespace and name.

    Raises TemplateError for an object that changes a value: what it makes of it is not known.
    """

    seen: dict[Key, list[Obj]] = {}

    def shared(key: Key, obj: Obj) -> Obj:
        """Return the same object for equal ones, so that comparing them again costs nothing."""
        others = seen.setdefault(key, [])
        for other in others:
            if other is obj or other == obj:
                return other
        others.append(obj)
        return obj

    @cache
    def made(off: frozenset[str]) -> Mapping[Key, Obj]:
        values = values_with(dict.fromkeys(off, False))
        return {(key := _key(obj)): shared(key, obj) for obj in make(values)}

    keys: dict[Key, None] = {}
    for off in _baselines():
        keys |= dict.fromkeys(made(off))
    return {_shown_key(key): _template(key, made) for key in keys}


def _template(key: Key, made: Callable[[frozenset[str]], Mapping[Key, Obj]]) -> str:
    matter = [path for path in _CONDITIONS if _matters(path, key, made)]
    variants = {
        states: made(
            frozenset(path for path, is_on in zip(matter, states, strict=True) if not is_on)
        ).get(key, _ABSENT)
        for states in itertools.product((True, False), repeat=len(matter))
    }
    lines = list(_Emitter(matter).document(variants))
    text = "\n".join(lines) + "\n"
    if OPEN in text or CLOSE in text:
        raise TemplateError(f"{' '.join(key)}: a value is used in a way that no template repeats")
    return text


def _matters(path: str, key: Key, made: Callable[[frozenset[str]], Mapping[Key, Obj]]) -> bool:
    return any(
        made(off | {path}).get(key) is not made(off - {path}).get(key) for off in _baselines()
    )


def _baselines() -> Iterator[frozenset[str]]:
    """Yield combinations that show what each switch does: all on, all off, and one off or on."""
    paths = frozenset(_CONDITIONS)
    yield frozenset()
    yield paths
    for path in _CONDITIONS:
        yield frozenset({path})


def _key(obj: Obj) -> Key:
    metadata = obj["metadata"]
    return obj["kind"], metadata.get("namespace", ""), metadata["name"]


def _shown_key(key: Key) -> Key:
    return key[0], key[1].strip(OPEN + CLOSE), key[2].strip(OPEN + CLOSE)


class _Emitter:
    """Writer of one object's lines. Conditions stand alone on a line, where they leave nothing."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._conditions = [_CONDITIONS[path] for path in paths]

    def document(self, variants: _Variants) -> Iterator[str]:
        if all(value is _ABSENT for value in variants.values()):
            return
        if any(value is _ABSENT for value in variants.values()):
            yield from self._split(variants, self.document)
        else:
            yield from self._map(variants, "")

    def _map(self, variants: _Variants, indent: str) -> Iterator[str]:
        keys = dict.fromkeys(key for value in variants.values() for key in value)
        for key in keys:
            of_key = {states: value.get(key, _ABSENT) for states, value in variants.items()}
            yield from self._entry(key, of_key, indent)

    def _entry(self, key: str, variants: _Variants, indent: str) -> Iterator[str]:
        values = list(variants.values())
        if all(value is _ABSENT for value in values):
            return
        head = f"{indent}{_literal(key)}:"
        if not self._is_together(values):
            yield from self._split(variants, lambda side: self._entry(key, side, indent))
        elif isinstance(values[0], dict) and values[0]:
            if expression := _map_expression(values[0]):
                yield head
                yield f"{indent}{_STEP}{{{{- toYaml {expression} | nindent {len(indent) + 2} }}}}"
            else:
                yield head
                yield from self._map(variants, indent + _STEP)
        elif isinstance(values[0], list) and values[0]:
            yield head
            yield from self._list(variants, indent)
        else:
            yield f"{head} {_scalar(values[0])}"

    def _is_together(self, values: Sequence[Any]) -> bool:
        """Return whether values can be written as one, with conditions further inside."""
        first = values[0]
        if all(value == first for value in values) and first is not _ABSENT:
            return True
        if all(isinstance(value, dict) and value for value in values):
            return not any(_map_expression(value) for value in values)
        is_list = all(isinstance(value, list) and value for value in values)
        return is_list and _merged_order(values) is not None

    def _list(self, variants: _Variants, indent: str) -> Iterator[str]:
        order = _merged_order(list(variants.values()))
        if order is None:
            raise TemplateError("a list has the same element twice")
        skipped = False
        for index, identity in enumerate(order):
            if skipped:
                skipped = False
                continue
            items = {
                states: next((item for item in value if _identity(item) == identity), _ABSENT)
                for states, value in variants.items()
            }
            sample = next(item for item in items.values() if item is not _ABSENT)
            if marks := _marks_in(sample):
                following = next(
                    item
                    for value in variants.values()
                    for item in value
                    if _identity(item) == order[index + 1]
                )
                lines = list(_repeated(marks, sample, following, indent))
                yield from self._where_present(items, lines)
                skipped = True
            else:
                yield from self._item(items, indent)

    def _where_present(self, variants: _Variants, lines: Sequence[str]) -> Iterator[str]:
        """Write lines under the conditions with which there is a value."""
        if all(value is _ABSENT for value in variants.values()):
            return
        if any(value is _ABSENT for value in variants.values()):
            yield from self._split(variants, lambda side: self._where_present(side, lines))
        else:
            yield from lines

    def _item(self, variants: _Variants, indent: str) -> Iterator[str]:
        values = list(variants.values())
        if all(value is _ABSENT for value in values):
            return
        if not self._is_together(values):
            yield from self._split(variants, lambda side: self._item(side, indent))
        elif isinstance(values[0], dict) and values[0]:
            yield from _with_dash(self._map(variants, indent + _STEP), indent)
        elif isinstance(values[0], list):
            raise TemplateError("lists of lists are not written")
        else:
            yield f"{indent}- {_scalar(values[0])}"

    def _split(
        self, variants: _Variants, emit: Callable[[_Variants], Iterator[str]]
    ) -> Iterator[str]:
        """Write both sides of the first switch that makes a difference."""
        at = _deciding(variants)
        on = {states: value for states, value in variants.items() if states[at]}
        off = {states: value for states, value in variants.items() if not states[at]}
        inside, outside = list(emit(on)), list(emit(off))
        condition = self._conditions[at]
        if inside:
            yield f"{{{{- if {condition} }}}}"
            yield from inside
            if outside:
                yield "{{- else }}"
                yield from outside
        else:
            yield f"{{{{- if not ({condition}) }}}}"
            yield from outside
        yield "{{- end }}"


def _deciding(variants: _Variants) -> int:
    """Return the first switch with which alone the value changes."""
    for states, value in variants.items():
        for at in range(len(states)):
            other = (*states[:at], not states[at], *states[at + 1 :])
            if other in variants and variants[other] != value:
                return at
    raise TemplateError("no switch decides")


def _merged_order(values: Sequence[Sequence[Any]]) -> list[str] | None:
    """Return the elements of all lists in an order that is each one's; None if there is none."""
    order: list[str] = []
    for value in sorted(values, key=len, reverse=True):
        identities = [_identity(item) for item in value]
        if len(set(identities)) != len(identities):
            return None
        at = 0
        for identity in identities:
            if identity in order:
                place = order.index(identity)
                if place < at:
                    return None
                at = place + 1
            else:
                order.insert(at, identity)
                at += 1
    return order


def _identity(item: Any) -> str:
    if isinstance(item, dict):
        if "name" in item:
            return json.dumps(["name", item["name"]])
        if "key" in item:
            return json.dumps(["key", item["key"]])
    return json.dumps(item, sort_keys=True)


def _map_expression(value: Mapping[str, Any]) -> str:
    """Return the expression of a map that stands for the user's; empty for any other."""
    return MAPS.get(next(iter(value)), "") if len(value) == 1 else ""


def _marks_in(item: Any) -> ListMarks | None:
    """Return the list for whose first element an item stands, and not for the second too."""
    text = json.dumps(item, ensure_ascii=False)
    for marks in LISTS:
        first, second = (
            json.dumps(element, ensure_ascii=False).strip('"') for element in marks.elements
        )
        if first in text and second not in text:
            return marks
    return None


def _repeated(marks: ListMarks, first: Any, second: Any, indent: str) -> Iterator[str]:
    """Write what stands for each element of a user's list, given what two elements gave."""
    if first == marks.elements[0]:
        yield f"{indent}{{{{- toYaml {marks.expression} | nindent {len(indent)} }}}}"
        return
    yield f"{{{{- range $index, $element := {marks.expression} }}}}"
    if marks.condition:
        yield f"{{{{- if {marks.condition} }}}}"
    emitted = _repeated_map(first, second, marks, indent + _STEP)
    yield from _with_dash(emitted, indent)
    if marks.condition:
        yield "{{- end }}"
    yield "{{- end }}"


def _repeated_map(first: Any, second: Any, marks: ListMarks, indent: str) -> Iterator[str]:
    if not isinstance(first, dict) or not isinstance(second, dict) or first.keys() != second.keys():
        raise TemplateError("elements of a list are written in different ways")
    for key, value in first.items():
        other = second[key]
        if isinstance(value, dict):
            yield f"{indent}{_literal(key)}:"
            yield from _repeated_map(value, other, marks, indent + _STEP)
        elif value == marks.elements[0] and other == marks.elements[1]:
            yield f"{indent}{_literal(key)}: {{{{ toJson $element }}}}"
        elif value == other:
            yield f"{indent}{_literal(key)}: {_scalar(value)}"
        elif isinstance(value, str) and value.replace("0", "1") == other:
            before, _, after = value.partition("0")
            text = f"{_escaped(before)}%d{_escaped(after)}"
            yield f"{indent}{_literal(key)}: {{{{ printf {_go(text)} $index | toJson }}}}"
        else:
            raise TemplateError(f"field {key} of a list's elements is written in different ways")


def _with_dash(lines: Iterator[str], indent: str) -> Iterator[str]:
    """Put the dash of a list before the first line of a map, which must be no condition."""
    for index, line in enumerate(lines):
        if index == 0:
            if line.startswith("{{"):
                raise TemplateError("the first field of a list's element depends on a choice")
            yield f"{indent}- {line[len(indent) + 2 :]}"
        else:
            yield line


def _scalar(value: Any) -> str:
    """Return a value as YAML, with an expression for each stand-in."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int) and not isinstance(value, bool) and value in NUMBERS:
        return f"{{{{ {NUMBERS[value]} }}}}"
    if isinstance(value, dict | list):
        return _plain(value)
    return json.dumps(value)


def _plain(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    if OPEN in text:
        raise TemplateError(f"a value stands where none is looked for: {text}")
    return text


def _text(text: str) -> str:
    expressions: list[str] = []

    def taken(match: re.Match[str]) -> str:
        expressions.append(TEXTS[match[0]])
        return "%v"

    parts, at = [], 0
    for match in _PATTERN.finditer(text):
        parts += [_escaped(text[at : match.start()]), taken(match)]
        at = match.end()
    if not expressions:
        return _literal(text)
    written = "".join((*parts, _escaped(text[at:])))
    if written == "%v":
        return f"{{{{ toJson {expressions[0]} }}}}"
    return f"{{{{ printf {_go(written)} {' '.join(expressions)} | toJson }}}}"


def _literal(text: str) -> str:
    """Return a text as YAML; braces of templates in it are written by a template."""
    if "{{" in text or "}}" in text:
        return f"{{{{ toJson {_go(text)} }}}}"
    is_plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9./_-]*[A-Za-z0-9]", text) and text.lower() not in (
        "true", "false", "null", "yes", "no", "on", "off", "nan", "inf",
    )  # fmt: skip
    return text if is_plain else json.dumps(text, ensure_ascii=False)


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def _go(text: str) -> str:
    """Return a text as a string of Go, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False)
