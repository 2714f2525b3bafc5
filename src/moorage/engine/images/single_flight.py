"""Work that several ask for and one does: pulls of one image, unpacking of one layer.

A flight ends early only when all that wait for it have gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class _Flight(Generic[Result]):
    outcome: asyncio.Future[Result]
    task: asyncio.Task[None] | None = None
    waiting: int = 0


class Flights(Generic[Result]):
    """Flights by their key; their tasks live in the group given."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._flights: dict[Hashable, _Flight[Result]] = {}

    async def join(self, key: Hashable, start: Callable[[], Awaitable[Result]]) -> Result:
        """The result of the work under way for that key, or of `start` if none is.

        Raises what the work raises. A caller that is cancelled and was the last to wait returns
        after the work has cleaned up.
        """
        flight = self._flights.get(key)
        if flight is None:
            flight = _Flight(asyncio.get_running_loop().create_future())
            self._flights[key] = flight
            flight.task = self._tasks.create_task(self._fly(key, flight, start))
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.outcome)
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.outcome.done():
                # Whoever comes now begins anew, and does not join what is being broken off.
                self._forget(key, flight)
                assert flight.task is not None
                flight.task.cancel()
                await asyncio.wait((flight.task,))

    async def _fly(
        self, key: Hashable, flight: _Flight[Result], start: Callable[[], Awaitable[Result]]
    ) -> None:
        try:
            result = await start()
        except asyncio.CancelledError:
            flight.outcome.cancel()
            raise
        except BaseException as error:
            flight.outcome.set_exception(error)
            # All may have gone in the meantime; a failure nobody heard is not the loop's concern.
            flight.outcome.exception()
            if not isinstance(error, Exception):
                raise
        else:
            if not flight.outcome.done():
                flight.outcome.set_result(result)
        finally:
            self._forget(key, flight)

    def _forget(self, key: Hashable, flight: _Flight[Result]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
