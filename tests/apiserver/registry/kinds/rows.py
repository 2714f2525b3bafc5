"""The row and the columns of an object in its kind's table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from moorage.api.clock import parse_time
from moorage.apiserver.registry.kind import Obj, Printer
from moorage.apiserver.registry.kinds import STORED_KINDS
from tests.apiserver.registry.rules import parametrized

CREATED = "2026-01-01T00:00:00Z"
NOW = parse_time(CREATED).timestamp() + 90
WORKLOAD = {
    "replicas": 3,
    "selector": {"matchLabels": {"app": "w"}},
    "template": {
        "spec": {"containers": [{"name": "a", "image": "i:1"}, {"name": "b", "image": "j"}]}
    },
}
"""The specification of a workload with two containers."""

_META = {"metadata": {"name": "x", "creationTimestamp": CREATED}}
_PRINTERS = {kind.name: kind.printer for kind in STORED_KINDS}


def row(kind: str, fields: Obj) -> list[Any]:
    """Return the cells of an object named `x` that is 90 seconds old."""
    return _printer(kind).cells({**_META, **fields}, NOW)


def rows(kind: str, cases: Sequence[tuple[Obj, list[Any]]]) -> Callable[..., None]:
    """Return the test of the rows of objects with these fields."""

    def test(fields: Obj, cells: list[Any]) -> None:
        assert row(kind, fields) == cells

    return parametrized(("fields", "cells"), cases)(test)


def columns(kind: str) -> str:
    """Return the names of the columns, then of those that only `kubectl get -o wide` shows."""
    shown = [
        " ".join(c.name.replace(" ", "_") for c in _printer(kind).columns if c.priority == priority)
        for priority in (0, 1)
    ]
    return " | ".join(shown).rstrip()


def _printer(kind: str) -> Printer:
    printer = _PRINTERS[kind]
    assert printer is not None
    return printer
