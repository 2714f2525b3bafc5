"""Interrupted demo: it removes everything that it created."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.forks import Fork
from tests.machine import demo_processes, host_resources, leftovers
from tests.running import EXAMPLES, skip_without_runtimes

pytestmark = [pytest.mark.runtime, pytest.mark.slow]


@pytest.mark.parametrize(
    ("sentence", "numbers"),
    [
        ("starting a cluster", (signal.SIGINT,)),
        ("cluster ready", (signal.SIGTERM,)),
        # One who is impatient must not be left with half a cluster.
        ("applied Pod", (signal.SIGINT, signal.SIGINT, signal.SIGHUP)),
    ],
)
def test_nothing_is_left(
    tmp_path: Path, sentence: str, numbers: tuple[signal.Signals, ...]
) -> None:
    skip_without_runtimes()
    before, processes = host_resources(), demo_processes()
    with Fork(
        ["moorage.cli", "demo", "--examples", str(EXAMPLES)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
    ) as demo:  # fmt: skip
        assert demo.stdout is not None
        for line in demo.stdout:
            if sentence in line:
                break
        for number in numbers:
            demo.send_signal(number)
        output, complaints = demo.communicate(timeout=60)
    assert demo.returncode == 1, output + complaints
    assert "Traceback" not in complaints
    assert not leftovers(before)
    assert demo_processes() == processes
