"""When a part is said not to answer, and when it is taken for hung."""

from __future__ import annotations

import pytest

from moorage.cluster.supervision.probes import AttendedClock, Liveness, Patience

PATIENCE = Patience(deadline_s=30.0, quiet_after=2, hung_after=4)


@pytest.mark.parametrize(
    ("answers", "now", "is_quiet", "is_hung"),
    [
        ("", 1000.0, False, False),
        ("-", 1000.0, False, False),
        ("--", 29.0, True, False),
        ("---", 1000.0, True, False),
        ("----", 29.9, True, False),
        ("----", 30.0, True, True),
        ("----+", 1000.0, False, False),
        ("----+---", 1000.0, True, False),
    ],
)
def test_silence(answers: str, now: float, is_quiet: bool, is_hung: bool) -> None:
    liveness = Liveness(PATIENCE, 0.0)
    for answer in answers:
        if answer == "+":
            liveness.answered(0.0)
        else:
            liveness.missed()
    assert (liveness.is_quiet, liveness.is_hung(now)) == (is_quiet, is_hung)


def test_a_long_wait_counts_as_the_longest_that_was_meant() -> None:
    clock = AttendedClock(100.0, longest_wait_s=10.0)
    assert clock.tick(104.0) == 4.0
    assert clock.tick(100_000.0) == 14.0
    assert clock.tick(100_001.0) == 15.0


def test_how_patient_a_supervisor_is() -> None:
    assert Patience() == Patience(
        period_s=5.0, answer_s=5.0, deadline_s=30.0, quiet_after=2, hung_after=4, start_s=120.0,
        longest_start_s=960.0,
    )  # fmt: skip


def test_an_answer_is_counted_from_its_time() -> None:
    liveness = Liveness(PATIENCE, 0.0)
    liveness.missed()
    liveness.answered(100.0)
    assert (liveness.answered_at, liveness.misses) == (100.0, 0)
    for _ in range(4):
        liveness.missed()
    assert not liveness.is_hung(129.9)
    assert liveness.is_hung(130.0)
