"""Being told to stop by a terminal or another program, and cleaning up all the same.

Ctrl-C, SIGTERM and SIGHUP all interrupt what is going on, once; when cleaning up has begun, more of
them change nothing, since an impatient second Ctrl-C would leave half a cluster behind.
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
    """Whether signals interrupt, or are told to wait."""

    def __init__(self) -> None:
        self._is_held_off = False
        self._has_to_wait = False
        self._waiting: int | None = None
        self._cancel: Callable[[], object] | None = None

    def hold_off(self) -> None:
        """From now on signals change nothing: cleaning up has begun."""
        self._is_held_off = True

    def on_signal(self, number: int, frame: object) -> None:
        """Raises KeyboardInterrupt where that does not do harm."""
        del frame
        if self._is_held_off:
            click.echo("moor: cleaning up, a moment", err=True)
        elif self._has_to_wait:
            is_first, self._waiting = self._waiting is None, number
            if not is_first:
                click.echo("moor: cleaning up, a moment", err=True)
            elif self._cancel is not None:
                self._cancel()
        else:
            self._interrupt(number)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """What `asyncio.run` gives; a signal cancels it, so that its tasks clean up."""
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
        """A signal that comes in this block interrupts at its end."""
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
    """Let signals interrupt the block with KeyboardInterrupt, at most once."""
    interruptions = Interruptions()
    previous = {each: signal.signal(each, interruptions.on_signal) for each in _SIGNALS}
    try:
        yield interruptions
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
