"""Process metrics, under the names of Prometheus' client libraries.

Source: Prometheus "Standard and runtime collectors".
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.linux.own_process import OwnUsage, own_usage
from moorage.wire.metrics.families import Counter, Family, Gauge

_GAUGES = (
    ("process_open_fds", "Number of open file descriptors.", "open_files"),
    ("process_max_fds", "Maximum number of open file descriptors.", "most_files"),
    ("process_resident_memory_bytes", "Resident memory size in bytes.", "resident_bytes"),
    ("process_virtual_memory_bytes", "Virtual memory size in bytes.", "virtual_bytes"),
    (
        "process_start_time_seconds",
        "Start time of the process since unix epoch in seconds.",
        "started_s",
    ),
)


def process_families(usage: OwnUsage | None = None) -> Iterator[Family]:
    """Yield this process's usage, that of now unless `usage` is given."""
    used = usage or own_usage()
    seconds = Counter(
        "process_cpu_seconds_total", "Total user and system CPU time spent in seconds."
    )
    seconds.count(used.cpu_s)
    yield seconds
    for name, help_, field in _GAUGES:
        gauge = Gauge(name, help_)
        gauge.set(getattr(used, field))
        yield gauge
