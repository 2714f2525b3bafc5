"""Statistics of real cgroups with real processes, and of those that have gone."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.api.clock import SystemClock
from moorage.engine.cgroups.usage import Usage
from moorage.engine.stats import SharedCgroup, Statistics
from moorage.linux.cgroup_control import make_cgroup
from moorage.linux.cgroups import Cgroups, Layout, current_cgroups
from moorage.wire.cri import pb
from tests import cgroup_trees as trees
from tests.clocks import START_NS, FakeClock
from tests.engine.stats.subjects import container, sandbox
from tests.running import until

BUSY = """\
import sys
data = bytearray(40 << 20)
open(sys.argv[1], "w").close()
while True: pass
"""
Pod = tuple[Cgroups, str]


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Pod]:
    """A pod's cgroup of this machine, in whose `app` a process is busy."""
    with trees.real_cgroup("/pod") as (cgroups, path):
        make_cgroup(cgroups, f"{path}/app")
        ready = tmp_path / "ready"
        program = (sys.executable, "-c", BUSY, str(ready))
        with trees.enter(cgroups, f"{path}/app", *program) as process:
            try:
                until(ready.exists, "it has its memory", 10)
                yield cgroups, path
            finally:
                process.kill()


async def test_a_busy_container_is_seen_to_be(busy: Pod) -> None:
    cgroups, path = busy
    statistics = Statistics(cgroups, SystemClock())
    subject = container(cgroup=f"{path}/app")
    first = await statistics.container(subject)
    assert not first.cpu.HasField("usage_nano_cores")
    stats = first
    async with asyncio.timeout(60):
        # How much of a core it gets is for the other processes to decide.
        while not stats.cpu.usage_nano_cores.value:
            stats = await statistics.container(subject)
            assert stats.cpu.timestamp > first.cpu.timestamp
    assert stats.cpu.usage_core_nano_seconds.value > first.cpu.usage_core_nano_seconds.value
    assert 32 << 20 <= stats.memory.working_set_bytes.value <= stats.memory.usage_bytes.value
    assert stats.memory.rss_bytes.value >= 32 << 20
    assert not stats.memory.HasField("available_bytes")
    assert stats.writable_layer.used_bytes.value == 4096


async def test_containers_without_usage_of_their_own_share_their_pods(busy: Pod) -> None:
    cgroups, path = busy
    make_cgroup(cgroups, f"{path}/empty")
    containers = tuple(
        container(id_, cgroup=f"{path}/empty", shared=SharedCgroup(path, 2)) for id_ in ("a", "b")
    )
    statistics = Statistics(cgroups, SystemClock())
    stats = await statistics.sandbox(sandbox(cgroup=path, containers=containers))
    one, other = stats.linux.containers
    whole = stats.linux
    assert one.memory.rss_bytes.value >= 16 << 20
    assert one.cpu.usage_core_nano_seconds.value > 0
    shared = one.memory.rss_bytes.value + other.memory.rss_bytes.value
    assert shared <= whole.memory.rss_bytes.value + (1 << 20)
    (result,) = await statistics.metrics([sandbox(cgroup=path, containers=containers)])
    values = {one.name: one.value.value for one in result.container_metrics[0].metrics}
    assert values["container_memory_rss"] >= 16 << 20
    subject = container(cgroup=f"{path}/app", shared=SharedCgroup(path, 9))
    assert (await statistics.container(subject)).memory.rss_bytes.value >= 32 << 20


@pytest.mark.parametrize("is_own", [True, False])
async def test_a_sandbox_uses_what_its_containers_do(busy: Pod, is_own: bool) -> None:
    cgroups, path = busy
    subject = sandbox(
        cgroup=path if is_own else None,
        netns=Path("/proc/self/ns/net"),
        containers=(container(cgroup=f"{path}/app"),),
    )
    stats = await Statistics(cgroups, SystemClock()).sandbox(subject)
    (inner,) = stats.linux.containers
    assert inner.attributes.id == "c1"
    assert stats.linux.memory.rss_bytes.value >= 32 << 20
    whole, part = stats.linux.cpu, inner.cpu
    assert whole.usage_core_nano_seconds.value >= part.usage_core_nano_seconds.value > 0
    assert stats.linux.process.process_count.value == 1


async def test_metrics_of_a_pod_and_its_containers(busy: Pod) -> None:
    cgroups, path = busy
    subject = sandbox(
        cgroup=path,
        containers=(container(cgroup=f"{path}/app", image="busybox", started_at_ns=START_NS),),
    )
    statistics = Statistics(cgroups, SystemClock())
    (result,) = await statistics.metrics([subject])
    described = {
        descriptor.name: len(descriptor.label_keys) for descriptor in statistics.descriptors()
    }
    assert result.pod_sandbox_id == "s1"
    (inner,) = result.container_metrics
    assert inner.container_id == "c1"
    for metric in (*result.metrics, *inner.metrics):
        assert len(metric.label_values) == described[metric.name]
    values = {sample.name: sample.value.value for sample in inner.metrics}
    assert values["container_processes"] == 1
    assert values["container_threads"] >= 1
    assert values["container_file_descriptors"] >= 3
    assert values["container_memory_rss"] >= 32 << 20
    assert values["container_fs_limit_bytes"] > values["container_fs_usage_bytes"] == 4096
    labels = {tuple(sample.label_values[:6]) for sample in inner.metrics}
    assert labels == {("app", f"{path}/app", "busybox", "c1", "shop", "web")}
    assert {tuple(sample.label_values[:6]) for sample in result.metrics} == {
        ("", path, "", "s1", "shop", "web")
    }


async def test_a_container_without_cgroup_is_listed_with_its_time_and_layer() -> None:
    statistics = Statistics(Cgroups(Layout.ABSENT), FakeClock())
    stats = await statistics.container(container())
    assert (stats.attributes.id, stats.cpu.timestamp) == ("c1", START_NS)
    assert not stats.cpu.HasField("usage_core_nano_seconds")
    assert stats.writable_layer.inodes_used.value == 2


async def test_failed_layer_measurement_omits_only_its_figure() -> None:
    async def fails() -> tuple[int, int]:
        raise OSError("gone")

    statistics = Statistics(Cgroups(Layout.ABSENT), FakeClock())
    subjects = [container("c1", writable_usage=fails), container("c2")]
    first, second = await statistics.containers(subjects)
    assert (first.attributes.id, second.attributes.id) == ("c1", "c2")
    assert not first.HasField("writable_layer")
    assert second.HasField("writable_layer")


async def test_a_layer_that_takes_long_is_measured_once_and_counts_later() -> None:
    """Who writes a million files must not stay unmeasured, nor be measured many times at once."""
    may_end, calls = asyncio.Event(), []

    async def takes_long() -> tuple[int, int]:
        calls.append(1)
        await may_end.wait()
        return 7, 1

    statistics = Statistics(Cgroups(Layout.ABSENT), FakeClock(), layer_deadline_s=0.05)
    subject = container(writable_usage=takes_long)
    for _ in range(2):
        stats = await statistics.container(subject)
        assert not stats.HasField("writable_layer")
    assert len(calls) == 1
    may_end.set()
    stats = await statistics.container(subject)
    assert stats.writable_layer.used_bytes.value == 7
    may_end.clear()
    # The next one takes long again: meanwhile the last result counts.
    stats = await statistics.container(subject)
    assert stats.writable_layer.used_bytes.value == 7
    assert len(calls) in (2, 3)


async def test_measurements_of_containers_that_are_gone_are_dropped() -> None:
    statistics = Statistics(Cgroups(Layout.ABSENT), FakeClock())
    for number in range(400):
        await statistics.container(container(f"c{number}"))
    assert len(statistics._layers_known) <= 260


async def test_nothing_to_measure_is_an_empty_answer() -> None:
    statistics = Statistics(current_cgroups(), FakeClock())
    assert await statistics.containers([]) == []
    assert await statistics.sandboxes([]) == []
    assert await statistics.metrics([]) == []
    assert {descriptor.name for descriptor in statistics.descriptors()} >= {"container_last_seen"}
    assert isinstance(statistics.descriptors()[0], pb.MetricDescriptor)


async def test_what_the_runtime_counts_takes_the_place_of_a_containers_cgroup(busy: Pod) -> None:
    cgroups, path = busy

    async def counted() -> Usage | None:
        return Usage(cpu_ns=5, memory=100, inactive_file=30)

    async def nothing() -> Usage | None:
        return None

    containers = (
        container("guest", cgroup=f"{path}/app", own_usage=counted),
        container("host", cgroup=f"{path}/app", own_usage=nothing),
    )
    statistics = Statistics(cgroups, SystemClock())
    for stats in (
        await statistics.containers(containers),
        (await statistics.sandbox(sandbox(cgroup=path, containers=containers))).linux.containers,
    ):
        guest, host = stats
        assert guest.memory.working_set_bytes.value == 70
        assert guest.cpu.usage_core_nano_seconds.value == 5
        assert host.memory.rss_bytes.value >= 32 << 20
    (result,) = await statistics.metrics([sandbox(cgroup=path, containers=containers)])
    values = {one.name: one.value.value for one in result.container_metrics[0].metrics}
    assert values["container_memory_usage_bytes"] == 100


async def test_a_guest_outside_counts_as_its_pods_whose_limit_does_not_bind_it(
    tmp_path: Path,
) -> None:
    cgroups = trees.v2(tmp_path)
    for place, size in (("pods/a", 100), ("kata_overhead/s1", 1000), ("kata_overhead/s2", 5)):
        trees.write(tmp_path / place, {"memory.current": str(size), "memory.max": "4096",
                                       "cpu.stat": f"usage_usec {size}\n"})  # fmt: skip
    statistics = Statistics(cgroups, SystemClock())
    shared = SharedCgroup("/pods/a", 2, "/kata_overhead/s1")
    one = container(cgroup="/pods/a/c1", shared=shared)
    subject = sandbox(cgroup="/pods/a", guest="/kata_overhead/s1", containers=(one,))
    stats = (await statistics.sandbox(subject)).linux
    assert stats.memory.usage_bytes.value == 1100
    assert not stats.memory.HasField("available_bytes")
    assert stats.cpu.usage_core_nano_seconds.value == 1_100_000
    assert stats.containers[0].memory.usage_bytes.value == 550
    # Without one outside, the pod's cgroup is all, and its limit holds.
    inside = (await statistics.sandbox(sandbox(cgroup="/pods/a", guest="/kata_overhead/x"))).linux
    assert (inside.memory.usage_bytes.value, inside.memory.available_bytes.value) == (100, 3996)
