"""Shares in a cgroup that several containers have together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorage.engine.cgroups.usage import Usage
from moorage.engine.stats.samples import CpuShares, share_of


def test_what_is_used_is_divided_among_those_that_run() -> None:
    shares = CpuShares()
    assert shares.share("a", 100, 1) == 100
    assert shares.share("a", 200, 2) == 150
    assert shares.share("b", 200, 2) == 100
    assert shares.share("a", 300, 1) == 250


def test_a_counter_that_restarts_is_anothers() -> None:
    shares = CpuShares()
    shares.share("a", 500, 1)
    assert shares.share("a", 30, 1) == 30


def test_those_read_least_lately_are_forgotten() -> None:
    shares = CpuShares(most_kept=1)
    shares.share("a", 100, 1)
    shares.share("b", 100, 1)
    assert shares.share("a", 200, 2) == 100


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 9)), max_size=20))
def test_time_never_falls_when_others_come_and_go(steps: list[tuple[int, int]]) -> None:
    shares, used, last = CpuShares(), 0, 0
    for more, containers in steps:
        used += more
        own = shares.share("a", used, containers)
        assert last <= own <= used
        last = own


def test_memory_is_divided_and_limits_are_not_the_containers() -> None:
    whole = Usage(cpu_ns=7, memory=100, inactive_file=40, memory_limit=500, rss=None, pids=3)
    share = share_of(whole, 2, 5)
    assert (share.cpu_ns, share.memory, share.inactive_file, share.pids) == (5, 50, 20, 1)
    assert share.memory_limit is None
    assert share.rss is None
