"""Requests in flight, and series that go with what was served."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from moorage.apiserver.endpoints.routing import parse_path
from moorage.apiserver.registry.kinds import ALL_KINDS
from moorage.apiserver.registry.resource_map import ResourceMap
from moorage.apiserver.server.served_requests import InFlight, ServedRequests
from moorage.wire.metrics import exposition
from tests.clocks import FakeClock


def call(path: str, verb: str) -> Any:
    http = SimpleNamespace(query_string="", headers={})
    return SimpleNamespace(target=parse_path(path), verb=verb, http=http)


def test_series_go_with_what_was_served() -> None:
    requests = ServedRequests(ResourceMap(ALL_KINDS), FakeClock())
    kept = requests.series(call("/api/v1/pods", "list"))
    gone = requests.series(call("/apis/example.com/v1/things", "watch"))
    for series in (kept, gone):
        series.end(series.begin(is_long_running=False), 200, "", is_long_running=False)
    began_s = gone.begin(is_long_running=True)
    assert 'resource="things"' in exposition(requests.families())
    requests.forget_unserved()
    gone.end(began_s, 200, "", is_long_running=True)
    text = exposition(requests.families())
    assert 'resource="things"' not in text
    assert 'resource="pods"' in text


def test_the_peak_is_that_of_the_last_whole_second() -> None:
    clock = FakeClock()
    in_flight = InFlight(clock)
    in_flight.begin()
    in_flight.begin()
    in_flight.end()
    clock.advance(1)
    assert in_flight.peak() == 2
    clock.advance(1)
    assert in_flight.peak() == 1
    in_flight.end()
    clock.advance(5)
    assert in_flight.peak() == 0
