from __future__ import annotations

from moorage.node.metrics import Counter, Histogram, Metrics


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


def test_only_what_was_asked_for() -> None:
    text = Metrics().text(["prober_"])
    assert "# TYPE prober_probe_total counter" in text
    assert "kubelet_" not in text
