"""Request deadlines: time limits of requests that are no streams, and the answers at their end.

A request has 60 s from its arrival, and a write of a resource 34 s from when its body is there, or
less if its `timeout` says so. Whatever it waits for is cancelled then. What it has stored stays, as
upstream. Source: apiserver `filters.WithRequestDeadline`, `WithTimeoutForNonLongRunningRequests`,
`handlers.requestTimeoutUpperBound`, `finisher.FinishRequest`.
"""

from __future__ import annotations

import asyncio
import math
import re
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import web

from moorage.api.durations import parse_duration
from moorage.api.errors import BadRequestError, ServerTimeoutError
from moorage.apiserver.admission.webhooks.dispatch import DEADLINE_S
from moorage.apiserver.aggregation.backend import ANSWER_S
from moorage.apiserver.endpoints.replies import TEXT, Reply
from moorage.apiserver.registry.custom.versions import BATCH_OBJECTS, SEE_S
from moorage.wire.webhooks import MAX_ANSWER_BYTES

_PARAMETER: Final = "timeout"
_SWEEP_S: Final = 1.0
_NEAR_S: Final = 2 * _SWEEP_S
_NO_UNIT = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)$", re.ASCII)
_UNKNOWN_UNIT = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)([^\d.]+)", re.ASCII)
_BODY: Final = (
    b'{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the '
    b'allotted timeout","reason":"Timeout","details":{},"code":504}\n'
)
"""What upstream writes past its encoders: the Status has neither kind nor apiVersion."""


class RequestLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds for a request, and for a write once its body is read."""

    request_s: float = 60.0
    write_s: float = 34.0

    def seconds(self, http: web.BaseRequest) -> float:
        """Return the limit of a request. Raises BadRequestError for an invalid `timeout`."""
        if _PARAMETER not in http.query_string:
            return self.request_s
        seconds = _parsed(http.query.get(_PARAMETER, ""))
        return seconds if 0 < seconds < self.request_s else self.request_s


class CallLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on what the server asks of webhooks and extension servers for a request.

    `webhooks_s` is for all admission webhooks of a request, `conversion_s` for one conversion,
    `conversions_s` for those of a request, `conversion_batch` objects at a time; `extension_s` is
    the time until an extension server's answer begins, `answer_bytes` the size of a webhook's.
    """

    webhooks_s: float = DEADLINE_S
    conversion_s: float = 30.0
    conversions_s: float = SEE_S
    conversion_batch: int = BATCH_OBJECTS
    extension_s: float = ANSWER_S
    answer_bytes: int = MAX_ANSWER_BYTES


class RequestDeadline:
    """The deadline of one request. At it, the request's task is cancelled."""

    __slots__ = ("_cancelling", "_task", "_timer", "until_s")

    def __init__(self, task: asyncio.Task[object], until_s: float) -> None:
        self.until_s = until_s
        """By the loop's clock; infinite for a request without a time limit."""
        self._task = task
        self._timer: asyncio.TimerHandle | None = None
        self._cancelling: int | None = None

    def has_expired(self) -> bool:
        """Say whether this deadline, and nothing else, cancelled the request."""
        return self._cancelling is not None and self._task.cancelling() == self._cancelling + 1

    def start_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel the request's task at the deadline, or at once if that is past."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self.until_s, self._expire)

    def close(self) -> None:
        """Stop the timer. The task, which serves the connection's next request, goes on."""
        if self._timer is not None:
            self._timer.cancel()
        if self._cancelling is not None:
            self._task.uncancel()

    def _expire(self) -> None:
        self._cancelling = self._task.cancelling()
        self._task.cancel()


class RequestDeadlines:
    """The deadlines of the requests that run now.

    `asyncio.timeout` for each request would cost a tenth of a small write, and hardly any goes off.
    Only a deadline that is near has a timer: each second those of the next two get theirs.
    """

    def __init__(self, limits: RequestLimits) -> None:
        self._write_s = limits.write_s
        self._later: set[RequestDeadline] = set()
        self._sweep_timer: asyncio.TimerHandle | None = None

    def begin(self, limit_s: float | None) -> RequestDeadline:
        """Return the deadline of the request that the running task answers."""
        loop = asyncio.get_running_loop()
        until_s = math.inf if limit_s is None else loop.time() + limit_s
        deadline = RequestDeadline(_running_task(), until_s)
        if limit_s is not None:
            self._watch(deadline, limit_s, loop)
        return deadline

    def begin_write(self, deadline: RequestDeadline) -> None:
        """Begin the time of a write, within that of its request."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._write_s
        if until_s < deadline.until_s:
            deadline.until_s = until_s
            self._watch(deadline, self._write_s, loop)

    def end(self, deadline: RequestDeadline) -> None:
        """Forget the deadline of a request that is answered or cancelled."""
        self._later.discard(deadline)
        deadline.close()

    def _watch(
        self, deadline: RequestDeadline, limit_s: float, loop: asyncio.AbstractEventLoop
    ) -> None:
        if limit_s < _NEAR_S:
            self._later.discard(deadline)
            deadline.start_timer(loop)
            return
        self._later.add(deadline)
        if self._sweep_timer is None:
            self._sweep_timer = loop.call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        near_s = loop.time() + _NEAR_S
        for deadline in [each for each in self._later if each.until_s < near_s]:
            self._later.discard(deadline)
            deadline.start_timer(loop)
        has_more = bool(self._later)
        self._sweep_timer = loop.call_later(_SWEEP_S, self._sweep) if has_more else None


def _running_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None, "a request is answered by a task"
    return task


def timed_out() -> Reply:
    """Return the answer to a request that took too long."""
    return Reply(_BODY, HTTPStatus.GATEWAY_TIMEOUT, TEXT)


def write_timed_out() -> ServerTimeoutError:
    """Return the error of a write that took too long."""
    return ServerTimeoutError(
        "Timeout: request did not complete within requested timeout - context deadline exceeded", {}
    )


def _parsed(text: str) -> float:
    """Return seconds, negative ones too; 0 without a text. Raises BadRequestError as Go says it."""
    if not text:
        return 0.0
    sign = -1 if text.startswith("-") else 1
    try:
        return sign * parse_duration(text.removeprefix("-" if sign < 0 else "+")).total_seconds()
    except ValueError as error:
        raise BadRequestError(
            f"invalid timeout specified in the request URL - time: {_why(text)}"
        ) from error


def _why(text: str) -> str:
    if _NO_UNIT.fullmatch(text):
        return f'missing unit in duration "{text}"'
    unknown = _UNKNOWN_UNIT.match(text)
    if unknown is not None and unknown[1] not in ("ns", "us", "µs", "ms", "s", "m", "h"):
        return f'unknown unit "{unknown[1]}" in duration "{text}"'
    return f'invalid duration "{text}"'
