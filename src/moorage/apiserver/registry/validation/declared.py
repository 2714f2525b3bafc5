"""Declared rules: those that upstream generates from the tags of its types.

Upstream appends their errors to those of its handwritten functions. A rule that both have is
reported by the declared one only. Source: declarative validation of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from moorage.api import names
from moorage.api.errors import FieldError

Item = TypeVar("Item")


class DeclaredError(FieldError, frozen=True):
    """The error of a declared rule; built like any FieldError."""


def in_order(errors: Iterable[FieldError]) -> list[FieldError]:
    """Return the errors in upstream's order: declared ones last."""
    return sorted(errors, key=lambda error: isinstance(error, DeclaredError))


def list_errors(
    items: Sequence[Item],
    path: str,
    limit: int | None,
    item_errors: Callable[[Item, str], Iterable[FieldError]],
    *,
    key: Callable[[Item], Hashable] | None = None,
) -> Iterator[FieldError]:
    """Validate a list: its length, the uniqueness of its keys, its items.

    A list that is too long is not looked at further. Lists without `key` may repeat items.
    """
    if limit is not None and len(items) > limit:
        yield DeclaredError.too_many(path, len(items), limit)
        return
    if key is not None:
        yield from duplicate_errors(items, path, key)
    for index, item in enumerate(items):
        yield from item_errors(item, f"{path}[{index}]")


def duplicate_errors(
    items: Sequence[Item], path: str, key: Callable[[Item], Hashable]
) -> Iterator[FieldError]:
    """Report every item whose key an earlier one has."""
    seen: set[Hashable] = set()
    for index, item in enumerate(items):
        if key(item) in seen:
            yield DeclaredError.duplicate(f"{path}[{index}]", item)
        seen.add(key(item))


def enum_errors(value: str, path: str, allowed: Sequence[str]) -> Iterator[FieldError]:
    """Validate a required value out of a sorted few."""
    if not value:
        yield DeclaredError.required(path)
    elif value not in allowed:
        yield DeclaredError.not_supported(path, value, allowed)


def short_name_errors(name: str, path: str) -> Iterator[FieldError]:
    """Validate a required DNS label."""
    if not name:
        yield DeclaredError.required(path)
        return
    for detail in names.dns_label_errors(name):
        yield DeclaredError.invalid(path, name, detail)


def long_name_errors(
    name: str, path: str, error: type[FieldError] = DeclaredError
) -> Iterator[FieldError]:
    """Validate a required DNS subdomain. `error`: FieldError where the rule is handwritten."""
    if not name:
        yield error.required(path)
        return
    for detail in names.dns_subdomain_errors(name):
        yield error.invalid(path, name, detail)


def max_characters_error(path: str, limit: int) -> FieldError:
    """Return the error of a text with more characters than allowed."""
    return DeclaredError(
        path, "FieldValueTooLong", f"Too long: may not be more than {limit} characters"
    )


def itself(item: Any) -> Hashable:
    """The key of an item of a set."""
    return str(item)
