"""A request that waits, without an event loop."""

from __future__ import annotations

from moorage.apiserver.flow_control.fair_queues import Queue


class Waiter:
    """`is_over` and `may_start` are set by the test, `is_granted` by the pool."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.queue: Queue | None = None
        self.is_over = False
        self.may_start = True
        self.is_granted = False

    def grant(self) -> None:
        self.is_granted = True

    def __repr__(self) -> str:
        return self.name
