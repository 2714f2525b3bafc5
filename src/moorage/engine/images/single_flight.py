"""Work that several ask for and one does: pulls of one image, unpacking of one layer.

A call ends early only when all that wait for it have gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class _Call(Generic[Result]):
    outcome: asyncio.Future[Result]
    task: asyncio.Task[None] | None = None
    waiting: int = 0


class SingleFlight(Generic[Result]):
    """SingleFlight by their key; their tasks live in the group given."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._calls_by_key: dict[Hashable, _Call[Result]] = {}

    async def join(self, key: Hashable, start: Callable[[], Awaitable[Result]]) -> Result:
        """The result of the work under way for that key, or of `start` if none is.

        Raises what the work raises. A caller that is cancelled and was the last to wait returns
        after the work has cleaned up.
        """
        call = self._calls_by_key.get(key)
        if call is None:
            call = _Call(asyncio.get_running_loop().create_future())
            self._calls_by_key[key] = call
            call.task = self._tasks.create_task(self._fly(key, call, start))
        call.waiting += 1
        try:
            return await asyncio.shield(call.outcome)
        finally:
            call.waiting -= 1
            if not call.waiting and not call.outcome.done():
                # Whoever comes now begins anew, and does not join what is being broken off.
                self._forget(key, call)
                assert call.task is not None
                call.task.cancel()
                await asyncio.wait((call.task,))

    async def _fly(
        self, key: Hashable, call: _Call[Result], start: Callable[[], Awaitable[Result]]
    ) -> None:
        try:
            result = await start()
        except asyncio.CancelledError:
            call.outcome.cancel()
            raise
        except BaseException as error:
            call.outcome.set_exception(error)
            # All may have gone in the meantime; a failure nobody heard is not the loop's concern.
            call.outcome.exception()
            if not isinstance(error, Exception):
                raise
        else:
            if not call.outcome.done():
                call.outcome.set_result(result)
        finally:
            self._forget(key, call)

    def _forget(self, key: Hashable, call: _Call[Result]) -> None:
        if self._calls_by_key.get(key) is call:
            del self._calls_by_key[key]
