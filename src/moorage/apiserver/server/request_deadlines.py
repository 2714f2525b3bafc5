"""Request deadlines: time limits of requests that are no streams, and the answers at their end.

A request has 60 s from its arrival, and a write of a resource 34 s from when its body is there, or
less if its `timeout` says so. Whatever it waits for is cancelled then. What it has stored stays, as
upstream. Source: apiserver `filters.WithRequestDeadline`, `WithTimeoutForNonLongRunningRequests`,
`handlers.requestTimeoutUpperBound`, `finisher.FinishRequest`.
"""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import web

from moorage.api.durations import parse_duration
from moorage.api.errors import BadRequestError, ServerTimeoutError
from moorage.apiserver.endpoints.replies import TEXT, Reply

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


class RequestDeadlines:
    """The deadlines of the requests that run now.

    A timer of the loop for each request would cost a tenth of a small write, and hardly any of them
    goes off. Only a deadline that is near has one: each second those of the next two get theirs.
    """

    def __init__(self, limits: RequestLimits) -> None:
        self._limits = limits
        self._later: dict[asyncio.Timeout, float] = {}
        self._sweep_timer: asyncio.TimerHandle | None = None

    def begin(self, limit_s: float | None) -> asyncio.Timeout:
        """Return the deadline of a request, to be entered at once and ended afterwards."""
        if limit_s is None or limit_s < _NEAR_S:
            return asyncio.timeout(limit_s)
        deadline = asyncio.timeout(None)
        self._keep(deadline, asyncio.get_running_loop().time() + limit_s)
        return deadline

    def begin_write(self, deadline: asyncio.Timeout) -> None:
        """Begin the time of a write, within that of its request."""
        until = asyncio.get_running_loop().time() + self._limits.write_s
        whole = self._later.get(deadline, deadline.when())
        if whole is not None and whole <= until:
            return
        if self._limits.write_s < _NEAR_S:
            self._later.pop(deadline, None)
            deadline.reschedule(until)
        else:
            self._keep(deadline, until)

    def end(self, deadline: asyncio.Timeout) -> None:
        """Forget the deadline of a request that is answered."""
        self._later.pop(deadline, None)

    def _keep(self, deadline: asyncio.Timeout, until: float) -> None:
        self._later[deadline] = until
        if self._sweep_timer is None:
            self._sweep_timer = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        near = loop.time() + _NEAR_S
        for deadline in [each for each, until in self._later.items() if until < near]:
            deadline.reschedule(self._later.pop(deadline))
        has_more = bool(self._later)
        self._sweep_timer = loop.call_later(_SWEEP_S, self._sweep) if has_more else None


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
