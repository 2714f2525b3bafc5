"""Replacing of changed containers: how long their end is not reported."""

from __future__ import annotations

from moorage.node.pods.stopping import Replacements
from moorage.node.runtime.views import State
from tests.clocks import FakeClock
from tests.node.objects import a_view, engine_has, exited

FIRST = engine_has("app", id="1")
ENDED = exited("app", id="1")
CREATED = engine_has("app", State.CREATED, id="2", created_s=9)
SECOND = engine_has("app", id="2", created_s=9)


def test_the_end_of_a_changed_container_is_held_back_until_its_successor_runs() -> None:
    clock = FakeClock()
    replacements = Replacements(clock)
    assert replacements.left_s(a_view(ENDED)) == 0
    replacements.begin(FIRST)
    # It still runs, for as long as it likes to.
    assert replacements.left_s(a_view(FIRST)) == 0
    clock.advance(60)
    assert replacements.left_s(a_view(ENDED)) == 1
    clock.advance(0.5)
    assert replacements.left_s(a_view(CREATED, ENDED)) == 0.5
    assert replacements.left_s(a_view(SECOND, ENDED)) == 0
    # What happens to the successor is reported at once.
    assert replacements.left_s(a_view(exited("app", id="2", created_s=9), ENDED)) == 0


def test_it_is_reported_if_the_successor_takes_long_or_never_comes() -> None:
    clock = FakeClock()
    replacements = Replacements(clock)
    replacements.begin(FIRST)
    assert replacements.left_s(a_view(ENDED)) == 1
    clock.advance(1)
    assert replacements.left_s(a_view(ENDED)) == 0
    assert replacements.left_s(a_view()) == 0


def test_one_container_does_not_hold_back_the_end_of_another() -> None:
    replacements = Replacements(FakeClock())
    replacements.begin(FIRST)
    assert replacements.left_s(a_view(FIRST, exited("other", id="3"))) == 0
