"""Figures from trees of each layout, made of ordinary files."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from moorage.engine.cgroups import Accounts, Usage, UsageReader
from moorage.engine.cgroups.usage import ACCOUNT_SOURCES, USAGE_SOURCES, total_usage
from tests import cgroup_trees as trees

UNLIMITED = "9223372036854771712\n"


def fill_v1(root: Path, path: str = trees.POD) -> None:
    trees.write(root / f"cpuacct{path}", {
        "cpuacct.usage": "5000\n", "cpuacct.usage_user": "3000\n", "cpuacct.usage_sys": "2000\n",
    })  # fmt: skip
    trees.write(root / f"cpu{path}", {
        "cpu.stat": "nr_periods 9\nnr_throttled 2\nthrottled_time 700\n"
    })  # fmt: skip
    trees.write(root / f"memory{path}", {
        "memory.usage_in_bytes": "1000\n",
        "memory.stat": "cache 1\nrss 1\ntotal_cache 400\ntotal_rss 500\ntotal_inactive_file 300\n"
                       "total_pgfault 8\ntotal_pgmajfault 1\ntotal_swap 20\ntotal_mapped_file 60\n",
        "memory.limit_in_bytes": "4096\n",
        "memory.memsw.limit_in_bytes": "5096\n",
        "memory.max_usage_in_bytes": "1500\n",
        "memory.failcnt": "3\n",
        "memory.kmem.usage_in_bytes": "90\n",
        "memory.soft_limit_in_bytes": UNLIMITED,
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
    })  # fmt: skip
    trees.write(root / f"pids{path}", {"pids.current": "6\n", "pids.max": "max\n"})


def fill_v2(directory: Path) -> None:
    trees.write(directory, {
        "cpu.stat": "usage_usec 5\nuser_usec 3\nsystem_usec 2\nnr_periods 9\nnr_throttled 2\n"
                    "throttled_usec 7\n",
        "memory.current": "1000\n",
        "memory.stat": "anon 500\nfile 400\nkernel 90\nfile_mapped 60\ninactive_file 300\n"
                       "pgfault 8\npgmajfault 1\n",
        "memory.max": "4096\n",
        "memory.swap.current": "20\n",
        "memory.swap.max": "1000\n",
        "memory.peak": "1500\n",
        "memory.low": "0\n",
        "memory.events": "low 0\nhigh 0\nmax 3\noom 5\noom_kill 4\n",
        "pids.current": "6\n",
        "pids.max": "50\n",
    })  # fmt: skip


USAGE = Usage(
    cpu_ns=5000, memory=1000, inactive_file=300, rss=500, page_faults=8, major_page_faults=1,
    memory_limit=4096, swap=20, swap_limit=1000, pids=6,
)  # fmt: skip


@pytest.mark.parametrize("layout", ["v1", "v2", "hybrid"])
def test_the_same_use_reads_the_same_on_every_layout(tmp_path: Path, layout: str) -> None:
    make: Any = {"v1": trees.v1, "v2": trees.v2, "hybrid": trees.hybrid}[layout]
    cgroups = make(tmp_path)
    if layout == "v2":
        fill_v2(tmp_path / "pods/a")
    else:
        fill_v1(tmp_path)
    reader = UsageReader(cgroups)
    assert reader.usage(trees.POD) == USAGE
    assert reader.accounts(trees.POD) == Accounts(
        user_ns=3000,
        system_ns=2000,
        periods=9,
        throttled_periods=2,
        throttled_ns=7000 if layout == "v2" else 700,
        cache=400,
        mapped_file=60,
        kernel=90,
        peak=1500,
        failures=3,
        reservation=0 if layout == "v2" else None,
        pids_limit=50 if layout == "v2" else None,
        oom_kills=4,
    )
    assert reader.oom_kills(trees.POD) == 4


SCOPE = "/a.slice/cri-moorage-1.scope"
_UNLIMITED_V2 = {
    "cpu.stat": "usage_usec 5\nuser_usec 3\nsystem_usec 2\nnr_periods 0\nnr_throttled 0\n"
                "throttled_usec 0\n",
    "memory.current": "1100\n", "memory.max": "max\n", "memory.swap.max": "max\n",
    "memory.low": "0\n", "pids.max": "2993\n",
}  # fmt: skip


def test_limits_of_a_scope_are_those_of_cruns_cgroup_in_it(tmp_path: Path) -> None:
    scope = tmp_path / SCOPE.lstrip("/")
    fill_v2(scope)
    trees.write(scope, _UNLIMITED_V2)
    fill_v2(scope / "container")
    trees.write(scope / "container", {"memory.low": "512\n"})
    reader = UsageReader(trees.v2(tmp_path))
    usage, accounts = reader.usage(SCOPE), reader.accounts(SCOPE)
    assert (usage.memory_limit, usage.swap_limit, usage.available) == (4096, 1000, 3296)
    assert (accounts.pids_limit, accounts.reservation) == (50, 512)
    # The scope counts what is below it, but not how often the quota below it throttled.
    assert (usage.memory, usage.cpu_ns, accounts.oom_kills) == (1100, 5000, 4)
    assert (accounts.periods, accounts.throttled_periods, accounts.throttled_ns) == (9, 2, 7000)


@pytest.mark.parametrize("inner", ["max", "9999"])
def test_a_scopes_own_limits_hold_for_what_is_in_it(tmp_path: Path, inner: str) -> None:
    scope = tmp_path / SCOPE.lstrip("/")
    fill_v2(scope)
    trees.write(scope / "container", {
        "memory.max": f"{inner}\n", "memory.swap.max": f"{inner}\n", "pids.max": f"{inner}\n",
    })  # fmt: skip
    reader = UsageReader(trees.v2(tmp_path))
    assert reader.usage(SCOPE) == USAGE
    assert reader.accounts(SCOPE).pids_limit == 50


def test_another_cgroup_has_no_limits_of_a_container_below_it(tmp_path: Path) -> None:
    fill_v2(tmp_path / "pods/a")
    trees.write(tmp_path / "pods/a/container", {"memory.max": "1\n"})
    assert UsageReader(trees.v2(tmp_path)).usage(trees.POD) == USAGE


def test_a_memory_reservation_of_version_one_is_its_soft_limit(tmp_path: Path) -> None:
    cgroups = trees.v1(tmp_path)
    fill_v1(tmp_path)
    trees.write(tmp_path / f"memory{trees.POD}", {"memory.soft_limit_in_bytes": "2048\n"})
    assert UsageReader(cgroups).accounts(trees.POD).reservation == 2048


def test_version_one_counts_kills_below_too(tmp_path: Path) -> None:
    reader = UsageReader(trees.v1(tmp_path))
    for path, count in (("/pods", 0), ("/pods/a", 2), ("/pods/b/inner", 1)):
        trees.write(tmp_path / f"memory{path}", {"memory.oom_control": f"oom_kill {count}\n"})
    assert reader.oom_kills("/pods") == 3
    assert reader.oom_kills("/pods/gone") is None


def test_nothing_is_known_of_a_cgroup_that_has_gone(tmp_path: Path) -> None:
    for cgroups in (trees.hybrid(tmp_path), trees.v2(tmp_path)):
        reader = UsageReader(cgroups)
        assert reader.usage("/gone") == Usage()
        assert reader.accounts("/gone") == Accounts()


def test_missing_controller_leaves_the_other_figures(tmp_path: Path) -> None:
    fill_v2(tmp_path / "pods/a")
    usage = UsageReader(trees.v2(tmp_path, ("pids",))).usage(trees.POD)
    assert usage == Usage(cpu_ns=5000, pids=6)
    assert (usage.working_set, usage.available) == (None, None)
    assert UsageReader(trees.v2(tmp_path, ("pids",))).oom_kills(trees.POD) is None


def test_time_of_a_hybrid_without_cpuacct_is_the_unified_ones(tmp_path: Path) -> None:
    cgroups = trees.hybrid(tmp_path)
    del cgroups.v1["cpuacct"]  # type: ignore[attr-defined]
    trees.write(tmp_path / "unified/pods/a", {"cpu.stat": "usage_usec 5\n"})
    assert UsageReader(cgroups).usage(trees.POD).cpu_ns == 5000


@pytest.mark.parametrize(
    ("usage", "working_set", "available"),
    [
        (Usage(memory=1000, inactive_file=300), 700, None),
        (Usage(memory=1000, inactive_file=300, memory_limit=4096), 700, 3396),
        (Usage(memory=100, inactive_file=300, memory_limit=50), 0, 50),
        (Usage(memory=100, memory_limit=50), 100, 0),
        (Usage(), None, None),
    ],
)
def test_what_cannot_be_dropped(usage: Usage, working_set: int, available: int) -> None:
    assert (usage.working_set, usage.available) == (working_set, available)


def test_a_sum_has_no_limit() -> None:
    whole = total_usage([USAGE, Usage(cpu_ns=1), Usage()])
    assert (whole.cpu_ns, whole.memory, whole.memory_limit) == (5001, 1000, None)
    assert total_usage([]) == Usage()


def test_every_figure_has_its_sources() -> None:
    for shape, table in ((Usage, USAGE_SOURCES), (Accounts, ACCOUNT_SOURCES)):
        assert [field.name for field in fields(shape)] == list(table)
        assert all(
            {source.is_v2 for source in sources} == {True, False} for sources in table.values()
        )
