"""Validation declared in rows: a path and the checks of its value.

    validator(
        ("spec.drivers[*].nodeID", required, most_bytes(256, "must be 256 characters or less")),
        ("spec.drivers[*].allocatable.count", not_negative),
    )

`required` below an absent object reports the field; `spec.parameters?.name` looks into `parameters`
only where it is present. Errors come in the order of the rows; consecutive rows below one list are
checked item by item, as upstream's loops do. A check is called with the value and its full path,
only where the field is present, unless it is wrapped by `always`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj

Check: TypeAlias = Callable[[Any, str], Iterable[FieldError]]
Validator: TypeAlias = Callable[[Obj], list[FieldError]]
Comparison: TypeAlias = Callable[[Obj, Obj], Iterable[FieldError]]
"""The errors of an update, of the new object and the old one."""

IMMUTABLE = "field is immutable"
NOT_NEGATIVE = "must be greater than or equal to 0"


@dataclass(frozen=True, slots=True)
class Always:
    """A check that runs on absent fields too, then with the default."""

    check: Check
    default: Any = None


always = Always


@dataclass(frozen=True, slots=True)
class Unique:
    """Reports values that an earlier item of the nearest list above has.

    `key(value)` is compared, unless it is None, and shown in the error unless `show` is given.
    """

    key: Callable[[Any], Hashable]
    show: Callable[[Any], Any] | None = None


unique = Unique(lambda value: "" if value is None else value)
"""The check that no earlier item of the nearest list above has the same value at this path.

An absent value counts as empty.
"""

unique_unless_empty = Unique(lambda value: value or None)
"""The same check, which does not compare empty values."""

Row: TypeAlias = tuple[str, *tuple[Check | Always | Unique, ...]]


def whole(check: Callable[[Any], Iterable[FieldError]]) -> Always:
    """Return the check by a function that names paths itself; an absent object is an empty one."""
    return Always(lambda value, _: check({} if value is None else value))


def without_path(check: Callable[[Any], Iterable[FieldError]]) -> Check:
    """Return the check by a function that names paths itself."""
    return lambda value, _: check(value)


def each_field(path: str, names: Iterable[str], *checks: Check | Always) -> tuple[Row, ...]:
    """Return the rows of fields of one object that have the same checks."""
    return tuple((f"{path}.{name}", *checks) for name in names)


def or_else(default: Any, check: Check) -> Always:
    """Return the check as one that runs on absent fields too, with their default."""
    return Always(check, default)


def always_text(check: Check) -> Always:
    """Return the check of a text as one that runs on absent ones too, as empty texts."""
    return or_else("", check)


def required_as(detail: str) -> Always:
    """Return the check that a value is present and not empty; `detail` is the error's."""
    return Always(lambda value, path: () if value else (FieldError.required(path, detail),))


required = required_as("")
"""The check that a value is present and not empty."""


def present_as(detail: str) -> Always:
    """Return the check that a value is present; it may be empty. `detail` is the error's."""
    return Always(lambda value, path: (FieldError.required(path, detail),) if value is None else ())


present = present_as("")
"""The check that a value is present; it may be empty."""


def unless_empty(check: Check) -> Check:
    """Return the check as one that does not look at empty values."""
    return lambda value, path: check(value, path) if value else ()


def satisfies(is_right: Callable[[Any], object], detail: str) -> Check:
    """Return the check that a value satisfies a predicate; `detail` says what it must be."""
    return lambda value, path: () if is_right(value) else (FieldError.invalid(path, value, detail),)


def at_least(lowest: int, detail: str) -> Check:
    """Return the check of a number's lower bound."""
    return lambda value, path: () if value >= lowest else (FieldError.invalid(path, value, detail),)


not_negative = at_least(0, NOT_NEGATIVE)


def most_bytes(limit: int, detail: str = "") -> Check:
    """Return the check of a text's size; by default the error is `Too long`."""

    def check(value: str, path: str) -> Iterable[FieldError]:
        if len(value.encode()) <= limit:
            return ()
        if detail:
            return (FieldError.invalid(path, value, detail),)
        return (FieldError.too_long(path, limit),)

    return check


def between(lowest: int, highest: int, detail: str) -> Check:
    """Return the check of a number's bounds, both of which are allowed."""
    return satisfies(lambda value: lowest <= value <= highest, detail)


def invalid(detail: str) -> Check:
    """Return the check that fails for every value; for fields that `when` rules out."""
    return lambda value, path: (FieldError.invalid(path, value, detail),)


def forbidden(detail: str) -> Check:
    """Return the check that a field is absent, by an error that does not show it."""
    return lambda _, path: (FieldError.forbidden(path, detail),)


def when(holds: Callable[[Any], object], *rows: Row) -> Check:
    """Return the check of a value by rows, where the value satisfies a predicate."""
    check = part(*rows)
    return lambda value, path: check(value, path) if holds(value) else ()


def one_of(*allowed: str) -> Check:
    """Return the check that a value is one of a few."""
    return lambda value, path: (
        () if value in allowed else (FieldError.not_supported(path, value, allowed),)
    )


def required_one_of(*allowed: str) -> Always:
    """Return the check that a value is present and one of a few, sorted."""

    def check(value: Any, path: str) -> Iterable[FieldError]:
        if value in allowed:
            return ()
        if not value:
            return (FieldError.required(path),)
        return (FieldError.not_supported(path, value, allowed),)

    return Always(check)


def most_items(limit: int) -> Check:
    """Return the check of a list's length."""
    return lambda value, path: (
        () if len(value) <= limit else (FieldError.too_many(path, len(value), limit),)
    )


def follows(syntax: Callable[[str], Iterable[str]]) -> Check:
    """Return the check of a text by a function that returns what is wrong with it."""

    def check(value: str, path: str) -> Iterable[FieldError]:
        if details := syntax(value):
            return [FieldError.invalid(path, value, detail) for detail in details]
        return ()

    return check


def renamed(name: str, check: Check) -> Check:
    """Return the check of a field whose errors name another of the same object."""
    return lambda value, path: check(value, f"{path.rpartition('.')[0]}.{name}")


def each(check: Check) -> Check:
    """Return the check of a list whose items' errors name the list, not the item."""
    return lambda values, path: [error for value in values for error in check(value, path)]


def not_above(other: str, *fields: str, shown: str = "") -> Check:
    """Return the check of an object whose counts `fields` must not be above its count `other`.

    `shown` is the bound's name in errors, by default its path.
    """

    def check(obj: Obj, path: str) -> Iterator[FieldError]:
        limit = obj.get(other, 0)
        for name in fields:
            count = obj.get(name, 0)
            if count > limit:
                detail = f"cannot be greater than {shown or f'{path}.{other}'}"
                yield FieldError.invalid(f"{path}.{name}", count, detail)

    return check


def validator(*rows: Row) -> Validator:
    """Return the function that validates an object by the rows."""
    tree = _tree(rows)
    visit, compares = tree.compiled(""), tree.has_unique()

    def validate(obj: Obj) -> list[FieldError]:
        errors: list[FieldError] = []
        visit(obj, "", errors, set() if compares else _UNUSED)
        return errors

    return validate


def part(*rows: Row) -> Callable[[Any, str], list[FieldError]]:
    """Return the check of a value by rows whose paths begin at it: `type`, `[*].type`.

    For parts that several kinds have.
    """
    tree = _tree(rows)
    visit, compares = tree.compiled(None), tree.has_unique()

    def check(value: Any, path: str) -> list[FieldError]:
        errors: list[FieldError] = []
        visit(value, path, errors, set() if compares else _UNUSED)
        return errors

    return check


def update(
    validate: Validator, *, before: Comparison | None = None, after: Comparison | None = None
) -> Callable[[Obj, Obj], list[FieldError]]:
    """Return the validation of an update: that of the new object, and comparisons with the old.

    `before` and `after` say whether errors of a comparison come first or last.
    """

    def validate_update(new: Obj, old: Obj) -> list[FieldError]:
        errors = [] if before is None else [*before(new, old)]
        errors += validate(new)
        if after is not None:
            errors += after(new, old)
        return errors

    return validate_update


def in_turn(*comparisons: Comparison) -> Callable[[Obj, Obj], list[FieldError]]:
    """Return the comparison that reports what each of these does."""
    return lambda new, old: [error for compare in comparisons for error in compare(new, old)]


def immutable(*paths: str, absent: Any = None) -> Comparison:
    """Return the comparison that reports every field of these paths that an update changes.

    `absent` is the value that an absent field counts as, and is shown as: "" for plain strings.
    """
    getters = [(path, getter(path)) for path in paths]

    def compare(new: Obj, old: Obj) -> Iterator[FieldError]:
        for path, get in getters:
            before, after = (absent if value is None else value for value in (get(old), get(new)))
            if after != before:
                yield FieldError.invalid(path, after, IMMUTABLE)

    return compare


def getter(path: str) -> Callable[[Obj], Any]:
    """Return the function that returns the value at a path without `[*]`, or None."""
    first, *steps = path.split(".")
    if not steps:
        return lambda obj: obj.get(first)

    def get(obj: Obj) -> Any:
        value = obj.get(first)
        for step in steps:
            if value is None:
                return None
            value = value.get(step)
        return value

    return get


_Seen: TypeAlias = set[tuple[int, Hashable]]
_Visit: TypeAlias = Callable[[Any, str, list[FieldError], _Seen], None]
"""A compiled part of a table: a value, its path, the errors so far, the nearest list's values."""
_UNUSED: _Seen = set()
"""The values of a list whose items are not compared."""
_Leaf: TypeAlias = tuple[str | None, str, Check, bool, Any]
"""A field's name, None for the value itself; its path, or below a list what follows that of the
item; a check; whether it runs where the field is absent, and its default."""


@dataclass(slots=True)
class _Node:
    """A part of the tree that rows make up: checks of a value and, in their order, its fields."""

    parts: list[_Part] = field(default_factory=list)

    def add(self, steps: list[str], checks: list[Check | Always | Unique]) -> None:
        """Add a row. Only the row before shares nodes with it, so that the order is kept."""
        if not steps:
            self.parts += checks
            return
        last = self.parts[-1] if self.parts else None
        if not isinstance(last, tuple) or last[0] != steps[0]:
            last = (steps[0], _Node())
            self.parts.append(last)
        last[1].add(steps[1:], checks)

    def runs_on_absent(self) -> bool:
        """Return whether anything below runs where the value is absent."""
        return any(
            isinstance(part, Always | Unique)
            or (
                isinstance(part, tuple)
                and not part[0].endswith(("[*]", "?"))
                and part[1].runs_on_absent()
            )
            for part in self.parts
        )

    def has_unique(self) -> bool:
        """Return whether values are compared with those of earlier items, outside lists below."""
        return any(
            isinstance(part, Unique)
            or (isinstance(part, tuple) and not part[0].endswith("[*]") and part[1].has_unique())
            for part in self.parts
        )

    def compiled(self, path: str | None) -> _Visit:
        """Return the visit of this node. `path` is its path, None below a list."""
        visits: list[_Visit] = []
        leaves: list[_Leaf] = []
        for part in self.parts:
            if (of_part := _leaves(part, path)) is not None:
                leaves += of_part
                continue
            if leaves:
                visits.append(_checked(tuple(leaves), path))
                leaves = []
            visits.append(_inner(part, path))
        if leaves:
            visits.append(_checked(tuple(leaves), path))
        if len(visits) == 1:
            return visits[0]

        def visit(value: Any, at: str, errors: list[FieldError], seen: _Seen) -> None:
            for part in visits:
                part(value, at, errors, seen)

        return visit


_Part: TypeAlias = tuple[str, _Node] | Check | Always | Unique


def _tree(rows: Iterable[Row]) -> _Node:
    root = _Node()
    for where, *checks in rows:
        root.add(where.split(".") if where else [], checks)
    return root


def _first_only(unique: Unique) -> _Visit:
    mark, key, show = id(unique), unique.key, unique.show

    def run(value: Any, at: str, errors: list[FieldError], seen: _Seen) -> None:
        compared = key(value)
        if compared is None:
            return
        if (mark, compared) in seen:
            errors.append(FieldError.duplicate(at, compared if show is None else show(value)))
        seen.add((mark, compared))

    return run


def _joined(path: str | None, name: str) -> str:
    """Return the path of a field; below a list, where `path` is None, what follows the item's."""
    return f"{path}.{name}" if path else f".{name}" if path is None else name


def _leaves(part: _Part, path: str | None) -> list[_Leaf] | None:
    """Return the checks of a value or of one field of it; None where more than that is visited."""
    if isinstance(part, Unique):
        return None
    if isinstance(part, Always):
        return [(None, path or "", part.check, True, part.default)]
    if not isinstance(part, tuple):
        return [(None, path or "", part, False, None)]
    step, node = part
    name = step.removesuffix("?")
    leaves: list[_Leaf] = []
    for check in node.parts:
        if step.endswith("[*]") or isinstance(check, tuple | Unique):
            return None
        if isinstance(check, Always):
            leaf = (name, _joined(path, name), check.check, name == step, check.default)
        else:
            leaf = (name, _joined(path, name), check, False, None)
        leaves.append(leaf)
    return leaves


def _inner(part: _Part, path: str | None) -> _Visit:
    """Return the visit of what is more than checks of a value and its fields."""
    if isinstance(part, Unique):
        return _first_only(part)
    assert isinstance(part, tuple)
    step, node = part
    return _items(step.removesuffix("[*]"), node) if step.endswith("[*]") else _descent(*part, path)


def _descent(step: str, node: _Node, path: str | None) -> _Visit:
    """Return the visit of a field; its path is a constant unless it is below a list."""
    name = step.removesuffix("?")
    fixed = None if path is None else _joined(path, name)
    runs_on_absent = name == step and node.runs_on_absent()
    inner = node.compiled(fixed)

    def descend(value: Any, at: str, errors: list[FieldError], seen: _Seen) -> None:
        child = None if value is None else value.get(name)
        if child is not None or runs_on_absent:
            inner(child, f"{at}.{name}" if fixed is None else fixed, errors, seen)

    return descend


def _checked(leaves: tuple[_Leaf, ...], path: str | None) -> _Visit:
    """Return the visit of checks that need no other visit: most rows, so they share one call."""

    def check_fields(value: Any, at: str, errors: list[FieldError], seen: _Seen) -> None:
        del at, seen
        for name, place, check, runs_on_absent, default in leaves:
            child = value if name is None or value is None else value.get(name)
            if child is not None:
                errors += check(child, place)
            elif runs_on_absent:
                errors += check(default, place)

    def check_fields_below(value: Any, at: str, errors: list[FieldError], seen: _Seen) -> None:
        del seen
        for name, place, check, runs_on_absent, default in leaves:
            child = value if name is None or value is None else value.get(name)
            if child is not None:
                errors += check(child, at + place)
            elif runs_on_absent:
                errors += check(default, at + place)

    return check_fields_below if path is None else check_fields


def _items(name: str, node: _Node) -> _Visit:
    """Return the visit of a list's items, or of a map's values; they have a set of seen values."""
    inner, compares = node.compiled(None), node.has_unique()

    def visit_items(value: Any, at: str, errors: list[FieldError], seen: _Seen) -> None:
        del seen
        items = value.get(name) if name and value is not None else value
        if not items:
            return
        path = f"{at}.{name}" if at and name else at or name
        of_list: _Seen = set() if compares else _UNUSED
        pairs = items.items() if isinstance(items, dict) else enumerate(items)
        for key, item in pairs:
            inner(item, f"{path}[{key}]", errors, of_list)

    return visit_items
