"""Interruption by signals, with cleanup that further signals do not cut short.

Ctrl-C, SIGTERM and SIGHUP interrupt the command once; during cleanup they have no effect, since a
second Ctrl-C would leave a partial cluster behind.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruptions:
    """Signal handling of a command: signals interrupt it, are deferred, or are ignored."""

    def __init__(self) -> None:
        self._is_held_off = False
        self._has_to_wait = False
        self._waiting: int | None = None
        self._cancel: Callable[[], object] | None = None

    def hold_off(self) -> None:
        """Ignore signals from now on: cleanup has begun."""
        self._is_held_off = True

    def on_signal(self, number: int, frame: object) -> None:
        """Handle a signal. Raises KeyboardInterrupt unless signals are deferred or ignored."""
        del frame
        if self._is_held_off:
            click.echo("moor: cleaning up, please wait", err=True)
        elif self._has_to_wait:
            is_first, self._waiting = self._waiting is None, number
            if not is_first:
                click.echo("moor: cleaning up, please wait", err=True)
            elif self._cancel is not None:
                self._cancel()
        else:
            self._interrupt(number)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine as `asyncio.run` does; a signal cancels it, and its tasks clean up.

        Returns its result. Raises KeyboardInterrupt after the cleanup when a signal cancelled it.
        """
        try:
            with self.later(), asyncio.Runner() as runner:
                return runner.run(self._cancellable(main))
        except asyncio.CancelledError:
            if self._waiting is not None:
                self._interrupt(self._waiting)
            raise

    async def _cancellable(self, main: Coroutine[Any, Any, T]) -> T:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            if self._waiting is not None:
                main.close()
                raise asyncio.CancelledError
            return await main
        finally:
            self._cancel = None

    @contextmanager
    def later(self) -> Iterator[None]:
        """Defer signals that arrive in this block to its end. Raises KeyboardInterrupt there."""
        self._has_to_wait = True
        try:
            yield
        finally:
            self._has_to_wait = False
        if self._waiting is not None:
            self._interrupt(self._waiting)

    def _interrupt(self, number: int) -> None:
        self._is_held_off = True
        self._waiting = None
        raise KeyboardInterrupt(signal.Signals(number).name)


@contextmanager
def interruptible() -> Iterator[Interruptions]:
    """Let signals interrupt the block with KeyboardInterrupt, at most once.

    Restores the previous signal handlers at the end.
    """
    interruptions = Interruptions()
    previous = {number: signal.signal(number, interruptions.on_signal) for number in _SIGNALS}
    try:
        yield interruptions
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
