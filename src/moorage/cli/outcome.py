"""Table of what works where: of `moor attach` at its end, and of `moor runtimes` elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from moorage.cli.output import table

if TYPE_CHECKING:
    from moorage.attach.outcome import Outcome

_COLUMNS = ("node", "engine", "works", "does_not_work")


def outcome_table(outcome: Outcome) -> str:
    """Return a row for each node, its reasons below it, and the classes of handlers that work."""
    rows = [
        {
            "node": node.node,
            "engine": node.engine,
            "works": [
                f"{handler} ({isolation})" if isolation else handler
                for handler, isolation in node.working.items()
            ],
            "does_not_work": list(node.broken),
        }
        for node in outcome.nodes
    ]
    notes = [
        [
            *(f"{handler}: {reason}" for handler, reason in node.broken.items()),
            *((f"{node.problem}: {node.remedy or 'nothing to do'}",) if node.problem else ()),
        ]
        for node in outcome.nodes
    ]
    return "\n".join((table(rows, _COLUMNS, notes), *_classes(outcome)))


def _classes(outcome: Outcome) -> Iterator[str]:
    for handler, names in outcome.classes.items():
        if any(handler in node.working for node in outcome.nodes):
            yield f"handler {handler}: runtimeClassName {', '.join(names)}"
