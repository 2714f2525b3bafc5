from __future__ import annotations

import os
import socket
import subprocess

from moorage.engine.stats.samples import ProcessCounts, count_processes


def test_what_processes_have_open() -> None:
    before = count_processes([os.getpid()])
    with socket.socket(), subprocess.Popen(["sleep", "60"]) as other:
        alone = count_processes([os.getpid()])
        both = count_processes([os.getpid(), other.pid])
        other.kill()
    assert alone.sockets == before.sockets + 1
    assert alone.descriptors > before.descriptors
    assert (alone.processes, both.processes) == (1, 2)
    assert both.threads == alone.threads + 1
    assert alone.open_files_limit is not None


def test_those_that_have_gone_have_nothing() -> None:
    assert count_processes([]) == ProcessCounts()
    assert count_processes([2**30]).descriptors == 0
