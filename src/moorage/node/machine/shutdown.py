"""Node shutdown as it is observed: whether the host is about to go down."""

from __future__ import annotations

from collections.abc import Callable


class NodeShutdown:
    """Whether a shutdown of the host has begun."""

    def __init__(self) -> None:
        self._is_begun = False
        self._listeners: list[Callable[[], None]] = []

    @property
    def is_begun(self) -> bool:
        return self._is_begun

    @property
    def problem(self) -> str:
        """Return why the node is not ready; empty if no shutdown has begun."""
        return "node is shutting down" if self._is_begun else ""

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Register a function to call after a change. It must not block."""
        self._listeners.append(listener)

    def update(self, is_begun: bool) -> None:
        """Set whether a shutdown has begun, and call the listeners if that has changed."""
        if is_begun != self._is_begun:
            self._is_begun = is_begun
            for listener in self._listeners:
                listener()
