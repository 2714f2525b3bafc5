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


def is_ready(conditions: Iterable[Condition]) -> bool:
    """Return whether the conditions of a pod or node have Ready with status True."""
    return any(condition.type == READY and condition.status == "True" for condition in conditions)
