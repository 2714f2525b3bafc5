"""What a process uses."""

from __future__ import annotations

import os
import time

from moorage.linux.own_process import OwnUsage, own_usage
from moorage.wire.metrics import exposition, process_families


def test_metrics_of_a_process() -> None:
    usage = OwnUsage(1.5, 2048, 4096, 7, 1024, 1_700_000_000.25)
    lines = exposition(process_families(usage)).splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        "process_cpu_seconds_total 1.5",
        "process_open_fds 7",
        "process_max_fds 1024",
        "process_resident_memory_bytes 2048",
        "process_virtual_memory_bytes 4096",
        "process_start_time_seconds 1700000000.25",
    ]


def test_the_usage_of_this_process() -> None:
    used = own_usage()
    assert 0 < used.resident_bytes < used.virtual_bytes
    assert used.open_files == len(os.listdir("/proc/self/fd"))
    assert used.open_files < used.most_files
    assert time.time() - 24 * 3600 < used.started_s < time.time() + 1
    assert used.cpu_s > 0
