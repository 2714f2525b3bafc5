"""Usage from two samples."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.apiserver.endpoints.resource_metrics.usage import Measurement, Usage, read_summary
from tests.apiserver.endpoints.resource_metrics.summaries import NANO, summary
from tests.clocks import START


def measurement(before: bytes, after: bytes, seconds: float = 2.0) -> Measurement:
    later = START + timedelta(seconds=seconds)
    return Measurement(read_summary(before, 10.0, START), read_summary(after, 10 + seconds, later))


def test_cpu_is_the_rate_and_memory_the_last_amount() -> None:
    measured = measurement(
        summary((5 * NANO, 100), u={"a": (1 * NANO, 7), "b": (0, 1)}),
        summary((6 * NANO, 200), u={"a": (5 * NANO, 8), "b": (0, 2)}),
    )
    assert measured.window_s == 2.0
    assert measured.time == START + timedelta(seconds=2)
    assert measured.node() == Usage(NANO // 2, 200)
    assert measured.pod("u") == {"a": Usage(2 * NANO, 8), "b": Usage(0, 2)}
    assert measured.pod("other") is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (summary(), summary(u={"a": (1, 1)})),
        (summary(u={"a": (1, 1)}), summary()),
        (summary(u={"a": (1, 1)}), summary(u={"a": (1, 1), "b": (1, 1)})),
        (summary(u={"a": (1, 1)}), summary(u={"a": (None, 1)})),
        (summary(u={"a": (1, 1)}), summary(u={"a": (1, None)})),
        (summary(u={"a": (None, 1)}), summary(u={"a": (1, 1)})),
        (summary(u={"a": (2, 1)}), summary(u={"a": (1, 1)})),
        (summary(u={"a": (-1, 1)}), summary(u={"a": (1, 1)})),
        (summary(u={}), summary(u={})),
    ],
)
def test_a_pod_of_which_a_container_was_not_measured_twice_has_no_usage(
    before: bytes, after: bytes
) -> None:
    assert measurement(before, after).pod("u") is None


def test_a_node_that_was_started_again_has_no_usage() -> None:
    assert measurement(summary((5, 1)), summary((4, 1))).node() is None
    assert measurement(summary((4, 1)), summary((5, 1)), seconds=0).node() is None


def test_what_go_writes_for_nothing_is_read() -> None:
    sample = read_summary(b'{"node":{"cpu":null},"pods":null}', 0.0, START)
    assert (sample.node, sample.pods) == (None, {})


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"node":1}', b'{"node":{},"pods":[{}]}'])
def test_other_documents_are_refused(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        read_summary(body, 0.0, START)


def test_a_node_has_a_bounded_number_of_containers() -> None:
    many = {f"c{number}": (1, 1) for number in range(10_001)}
    with pytest.raises(ValueError, match="10001 containers are more than 10000"):
        read_summary(summary(u=dict(many)), 0.0, START)


@given(st.integers(0, 2**60), st.integers(0, 2**60), st.floats(0.5, 60.0))
def test_usage_is_never_negative(first: int, second: int, seconds: float) -> None:
    usage = measurement(summary((first, 1)), summary((second, 1)), seconds).node()
    assert usage is None if second < first else usage is not None and usage.cpu_nanocores >= 0
