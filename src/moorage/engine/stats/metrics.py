"""Metrics table: names as cAdvisor's, meanings, labels, values.

A kubelet gets the descriptors once and the values at every scrape, and serves both under
`/metrics/cadvisor`. The CRI has integer values, so times are full seconds. Source: CRI
`MetricDescriptor`, `Metric`; KEP-2371; the names and labels of cAdvisor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from moorage.engine.cgroups.files import DeviceUsage, Pressure, Stall
from moorage.engine.stats.samples import FileSystem, Readings
from moorage.linux.network_devices import NetworkDevice
from moorage.wire.cri import pb

BASE_LABELS = ("container", "id", "image", "name", "namespace", "pod")
_NS_PER_S = 1_000_000_000
_DEFAULT_PERIOD_US = 100_000
_DEFAULT_SHARES = 1024

Value = tuple[tuple[str, ...], int]
"""The values of a row's own labels, and the number."""


@dataclass(frozen=True, slots=True)
class Row:
    """A metric; `labels` are its own, after the common ones."""

    name: str
    help: str
    values: Callable[[Readings], Iterable[Value]]
    labels: tuple[str, ...] = ()
    kind: pb.MetricType.ValueType = pb.COUNTER


def descriptors(rows: Iterable[Row]) -> list[pb.MetricDescriptor]:
    """Return the metrics' descriptors, with their label names."""
    return [
        pb.MetricDescriptor(name=row.name, help=row.help, label_keys=(*BASE_LABELS, *row.labels))
        for row in rows
    ]


def metrics(rows: Iterable[Row], readings: Readings, base: Sequence[str]) -> list[pb.Metric]:
    """Return the values; `base` are those of BASE_LABELS. An unknown figure has no value."""
    at_ns = readings.sample.at_ns
    return [
        pb.Metric(
            name=row.name,
            timestamp=at_ns,
            metric_type=row.kind,
            label_values=(*base, *labels),
            value=pb.UInt64Value(value=number),
        )
        for row in rows
        for labels, number in row.values(readings)
    ]


def _counter(name: str, help_: str, read: Callable[[Readings], int | None]) -> Row:
    return Row(name, help_, _single(read))


def _gauge(name: str, help_: str, read: Callable[[Readings], int | None]) -> Row:
    return Row(name, help_, _single(read), kind=pb.GAUGE)


def _single(read: Callable[[Readings], int | None]) -> Callable[[Readings], Iterator[Value]]:
    def values(readings: Readings) -> Iterator[Value]:
        value = read(readings)
        if value is not None:
            yield (), value

    return values


def _cpu(name: str, help_: str, read: Callable[[Readings], int | None]) -> Row:
    """Return zero where CPU time is counted and this figure is not: without a quota nothing
    throttles.
    """
    return _counter(name, help_, lambda r: _zero(r.sample.usage.cpu_ns, read(r)))


def _memory(name: str, help_: str, read: Callable[[Readings], int | None]) -> Row:
    """Return zero where memory is counted and this figure is not, as swap on a host without."""
    return _gauge(name, help_, lambda r: _zero(r.sample.usage.memory, read(r)))


def _process(what: str, help_: str, read: Callable[[Readings], int]) -> Row:
    """Return no value without processes: those of a virtualised runtime are not the host's."""
    return _gauge(f"container_{what}", help_, lambda r: read(r) if r.processes.processes else None)


def _zero(known: int | None, value: int | None) -> int | None:
    return None if known is None else value or 0


def _seconds(nanoseconds: int | None) -> int | None:
    return None if nanoseconds is None else nanoseconds // _NS_PER_S


def _pressure(
    resource: str, verb: str, find: Callable[[Readings], Pressure | None], part: str
) -> Row:
    def read(readings: Readings) -> int | None:
        pressures = find(readings)
        stall: Stall | None = getattr(pressures, part) if pressures else None
        return _seconds(stall.total_ns) if stall else None

    whose = "some" if part == "some" else "all"
    return _counter(
        f"container_pressure_{resource}_{verb}_seconds_total",
        f"Seconds in which {whose} tasks waited for {resource}.",
        read,
    )


def _network(way: str, what: str, help_: str, read: Callable[[NetworkDevice], int]) -> Row:
    return Row(
        f"container_network_{way}_{what}_total",
        help_,
        lambda readings: [((interface.name,), read(interface)) for interface in readings.network],
        ("interface",),
    )


def _file_system(what: str, help_: str, read: Callable[[DeviceUsage], int]) -> Row:
    return Row(
        f"container_fs_{what}_total",
        help_,
        lambda readings: [((name,), read(device)) for name, device in readings.devices],
        ("device",),
    )


def _layer(what: str, help_: str, read: Callable[[FileSystem, int | None], int | None]) -> Row:
    def values(readings: Readings) -> Iterator[Value]:
        system = readings.file_system
        if system is None:
            return
        value = read(system, readings.layer[0] if readings.layer else None)
        if value is not None:
            yield (system.device,), value

    return Row(f"container_fs_{what}", help_, values, ("device",), pb.GAUGE)


def _faults(readings: Readings) -> Iterator[Value]:
    usage = readings.sample.usage
    for kind, count in (("pgfault", usage.page_faults), ("pgmajfault", usage.major_page_faults)):
        if count is not None:
            # A container seldom has child cgroups, so both scopes are the same.
            yield from (((kind, scope), count) for scope in ("container", "hierarchy"))


def _block_devices(readings: Readings) -> Iterator[Value]:
    for name, device in readings.devices:
        labels = (name, str(device.major), str(device.minor))
        yield (*labels, "Read"), device.read_bytes
        yield (*labels, "Write"), device.written_bytes


def _open_files(readings: Readings) -> Iterator[Value]:
    if readings.processes.open_files_limit is not None:
        yield ("max_open_files",), readings.processes.open_files_limit


def _limit(read: Callable[[pb.LinuxContainerResources], int]) -> Callable[[Readings], int]:
    empty = pb.LinuxContainerResources()
    return lambda readings: max(read(readings.limits or empty), 0)


CPU_ROWS = (
    _cpu("container_cpu_usage_seconds_total", "Processor time used.",
         lambda r: _seconds(r.sample.usage.cpu_ns)),
    _cpu("container_cpu_user_seconds_total", "Processor time used in user mode.",
         lambda r: _seconds(r.accounts.user_ns)),
    _cpu("container_cpu_system_seconds_total", "Processor time used in kernel mode.",
         lambda r: _seconds(r.accounts.system_ns)),
    _cpu("container_cpu_cfs_periods_total", "Scheduling periods with work, under a quota.",
         lambda r: r.accounts.periods),
    _cpu("container_cpu_cfs_throttled_periods_total", "Periods throttled by the quota.",
         lambda r: r.accounts.throttled_periods),
    _cpu("container_cpu_cfs_throttled_seconds_total", "Time throttled by the quota.",
         lambda r: _seconds(r.accounts.throttled_ns)),
)  # fmt: skip
MEMORY_ROWS = (
    _memory("container_memory_usage_bytes", "Memory in use, reclaimable memory included.",
            lambda r: r.sample.usage.memory),
    _memory("container_memory_working_set_bytes",
            "Working set: memory in use less inactive page cache.",
            lambda r: r.sample.usage.working_set),
    _memory("container_memory_rss", "Anonymous memory, including huge pages and swap cache.",
            lambda r: r.sample.usage.rss),
    _memory("container_memory_cache", "Page cache memory.",
            lambda r: r.accounts.cache),
    _memory("container_memory_mapped_file", "Memory of mapped files.",
            lambda r: r.accounts.mapped_file),
    _memory("container_memory_swap", "Swap in use.", lambda r: r.sample.usage.swap),
    _memory("container_memory_kernel_usage", "Kernel memory allocated.",
            lambda r: r.accounts.kernel),
    _memory("container_memory_max_usage_bytes", "Peak memory usage.",
            lambda r: r.accounts.peak),
    _counter("container_memory_failcnt", "Number of times the memory limit was hit.",
             lambda r: _zero(r.sample.usage.memory, r.accounts.failures)),
    Row("container_memory_failures_total", "Page faults, by kind and by scope.", _faults,
        ("failure_type", "scope")),
    _counter("container_oom_events_total", "Processes killed by the OOM killer.",
             lambda r: _zero(r.sample.usage.memory, r.accounts.oom_kills)),
)  # fmt: skip
PRESSURE_ROWS = (
    _pressure("cpu", "waiting", lambda r: r.sample.pressures.cpu, "some"),
    _pressure("cpu", "stalled", lambda r: r.sample.pressures.cpu, "full"),
    _pressure("memory", "waiting", lambda r: r.sample.pressures.memory, "some"),
    _pressure("memory", "stalled", lambda r: r.sample.pressures.memory, "full"),
    _pressure("io", "waiting", lambda r: r.sample.pressures.io, "some"),
    _pressure("io", "stalled", lambda r: r.sample.pressures.io, "full"),
)
NETWORK_ROWS = (
    _network("receive", "bytes", "Bytes received.", lambda d: d.received.bytes),
    _network("receive", "packets", "Packets received.", lambda d: d.received.packets),
    _network("receive", "errors", "Errors while receiving.", lambda d: d.received.errors),
    _network("receive", "packets_dropped", "Packets dropped while receiving.",
             lambda d: d.received.dropped),
    _network("transmit", "bytes", "Bytes sent.", lambda d: d.sent.bytes),
    _network("transmit", "packets", "Packets sent.", lambda d: d.sent.packets),
    _network("transmit", "errors", "Errors while sending.", lambda d: d.sent.errors),
    _network("transmit", "packets_dropped", "Packets dropped while sending.",
             lambda d: d.sent.dropped),
)  # fmt: skip
DISK_ROWS = (
    _layer("usage_bytes", "Bytes in the writable layer.", lambda _, used: used),
    _layer("limit_bytes", "Size of the writable layer's file system.",
           lambda system, _: system.size),
    _layer("inodes_total", "Inodes of the writable layer's file system.",
           lambda system, _: system.inodes),
    _layer("inodes_free", "Free inodes of the writable layer's file system.",
           lambda system, _: system.inodes_free),
    _file_system("reads", "Operations that read from a device.", lambda d: d.reads),
    _file_system("reads_bytes", "Bytes read from a device.", lambda d: d.read_bytes),
    _file_system("writes", "Operations that wrote to a device.", lambda d: d.writes),
    _file_system("writes_bytes", "Bytes written to a device.", lambda d: d.written_bytes),
    Row("container_blkio_device_usage_total", "Bytes by device and operation.", _block_devices,
        ("device", "major", "minor", "operation")),
)  # fmt: skip
PROCESS_ROWS = (
    _process("processes", "Processes.", lambda r: r.processes.processes),
    _process("threads", "Threads, including the main thread of each process.",
             lambda r: r.sample.usage.pids or r.processes.threads),
    _process("threads_max", "Limit of threads, 0 if unlimited.",
             lambda r: r.accounts.pids_limit or 0),
    _process("file_descriptors", "Open descriptors.", lambda r: r.processes.descriptors),
    _process("sockets", "Open sockets.", lambda r: r.processes.sockets),
    Row("container_ulimits_soft", "Soft limit of the first process.", _open_files, ("ulimit",),
        pb.GAUGE),
    Row("container_hugetlb_usage_bytes", "Huge pages in use, by size.",
        lambda r: [((page.size,), page.used) for page in r.pages], ("pagesize",), pb.GAUGE),
    Row("container_hugetlb_max_usage_bytes", "Peak huge page usage, by size.",
        lambda r: [((page.size,), page.peak) for page in r.pages if page.peak is not None],
        ("pagesize",), pb.GAUGE),
    _gauge("container_last_seen", "Time of this reading, in seconds since the epoch.",
           lambda r: _seconds(r.sample.at_ns)),
    _gauge("container_start_time_seconds", "Start time, in seconds since the epoch.",
           lambda r: _seconds(r.started_at_ns)),
)  # fmt: skip
LIMIT_ROWS = (
    _gauge("container_spec_cpu_period", "Period of the processor quota, in microseconds.",
           _limit(lambda own: own.cpu_period or _DEFAULT_PERIOD_US)),
    _gauge("container_spec_cpu_quota", "Processor quota each period, in microseconds.",
           lambda r: _limit(lambda own: own.cpu_quota)(r) or None),
    _gauge("container_spec_cpu_shares", "CPU shares.",
           _limit(lambda own: own.cpu_shares or _DEFAULT_SHARES)),
    _gauge("container_spec_memory_limit_bytes", "Memory limit, 0 if unlimited.",
           _limit(lambda own: own.memory_limit_in_bytes)),
    _gauge("container_spec_memory_swap_limit_bytes", "Limit of memory and swap, 0 if unlimited.",
           _limit(lambda own: own.memory_swap_limit_in_bytes)),
    _gauge("container_spec_memory_reservation_limit_bytes",
           "Memory reservation, 0 if none.",
           lambda r: _zero(r.sample.usage.memory, r.accounts.reservation)),
)  # fmt: skip
CONTAINER_ROWS = (
    *CPU_ROWS, *MEMORY_ROWS, *PRESSURE_ROWS, *DISK_ROWS, *PROCESS_ROWS, *LIMIT_ROWS,
)  # fmt: skip
POD_ROWS = (*CPU_ROWS, *MEMORY_ROWS, *PRESSURE_ROWS, *NETWORK_ROWS)
ALL_ROWS = (*CONTAINER_ROWS, *NETWORK_ROWS)
