"""Counters and histograms."""

from __future__ import annotations

from moorage.wire.metrics import Counter, Gauge, Histogram, exposition
from moorage.wire.metrics.families import exponential


def test_counters_by_label() -> None:
    counts = Counter("n", "h", ["a", "b"])
    counts.count(a="1", b='q"')
    counts.count(2, a="1", b='q"')
    counts.count(a="2", b="x")
    assert list(counts.lines()) == ['n{a="1",b="q\\""} 3', 'n{a="2",b="x"} 1']
    counts.forget(a="1")
    assert list(counts.lines()) == ['n{a="2",b="x"} 1']


def test_no_digit_of_a_sample_is_lost() -> None:
    counts = Counter("n", "h")
    for amount in (1_234_567, 0.125):
        counts.count(amount)
    assert list(counts.lines()) == ["n 1234567.125"]


def test_histograms_count_everything_up_to_each_bound() -> None:
    histogram = Histogram("n", "h", ["handler"])
    for seconds in (0.005, 0.3, 99):
        histogram.observe(seconds, handler="crun")
    lines = list(histogram.lines())
    assert lines[0] == 'n_bucket{handler="crun",le="0.005"} 1'
    assert 'n_bucket{handler="crun",le="0.5"} 2' in lines
    assert lines[-3:] == [
        'n_bucket{handler="crun",le="+Inf"} 3',
        'n_sum{handler="crun"} 99.305',
        'n_count{handler="crun"} 3',
    ]


def test_histograms_have_the_bounds_that_they_are_given() -> None:
    histogram = Histogram("n", "h", bounds=exponential(1, 10, 3))
    histogram.observe(10)
    assert histogram.totals() == {(): 1}
    assert list(histogram.lines()) == [
        'n_bucket{le="1"} 0', 'n_bucket{le="10"} 1', 'n_bucket{le="100"} 1',
        'n_bucket{le="+Inf"} 1', "n_sum 10", "n_count 1",
    ]  # fmt: skip


def test_families_are_written_one_after_the_other() -> None:
    counts, level = Counter("a_total", "A."), Gauge("b", "B.")
    counts.count()
    level.set(0.5)
    assert exposition([counts, level]) == (
        "# HELP a_total A.\n# TYPE a_total counter\na_total 1\n# HELP b B.\n# TYPE b gauge\nb 0.5\n"
    )
