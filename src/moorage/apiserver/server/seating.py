"""Seating: requests are answered while they have a seat of flow control, or else refused with 429.

Hot path: bench/requests.py. Source: apiserver `filters.WithPriorityAndFairness`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from aiohttp import web

from moorage.apiserver.endpoints.call import Call
from moorage.apiserver.endpoints.replies import Reply, overloaded
from moorage.apiserver.endpoints.routing import STREAMS, Target
from moorage.apiserver.flow_control import Flow, FlowControl
from moorage.apiserver.registry.request import User
from moorage.apiserver.server.served_requests import ServedRequests

_Answer = Callable[[Call], Awaitable[Reply | web.StreamResponse]]


class Seating:
    """Answers requests in seats. `share` is the key that a user's requests count for."""

    def __init__(self, control: FlowControl, requests: ServedRequests) -> None:
        self._control = control
        self._requests = requests

    def flow_of(self, user: User, verb: str, target: Target) -> Flow | None:
        """Return the flow of a request; None for streams other than watches, which have none."""
        if target.subresource in STREAMS:
            return None
        return self._control.flow_of(user, verb, target)

    async def answer(
        self, call: Call, share: str, flow: Flow, answer: _Answer
    ) -> Reply | web.StreamResponse:
        """Answer a call, which holds a seat until its answer is ready."""
        control = self._control
        seat = control.seat(flow, share) or await control.wait(flow, call.user, call.target, share)
        if seat is None:
            return overloaded()
        in_flight = self._requests.in_flight(call.verb)
        in_flight.begin()
        try:
            return await answer(call)
        finally:
            in_flight.end()
            seat.leave(share)

    async def start(
        self, call: Call, share: str, flow: Flow, answer: _Answer
    ) -> Reply | web.StreamResponse:
        """Answer a watch, which holds a seat until its stream begins."""
        control = self._control
        seat = control.seat(flow, share) or await control.wait(flow, call.user, call.target, share)
        if seat is None:
            return overloaded()
        leave, on_start = _once(partial(seat.leave, share)), call.on_start

        def started(code: int) -> None:
            leave()
            if on_start is not None:
                on_start(code)

        call.on_start = started
        try:
            return await answer(call)
        finally:
            leave()

    async def page(
        self,
        page: Callable[[], Awaitable[Reply | web.StreamResponse]],
        user: User,
        target: Target,
        share: str,
        flow: Flow,
    ) -> Reply | web.StreamResponse:
        """Answer a page."""
        control = self._control
        seat = control.seat(flow, share) or await control.wait(flow, user, target, share)
        if seat is None:
            return overloaded()
        try:
            return await page()
        finally:
            seat.leave(share)


def _once(action: Callable[[], None]) -> Callable[[], None]:
    """Return a function that takes an action when it is called first."""
    pending = [action]

    def act() -> None:
        if pending:
            pending.pop()()

    return act
