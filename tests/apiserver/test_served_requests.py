"""Requests in flight, and series that go with what was served."""

from __future__ import annotations

from moorage.apiserver.served_requests import InFlight
from tests.clocks import FakeClock


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
