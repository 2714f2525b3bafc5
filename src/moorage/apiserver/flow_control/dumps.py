"""Dumps of flow control, for people: its priority levels, and the queues in use.

Source: apiserver `/debug/api_priority_and_fairness/dump_priority_levels` and `dump_queues`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from aiohttp import web

from moorage.apiserver.endpoints.replies import Reply, text_reply
from moorage.apiserver.flow_control.control import Flow, FlowControl
from moorage.apiserver.flow_control.seats import Level

_BELOW = "/debug/api_priority_and_fairness/"
_LEVELS = (
    "PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests",
    "ExecutingRequests", "DispatchedRequests", "RejectedRequests", "TimedoutRequests",
    "CancelledRequests",
)  # fmt: skip
_QUEUES = (
    "PriorityLevelName", "Index", "PendingRequests", "ExecutingRequests", "SeatsInUse",
    "NextDispatchR", "InitialSeatsSum", "MaxSeatsSum", "TotalWorkSum",
)  # fmt: skip
_NARROWEST = 8

_Row = Sequence[object]


class FlowDumps:
    """Serves the pages; None for any other path."""

    def __init__(self, control: FlowControl) -> None:
        self._control = control

    def __call__(self, http: web.BaseRequest) -> Reply | None:
        if not http.path.startswith(_BELOW):
            return None
        match http.path.removeprefix(_BELOW):
            case "dump_priority_levels":
                return text_reply(table((_LEVELS, *self._levels())))
            case "dump_queues":
                return text_reply(table((_QUEUES, *self._queues())))
            case _:
                return None

    def _levels(self) -> Iterator[_Row]:
        flows = list(self._control.flows())
        for level in sorted(self._control.pool.levels.values(), key=lambda level: level.name):
            yield _level_row(level, [flow for flow in flows if flow.level is level])

    def _queues(self) -> Iterator[_Row]:
        for level in self._control.pool.levels.values():
            for queue in sorted(level.queues.queues(), key=lambda queue: queue.index):
                waiting = len(queue.requests)
                yield (
                    level.name, queue.index, waiting, queue.executing, queue.executing,
                    f"{queue.start_s:.8f}ss", waiting, waiting, "0.00000000ss",
                )  # fmt: skip


def _level_row(level: Level, flows: list[Flow]) -> _Row:
    active = sum(1 for queue in level.queues.queues() if queue.requests)
    dispatched = sum(flow.dispatched for flow in flows)
    rejected = sum(sum(flow.rejected.values()) for flow in flows)
    timed_out = sum(flow.rejected.get("time-out", 0) for flow in flows)
    return (
        level.name, active, level.is_idle, level.is_leaving, level.queues.waiting, level.in_use,
        dispatched, rejected, 0, timed_out,
    )  # fmt: skip


def table(rows: Iterable[_Row]) -> str:
    """Return rows as text: cells end with a comma, and the last of a row is not padded."""
    lines = [[_shown(cell) for cell in row] for row in rows]
    widths = [
        max(_NARROWEST, *(len(cell) + 2 for cell in column)) for column in zip(*lines, strict=True)
    ]
    return "".join(
        "".join(f"{cell},".ljust(width) for cell, width in zip(line[:-1], widths, strict=False))
        + f"{line[-1]}\n"
        for line in lines
    )


def _shown(cell: object) -> str:
    return str(cell).lower() if isinstance(cell, bool) else str(cell)
