"""Request metrics of API clients. Source: `component-base/metrics/prometheus/restclient`."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.linux.own_process import OwnUsage, own_usage
from moorage.wire.metrics.families import Counter, Family, Gauge, Histogram

# Process metrics, under the names of Prometheus' client libraries.
#
# Source: Prometheus "Standard and runtime collectors".

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


_BOUNDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
NO_ANSWER = "<error>"
"""The code of a request that was not answered."""


class RequestMetrics:
    """Requests of one client. `host` is that of the server."""

    def __init__(self) -> None:
        self._requests = Counter(
            "rest_client_requests_total",
            "Number of HTTP requests, partitioned by status code, method, and host.",
            ["code", "method", "host"],
        )
        self._durations = Histogram(
            "rest_client_request_duration_seconds",
            "Request latency in seconds. Broken down by verb, and host.",
            ["verb", "host"],
            _BOUNDS,
        )

    def answered(self, method: str, host: str, code: str, seconds: float) -> None:
        """Count a request by its answer's status, and the time until its head arrived."""
        self._requests.count(code=code, method=method, host=host)
        self._durations.observe(seconds, verb=method, host=host)

    def families(self) -> Iterator[Family]:
        yield from (self._requests, self._durations)
