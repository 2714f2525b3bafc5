from __future__ import annotations

from collections import Counter

import pytest

from moorage.engine.cgroups.files import DeviceUsage, Pressure, Stall
from moorage.engine.cgroups.usage import Accounts, PageUsage, Pressures, Usage
from moorage.engine.stats.metrics import ALL_ROWS, BASE_LABELS, CONTAINER_ROWS, descriptors, metrics
from moorage.engine.stats.samples import FileSystem, ProcessCounts, Readings, Sample
from moorage.linux.network_devices import NetworkDevice, Traffic
from moorage.wire.cri import pb

S = 1_000_000_000
BASE = ("app", "/pods/a", "busybox", "c1", "shop", "web")
WAITED = Pressure(Stall(7 * S, 0.0, 0.0, 0.0), Stall(3 * S, 0.0, 0.0, 0.0))
EMPTY = Readings(sample=Sample(5 * S, 1, Usage(), Pressures()), accounts=Accounts())
FULL = Readings(
    sample=Sample(
        5 * S + 1,
        1,
        Usage(cpu_ns=2 * S + 5, memory=1000, inactive_file=300, page_faults=8,
              major_page_faults=1, pids=6),
        Pressures(WAITED, WAITED, WAITED),
    ),
    accounts=Accounts(throttled_ns=4 * S, oom_kills=1),
    devices=[("/dev/sda", DeviceUsage(8, 0, 1, 2, 3, 4))],
    pages=[PageUsage("2MB", 4, 8), PageUsage("1GB", 0)],
    network=[NetworkDevice("eth0", Traffic(1, 2, 3, 4), Traffic(5, 6, 7, 8))],
    processes=ProcessCounts(2, 5, 9, 3, 1024),
    file_system=FileSystem("/dev/sda", 100, 10, 5),
    layer=(4096, 2),
    limits=pb.LinuxContainerResources(cpu_quota=20000, memory_limit_in_bytes=64),
    started_at_ns=3 * S,
)  # fmt: skip


def metric_values(readings: Readings) -> dict[str, list[tuple[tuple[str, ...], int]]]:
    result: dict[str, list[tuple[tuple[str, ...], int]]] = {}
    for metric in metrics(ALL_ROWS, readings, BASE):
        own = tuple(metric.label_values)[len(BASE) :]
        result.setdefault(metric.name, []).append((own, metric.value.value))
    return result


def test_metric_names_are_unique() -> None:
    assert [
        name for name, count in Counter(row.name for row in ALL_ROWS).items() if count > 1
    ] == []


def test_every_metric_is_described_with_as_many_labels_as_it_has() -> None:
    keys = {descriptor.name: descriptor.label_keys for descriptor in descriptors(ALL_ROWS)}
    samples = metrics(ALL_ROWS, FULL, BASE)
    assert {sample.name for sample in samples} == set(keys)
    assert all(len(sample.label_values) == len(keys[sample.name]) for sample in samples)
    assert all(tuple(key)[: len(BASE)] == BASE_LABELS for key in keys.values())
    assert all(descriptor.help for descriptor in descriptors(ALL_ROWS))
    assert all(tuple(sample.label_values)[: len(BASE)] == BASE for sample in samples)
    assert {sample.timestamp for sample in samples} == {5 * S + 1}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("container_cpu_usage_seconds_total", [((), 2)]),
        ("container_cpu_cfs_throttled_seconds_total", [((), 4)]),
        ("container_cpu_cfs_periods_total", [((), 0)]),
        ("container_memory_working_set_bytes", [((), 700)]),
        ("container_memory_swap", [((), 0)]),
        ("container_memory_failures_total", [
            (("pgfault", "container"), 8), (("pgfault", "hierarchy"), 8),
            (("pgmajfault", "container"), 1), (("pgmajfault", "hierarchy"), 1)]),
        ("container_oom_events_total", [((), 1)]),
        ("container_pressure_io_stalled_seconds_total", [((), 3)]),
        ("container_pressure_cpu_waiting_seconds_total", [((), 7)]),
        ("container_network_transmit_packets_dropped_total", [(("eth0",), 8)]),
        ("container_fs_usage_bytes", [(("/dev/sda",), 4096)]),
        ("container_fs_inodes_free", [(("/dev/sda",), 5)]),
        ("container_fs_writes_total", [(("/dev/sda",), 4)]),
        ("container_blkio_device_usage_total", [
            (("/dev/sda", "8", "0", "Read"), 1), (("/dev/sda", "8", "0", "Write"), 2)]),
        ("container_processes", [((), 2)]),
        ("container_threads", [((), 6)]),
        ("container_threads_max", [((), 0)]),
        ("container_ulimits_soft", [(("max_open_files",), 1024)]),
        ("container_hugetlb_usage_bytes", [(("2MB",), 4), (("1GB",), 0)]),
        ("container_hugetlb_max_usage_bytes", [(("2MB",), 8)]),
        ("container_last_seen", [((), 5)]),
        ("container_start_time_seconds", [((), 3)]),
        ("container_spec_cpu_quota", [((), 20000)]),
        ("container_spec_cpu_period", [((), 100000)]),
        ("container_spec_cpu_shares", [((), 1024)]),
        ("container_spec_memory_limit_bytes", [((), 64)]),
    ],
)  # fmt: skip
def test_metric_values_are_those_of_the_readings(
    name: str, values: list[tuple[tuple[str, ...], int]]
) -> None:
    assert metric_values(FULL)[name] == values


def test_what_is_not_known_is_left_out() -> None:
    names = {metric.name for metric in metrics(CONTAINER_ROWS, EMPTY, BASE)}
    known = {"container_last_seen", "container_start_time_seconds"}
    assert {name for name in names if not name.startswith("container_spec_")} == known
    assert "container_spec_cpu_quota" not in names


def test_metric_types_follow_their_names() -> None:
    kinds = {metric.name: metric.metric_type for metric in metrics(ALL_ROWS, FULL, BASE)}
    wrong = [
        name
        for name, kind in kinds.items()
        if name.endswith("_total") != (kind == pb.COUNTER) and name != "container_memory_failcnt"
    ]
    # A number of inodes has the counters' ending and is none.
    assert wrong == ["container_fs_inodes_total"]


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("cpu_waiting", "Seconds in which some tasks waited for cpu."),
        ("cpu_stalled", "Seconds in which all tasks waited for cpu."),
        ("io_waiting", "Seconds in which some tasks waited for io."),
        ("memory_stalled", "Seconds in which all tasks waited for memory."),
    ],
)
def test_pressure_says_how_many_waited(name: str, meaning: str) -> None:
    helps = {descriptor.name: descriptor.help for descriptor in descriptors(ALL_ROWS)}
    assert helps[f"container_pressure_{name}_seconds_total"] == meaning


# Labels, then names.
CADVISOR = """
:
  cpu_usage_seconds_total cpu_user_seconds_total cpu_system_seconds_total
  cpu_cfs_periods_total cpu_cfs_throttled_periods_total cpu_cfs_throttled_seconds_total
  memory_usage_bytes memory_working_set_bytes memory_rss memory_cache memory_mapped_file
  memory_swap memory_kernel_usage memory_max_usage_bytes memory_failcnt oom_events_total
  pressure_cpu_waiting_seconds_total pressure_cpu_stalled_seconds_total
  pressure_memory_waiting_seconds_total pressure_memory_stalled_seconds_total
  pressure_io_waiting_seconds_total pressure_io_stalled_seconds_total
  processes threads threads_max file_descriptors sockets last_seen start_time_seconds
  spec_cpu_period spec_cpu_quota spec_cpu_shares spec_memory_limit_bytes
  spec_memory_swap_limit_bytes spec_memory_reservation_limit_bytes
interface:
  network_receive_bytes_total network_receive_packets_total network_receive_errors_total
  network_receive_packets_dropped_total network_transmit_bytes_total
  network_transmit_packets_total network_transmit_errors_total
  network_transmit_packets_dropped_total
device:
  fs_usage_bytes fs_limit_bytes fs_inodes_total fs_inodes_free fs_reads_total
  fs_reads_bytes_total fs_writes_total fs_writes_bytes_total
failure_type scope:
  memory_failures_total
device major minor operation:
  blkio_device_usage_total
ulimit:
  ulimits_soft
pagesize:
  hugetlb_usage_bytes hugetlb_max_usage_bytes
"""


def test_names_and_labels_are_those_that_dashboards_look_for() -> None:
    wanted: dict[str, tuple[str, ...]] = {}
    labels: tuple[str, ...] = ()
    for row in CADVISOR.strip().splitlines():
        if row.endswith(":"):
            labels = tuple(row[:-1].split())
        else:
            wanted |= dict.fromkeys((f"container_{name}" for name in row.split()), labels)
    by_name = {
        descriptor.name: tuple(descriptor.label_keys[len(BASE_LABELS) :])
        for descriptor in descriptors(ALL_ROWS)
    }
    assert by_name == wanted
