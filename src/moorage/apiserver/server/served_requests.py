"""Served requests: how many, how long they took, which are in progress, by what they are about.

Counted are authorized requests for a resource, verb and subresource that are served: the labels
cannot be made up by clients. Those of custom resources go with their definition. Hot path: the
labels of equal requests are kept, so a request costs a lookup and a few additions (bench/api.py).
Source: apiserver `endpoints/metrics`, whose names and meanings these are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import getrandbits

from aiohttp import web

from moorage.api.clock import Clock
from moorage.api.errors import StatusError
from moorage.apiserver.endpoints.call import Call
from moorage.apiserver.endpoints.routing import STREAMS
from moorage.apiserver.registry.resource_map import ResourceMap
from moorage.wire.metrics import Counter, Family, Gauge, Histogram

# Audit IDs: they identify requests in answers, logs and audit events, but authorize nothing.


class AuditIds:
    """Makes IDs in the form of a UUID: random for the process, then counted."""

    def __init__(self) -> None:
        digits = f"{getrandbits(80):020x}"
        self._start = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:]}-"
        self._number = getrandbits(40)

    def __call__(self) -> str:
        self._number += 1
        return f"{self._start}{self._number:012x}"


_COMPONENT = "apiserver"
_BOUNDS = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
)  # fmt: skip
_PLACE = ("group", "version", "resource", "subresource", "scope", "component")
_VERBS = {
    "get": "GET",
    "list": "LIST",
    "watch": "WATCH",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
_APPLY = "application/apply-patch+yaml"
_READ_VERBS = frozenset({"get", "list", "watch"})
_UPGRADED = frozenset({"exec", "attach", "portforward"})

_Key = tuple[str, str, str, str, str, str, str]
"""(verb, dry run, group, version, resource, subresource, scope)."""


class ServedRequests:
    """The requests of one server."""

    def __init__(self, resource_map: ResourceMap, clock: Clock) -> None:
        self._resource_map = resource_map
        self.clock = clock
        self._series: dict[_Key, RequestSeries] = {}
        self._reading = InFlight(clock)
        self._mutating = InFlight(clock)
        self.requests = Counter(
            "apiserver_request_total",
            "Counter of apiserver requests broken out for each verb, dry run value, group, "
            "version, resource, scope, component, and HTTP response code.",
            ("verb", "dry_run", *_PLACE, "code", "system_client"),
        )
        self.durations = Histogram(
            "apiserver_request_duration_seconds",
            "Response latency distribution in seconds for each verb, dry run value, group, "
            "version, resource, subresource, scope and component.",
            ("verb", "dry_run", *_PLACE),
            _BOUNDS,
        )
        self.long_running = Gauge(
            "apiserver_longrunning_requests",
            "Gauge of all active long-running apiserver requests broken out by verb, group, "
            "version, resource, scope and component. Not all requests are tracked this way.",
            ("verb", *_PLACE),
        )

    def series(self, call: Call) -> RequestSeries:
        """Return the series that a call is counted in."""
        target = call.target
        key = (
            _verb(call), _dry_run(call), target.group, target.version, target.resource,
            target.subresource, _scope(call),
        )  # fmt: skip
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = RequestSeries(self, key)
        return series

    def in_flight(self, verb: str) -> InFlight:
        """Return the requests in progress that one with this verb is among."""
        return self._reading if verb in _READ_VERBS else self._mutating

    def forget_unserved(self) -> None:
        """Remove the series of resources that are not served any more."""
        for key, series in list(self._series.items()):
            _, _, group, version, resource, _, _ = key
            if self._resource_map.find(group, version, resource) is None:
                series.is_forgotten = True
                del self._series[key]
                for family in (self.requests, self.durations, self.long_running):
                    family.forget(group=group, version=version, resource=resource)

    def families(self) -> Iterator[Family]:
        """Yield the families, with what is true now."""
        in_flight = Gauge(
            "apiserver_current_inflight_requests",
            "Maximal number of currently used inflight request limit of this apiserver per request "
            "kind in last second.",
            ("request_kind",),
        )
        in_flight.set(self._reading.peak(), request_kind="readOnly")
        in_flight.set(self._mutating.peak(), request_kind="mutating")
        yield from (self.requests, self.durations, self.long_running, in_flight)


class RequestSeries:
    """Requests with the same labels. `is_forgotten`: they are not counted any more."""

    __slots__ = ("_codes", "_durations", "_labels", "_long_running", "_requests", "is_forgotten")

    def __init__(self, requests: ServedRequests, key: _Key) -> None:
        verb, _, *place = key
        self._requests = requests
        self._labels = (*key, _COMPONENT)
        self._long_running = (verb, *place, _COMPONENT)
        self._durations = requests.durations.series(self._labels)
        self._codes: dict[tuple[int, str], tuple[str, ...]] = {}
        self.is_forgotten = False

    def begin(self, *, is_long_running: bool) -> float:
        """Count the begin of a request, and return its time, which `end` needs."""
        if is_long_running and not self.is_forgotten:
            self._requests.long_running.increment(self._long_running)
        return self._requests.clock.monotonic()

    def end(self, began_s: float, code: int, system_client: str, *, is_long_running: bool) -> None:
        """Count the end of a request with an HTTP status; 0 if none was sent."""
        if self.is_forgotten:
            return
        if is_long_running:
            self._requests.long_running.increment(self._long_running, -1)
        if code:
            self.count(code, system_client, self._requests.clock.monotonic() - began_s)

    def count(self, code: int, system_client: str, seconds: float) -> None:
        """Count a request that was answered with an HTTP status, after that time."""
        if self.is_forgotten:
            return
        values = self._codes.get((code, system_client))
        if values is None:
            values = (*self._labels, str(code), system_client)
            self._codes[code, system_client] = values
        self._requests.requests.increment(values)
        self._durations.observe(seconds)


class InFlight:
    """Requests that occupy a seat now, and the most that did so within the last whole second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now = 0
        self._peak = 0
        self._peak_before = 0
        self._second = 0

    def begin(self) -> None:
        """Count a request that occupies a seat."""
        self._roll()
        self._now += 1
        self._peak = max(self._peak, self._now)

    def end(self) -> None:
        """Count a request that left its seat."""
        self._roll()
        self._now -= 1

    def pass_through(self, now_s: float) -> None:
        """Count a request that begins and ends now, in the clock's monotonic seconds."""
        self._roll_to(int(now_s))
        self._peak = max(self._peak, self._now + 1)

    def peak(self) -> int:
        """Return the most requests at a time within the last whole second."""
        self._roll()
        return self._peak_before

    def _roll(self) -> None:
        self._roll_to(int(self._clock.monotonic()))

    def _roll_to(self, second: int) -> None:
        if second != self._second:
            self._peak_before = self._peak if second == self._second + 1 else self._now
            self._peak = self._now
            self._second = second


def code_of(error: BaseException, call: Call) -> int:
    """Return the HTTP status that ends a call with an error; 0 if none arrives.

    A stream ends when its client leaves, long after its status was sent.
    """
    if isinstance(error, StatusError):
        return error.status_code
    if isinstance(error, (asyncio.CancelledError, ConnectionResetError)):
        if not call.is_stream or call.target.subresource == "proxy":
            return 0
        return 101 if call.target.subresource in _UPGRADED else 200
    if isinstance(error, (RecursionError, UnicodeError, OverflowError, web.HTTPException)):
        return 400
    return 500


def _verb(call: Call) -> str:
    if call.target.subresource in STREAMS:
        return "CONNECT"
    if call.verb == "patch" and call.http.headers.get("Content-Type") == _APPLY:
        return "APPLY"
    return _VERBS[call.verb]


def _scope(call: Call) -> str:
    if call.target.name or call.verb == "create":
        return "resource"
    return "namespace" if call.target.namespace else "cluster"


def _dry_run(call: Call) -> str:
    # Hot path: nearly no request has the parameter.
    if "dryRun" not in call.http.query_string:
        return ""
    values = call.http.query.getall("dryRun", [])
    if not values:
        return ""
    return "All" if all(value == "All" for value in values) else "invalid"
