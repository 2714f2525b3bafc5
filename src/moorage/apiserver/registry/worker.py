"""Worker thread for large objects, so that the event loop can serve other requests meanwhile.

Decoding, merging and validating 3 MiB take about a second of Python; in a thread the interpreter
switches to the loop every few milliseconds. One thread, so that memory is needed for one such
object at a time. Steps are pure: they touch neither the cache nor the store.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, TypeVar

import msgspec

from moorage.api.errors import ServerTimeoutError, StatusError, TooManyRequestsError
from moorage.apiserver.registry.codec import Media
from moorage.apiserver.registry.request import Request

LARGE_OBJECT_BYTES: Final = 64 * 1024
_LARGE_BODY_BYTES = {Media.JSON: 64 * 1024, Media.YAML: 8 * 1024, Media.PROTOBUF: 8 * 1024}
# Validation of a list of `{}` takes more time than its size suggests.
_MANY_OBJECTS = 500

_WAITING = 64
_WAITING_OF_USER = 4
_DEADLINE_S = 30.0
_RETRY = {"retryAfterSeconds": 1}

P = ParamSpec("P")
R = TypeVar("R")


def is_large(body: bytes, media: Media) -> bool:
    """Return whether a body may take more than a few milliseconds on the event loop."""
    return len(body) > _LARGE_BODY_BYTES[media] or (
        media is Media.JSON and body.count(b"{") > _MANY_OBJECTS
    )


class Worker:
    """The thread. Runs steps in order of arrival; `close` stops it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="large-objects")
        self._waiting: Counter[str] = Counter()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Cancel queued steps; a running step finishes in the background."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def run(
        self, request: Request, step: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run a step and return its result; for a small request on the event loop, at once.

        Raises what the step raises, TooManyRequestsError when too many steps are queued, of all
        users or of this one, and ServerTimeoutError when it does not start in time.
        """
        if not request.is_large:
            return step(*args, **kwargs)
        user = request.user.name
        self._enter(user)
        # A cancelled step stays in the thread's queue until its turn: it must release its body.
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


class _Refusal(msgspec.Struct, frozen=True):
    """Holds the error of a step that refused its request."""

    error: Exception


def _call_last(calls: list[partial[R]]) -> R | _Refusal:
    """Call the step. Returns its refusal without tracebacks; raises any other error.

    An error raised by a future is in a reference cycle with the frames that awaited it. It would
    keep the frames of the step, and in them a document of up to 150,000 values, until a full
    garbage collection: measured as 1.3 million objects and a pause of over a second.
    """
    try:
        return calls.pop()()
    except (StatusError, ValueError, RecursionError, OverflowError) as error:
        _drop_tracebacks(error)
        return _Refusal(error)


def _drop_tracebacks(error: BaseException) -> None:
    """Drop the tracebacks of an error, of its cause and of its context."""
    errors: list[BaseException | None] = [error]
    while errors:
        current = errors.pop()
        if current is not None and current.__traceback__ is not None:
            current.__traceback__ = None
            errors += [current.__cause__, current.__context__]
