"""Conditions of an object's status, by type. Source: API conventions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

READY = "Ready"


class Condition(Protocol):
    """Common fields of the conditions of all kinds."""

    @property
    def type(self) -> str: ...

    @property
    def status(self) -> str: ...


def is_true(conditions: Iterable[Condition], type_: str) -> bool:
    """Return whether the condition of a type is there with status True."""
    return any(condition.type == type_ and condition.status == "True" for condition in conditions)


def is_ready(conditions: Iterable[Condition]) -> bool:
    """Return whether the conditions of a pod or node have Ready with status True."""
    return is_true(conditions, READY)
