"""Conditions of an object's status, by type. Source: API conventions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from moorage.api import meta

READY = "Ready"


class Condition(Protocol):
    """Common fields of the conditions of all kinds."""

    @property
    def type(self) -> str: ...

    @property
    def status(self) -> str: ...


def is_true(conditions: Iterable[Condition], type_: str) -> bool:
    """Return whether the condition of a type exists with status True."""
    return any(condition.type == type_ and condition.status == "True" for condition in conditions)


def is_ready(conditions: Iterable[Condition]) -> bool:
    """Return whether the conditions of a pod or node have Ready with status True."""
    return is_true(conditions, READY)


def transitioned(
    before: Iterable[meta.Condition],
    type_: str,
    *,
    holds: bool,
    reason: str,
    message: str,
    stamp: str,
    generation: int = 0,
) -> meta.Condition:
    """Return a condition. The transition time is that of the one before if its status is the same,
    else `stamp`.
    """
    status = "True" if holds else "False"
    current = next((one for one in before if one.type == type_), None)
    since = current.last_transition_time if current and current.status == status else None
    return meta.Condition(
        type=type_,
        status=status,
        observed_generation=generation,
        last_transition_time=since or stamp,
        reason=reason,
        message=message,
    )
