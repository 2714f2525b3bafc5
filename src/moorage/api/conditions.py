"""Conditions: what an object's status says of it, by type. Source: API conventions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

READY = "Ready"


class Condition(Protocol):
    """What the conditions of every kind have in common."""

    @property
    def type(self) -> str: ...

    @property
    def status(self) -> str: ...


def is_ready(conditions: Iterable[Condition]) -> bool:
    """Whether a pod's or node's conditions say that it is ready."""
    return any(each.type == READY and each.status == "True" for each in conditions)
