"""Readings: from summaries and cgroups, and what follows from several of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.meta import ObjectMeta
from moorage.api.pods import Pod
from moorage.linux.cgroups import Cgroups, Layout
from moorage.runtimeclass.overhead_estimates import MEBIBYTE, Activity
from moorage.runtimes.overhead.measurement import finished, last_cycle
from moorage.runtimes.overhead.readings import (
    CgroupSource,
    Reading,
    cpu_milli,
    find_pod_cgroup,
    peak_memory_bytes,
    reading_of,
)
from moorage.runtimes.overhead.report import ProbePod
from moorage.wire.client.node_summary import ContainerFigures, CpuFigures, MemoryFigures, PodFigures
from tests import cgroup_trees
from tests.clocks import FakeClock

STAMP = "2026-01-01T00:00:10Z"
UID = "10a18982-76dd-44ac-aea0-377c680a3302"
SLICE = "kubepods-besteffort-pod10a18982_76dd_44ac_aea0_377c680a3302.slice"
SIZES = st.none() | st.integers(0, 1 << 40)
READINGS = st.lists(
    st.builds(Reading, at_s=st.floats(0, 1e6), memory_bytes=SIZES, cpu_ns=SIZES), max_size=6
)


def probe(*readings: Reading, activity: Activity = Activity.IDLE, **more: object) -> ProbePod:
    values: dict[str, Any] = {"payload_bytes": 0, "source": "cgroup", **more}
    return ProbePod(
        name="p", node="n", containers=1, activity=activity, readings=readings, **values
    )


def test_a_summary_gives_the_pods_figures_and_the_sum_of_its_containers() -> None:
    figures = PodFigures(
        cpu=CpuFigures(time=STAMP, usage_core_nano_seconds=5),
        memory=MemoryFigures(working_set_bytes=30),
        containers=(
            ContainerFigures(memory=MemoryFigures(working_set_bytes=10)),
            ContainerFigures(memory=MemoryFigures(working_set_bytes=4)),
            ContainerFigures(),
        ),
    )
    reading = reading_of(figures, 1.0)
    assert (reading.memory_bytes, reading.containers_bytes, reading.cpu_ns) == (30, 14, 5)
    assert reading.at_s % 60 == 10


def test_a_summary_without_figures_is_a_reading_of_nothing() -> None:
    assert reading_of(PodFigures(), 3.0) == Reading(at_s=3.0)
    # Go writes an empty list as null.
    assert reading_of(PodFigures(containers=None), 3.0) == Reading(at_s=3.0)


@pytest.mark.parametrize(
    ("readings", "is_stamped", "expected"),
    [
        ([(0, 0), (10, 10**10)], False, 1000),
        ([(0, 0), (5, 1), (10, 10**9)], True, 100),
        ([(0, 0), (4, 10**9)], True, None),
        ([(0, 0), (4, 10**9)], False, 250),
        ([(0, 0)], False, None),
        ([(0, 0), (0, 5)], False, None),
        # Another cgroup of the same name: time that goes back is not use.
        ([(0, 5), (10, 0)], False, None),
        ([], False, None),
    ],
)
def test_cpu_is_use_over_time(
    readings: list[tuple[float, int]], is_stamped: bool, expected: float | None
) -> None:
    given_ = [Reading(at_s=at_s, cpu_ns=cpu_ns) for at_s, cpu_ns in readings]
    assert cpu_milli(given_, is_stamped=is_stamped) == expected


@given(READINGS, st.booleans())
def test_cpu_is_never_negative(readings: list[Reading], is_stamped: bool) -> None:
    milli = cpu_milli(readings, is_stamped=is_stamped)
    assert milli is None or milli >= 0


@given(READINGS, st.integers(0, 1 << 41), st.none() | st.integers(0, 1 << 30))
def test_a_sample_is_never_negative_and_a_probe_has_a_sample_or_a_reason(
    readings: list[Reading], payload: int, outside: int | None
) -> None:
    done = finished(probe(*readings, payload_bytes=payload, outside_bytes=outside))
    assert (done.sample is None) == bool(done.error)
    if done.sample is not None:
        assert done.sample.memory_bytes >= (outside or 0) >= 0


def test_what_runs_outside_the_cgroup_is_added() -> None:
    done = finished(probe(Reading(at_s=0, memory_bytes=30), outside_bytes=5, payload_bytes=20))
    assert done.sample is not None
    assert done.sample.memory_bytes == 15


def test_a_handler_that_reports_less_than_its_containers_hold_gives_no_sample() -> None:
    done = finished(probe(Reading(at_s=0, memory_bytes=MEBIBYTE), payload_bytes=16 * MEBIBYTE))
    assert done.sample is None
    assert "not charged to the pod" in done.error


def test_a_pod_without_figures_gives_no_sample() -> None:
    assert finished(probe(Reading(at_s=0), Reading(at_s=1))).error


def test_the_cpu_of_a_busy_pod_is_its_containers_work() -> None:
    readings = (Reading(at_s=0, memory_bytes=1, cpu_ns=0), Reading(at_s=1, cpu_ns=10**9))
    idle, busy = (finished(probe(*readings, activity=one)).sample for one in Activity)
    assert idle is not None
    assert busy is not None
    assert (idle.cpu_milli, busy.cpu_milli) == (1000, None)


def test_the_peak_is_the_most_of_those_that_are_known() -> None:
    readings = [Reading(at_s=0, memory_bytes=one) for one in (3, None, 9, 4)]
    assert peak_memory_bytes(readings) == 9
    assert peak_memory_bytes([]) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("ready\ncycle 1\ncycle 2\n", 2),
        ("cycle 7", 7),
        ("cycle x\n", None),
        ("", None),
        ("cycle 1 2\n\x00\n", None),
        ("cycle ²\n", None),
    ],
)
def test_the_last_cycle_of_a_log(text: str, number: int | None) -> None:
    assert last_cycle(text) == number


@pytest.mark.parametrize(
    "directory",
    [
        f"moorage-1/kubepods/burstable/pod{UID}",
        f"kubepods.slice/kubepods-besteffort.slice/{SLICE}",
    ],
)
def test_a_pods_cgroup_is_found_by_either_drivers_name(tmp_path: Path, directory: str) -> None:
    (tmp_path / directory / "child").mkdir(parents=True)
    cgroups = Cgroups(Layout.V2, unified=tmp_path, v2=("memory",))
    assert find_pod_cgroup(cgroups, UID) == f"/{directory}"
    assert find_pod_cgroup(cgroups, "other") is None
    assert find_pod_cgroup(cgroups, "") is None


async def test_a_guest_outside_of_the_pods_cgroup_is_read_with_it(tmp_path: Path) -> None:
    cgroups, sandbox, other = cgroup_trees.v2(tmp_path), "a" * 64, "b" * 64
    figures = {
        f"kubepods/pod{UID}": 100, f"kubepods/pod{UID}/kata_{sandbox}": 10,
        f"kata_overhead/{sandbox}": 1000, f"kata_overhead/{other}": 7,
    }  # fmt: skip
    for place, size in figures.items():
        cgroup_trees.write(
            tmp_path / place, {"memory.current": str(size), "cpu.stat": f"usage_usec {size}\n"}
        )
    source = CgroupSource(cgroups, FakeClock())
    pod = Pod(metadata=ObjectMeta(name="p", uid=UID))
    reading = await source.read(pod)
    assert (reading.memory_bytes, reading.cpu_ns) == (1100, 1_100_000)
    assert source.guest_of(pod) == f"/kata_overhead/{sandbox}"
    unknown = Pod(metadata=ObjectMeta(name="p", uid=UID.replace("1", "2")))
    assert source.guest_of(unknown) is None
