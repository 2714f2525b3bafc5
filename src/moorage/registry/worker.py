"""A thread for work on large objects, so that the event loop answers others meanwhile.

Decoding, merging and validating 3 MiB take about a second of Python; in a thread the interpreter
hands the loop its turn every few milliseconds. One thread, so that memory is needed for one such
object at a time. What runs here is pure: it touches neither the cache nor the store.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, ParamSpec, TypeVar

from moorage.api.errors import ServerTimeoutError, StatusError, TooManyRequestsError
from moorage.registry.codec import Media
from moorage.registry.request import Request

LARGE_OBJECT_BYTES: Final = 64 * 1024
_LARGE_BODY_BYTES = {Media.JSON: 64 * 1024, Media.YAML: 8 * 1024, Media.PROTOBUF: 8 * 1024}
# A list of `{}` costs its validation more than its bytes say.
_MANY_OBJECTS = 500

_WAITING = 64
_WAITING_OF_USER = 4
_DEADLINE_S = 30.0
_RETRY = {"retryAfterSeconds": 1}

P = ParamSpec("P")
R = TypeVar("R")


def is_large(body: bytes, media: Media) -> bool:
    """Whether a body may cost more than some milliseconds on the event loop."""
    return len(body) > _LARGE_BODY_BYTES[media] or (
        media is Media.JSON and body.count(b"{") > _MANY_OBJECTS
    )


class Worker:
    """The thread. Steps run in the order in which they come; `close` ends it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="large-objects")
        self._waiting: Counter[str] = Counter()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Give up what waits; a step that runs is let finish, by itself."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def run(
        self, request: Request, step: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Return what the step returns; a request that is not large takes it at once, in place.

        Raises what the step raises, TooManyRequestsError when too many steps wait already, of all
        users or of this one, and ServerTimeoutError when its turn does not come in time.
        """
        if not request.is_large:
            return step(*args, **kwargs)
        user = request.user.name
        self._enter(user)
        # A cancelled step stays in the thread's queue until its turn: it must not keep its body.
        calls = [partial(step, *args, **kwargs)]
        future = self._thread.submit(_call_last, calls)

        def done(_: Future[R | _Refusal]) -> None:
            calls.clear()
            self._leave(user)

        future.add_done_callback(done)
        try:
            outcome = await asyncio.wait_for(asyncio.wrap_future(future), _DEADLINE_S)
        except TimeoutError as error:
            raise ServerTimeoutError(
                f"the request is large and was not done within {_DEADLINE_S:.0f} s, since other "
                "large ones came first",
                dict(_RETRY),
            ) from error
        if not isinstance(outcome, _Refusal):
            return outcome
        try:
            raise outcome.error
        finally:
            # This frame is in the error's traceback.
            del outcome

    def _enter(self, user: str) -> None:
        with self._lock:
            is_full = self._waiting.total() >= _WAITING
            if is_full or self._waiting[user] >= _WAITING_OF_USER:
                raise TooManyRequestsError(
                    "too many large requests wait already, please try again later", dict(_RETRY)
                )
            self._waiting[user] += 1

    def _leave(self, user: str) -> None:
        with self._lock:
            self._waiting[user] -= 1
            if not self._waiting[user]:
                del self._waiting[user]


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The error of a step that refused its request."""

    error: Exception


def _call_last(calls: list[partial[R]]) -> R | _Refusal:
    """Call the step. Returns its refusal without tracebacks; raises any other error.

    An error that a future raises is in a circle with the frames that waited for it. The frames of
    the step would stay with it, and in them a document of up to 150,000 values, until the collector
    walks through everything: measured as 1.3 million objects and a pause of over a second.
    """
    try:
        return calls.pop()()
    except (StatusError, ValueError, RecursionError, OverflowError) as error:
        _drop_tracebacks(error)
        return _Refusal(error)


def _drop_tracebacks(error: BaseException) -> None:
    """Let go of the frames of an error, and of those it came from."""
    errors: list[BaseException | None] = [error]
    while errors:
        current = errors.pop()
        if current is not None and current.__traceback__ is not None:
            current.__traceback__ = None
            errors += [current.__cause__, current.__context__]
