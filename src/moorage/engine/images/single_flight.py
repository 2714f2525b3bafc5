"""Single flight: concurrent callers of one pull or unpack share the work.

The work is cancelled only when all its callers are.
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
    """Running work by key; its tasks belong to the given group."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._calls_by_key: dict[Hashable, _Call[Result]] = {}

    async def join(self, key: Hashable, start: Callable[[], Awaitable[Result]]) -> Result:
        """Wait for the running work of that key, or start it. Returns its result.

        Raises what the work raises. If the last waiting caller is cancelled, the work is cancelled,
        and the caller returns after its cleanup.
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
                # A later caller starts its own rather than joining work that is being cancelled.
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
            # All callers may have been cancelled; retrieve the exception so that the loop does not
            # log it.
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
