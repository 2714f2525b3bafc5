"""The demo shows every example's fate and leaves the machine as it found it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.machine import demo_processes, leftovers, machine
from tests.running import EXAMPLES, MOOR, skip_without_runtimes

pytestmark = [pytest.mark.runtime, pytest.mark.slow]


@pytest.mark.timeout(240)
def test_the_demo_twice_in_a_row(tmp_path: Path) -> None:
    skip_without_runtimes()
    before = machine()
    for _ in range(2):
        done = subprocess.run(
            [*MOOR, "demo", "--examples", str(EXAMPLES), "-o", "json"],
            capture_output=True, text=True, timeout=110, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        rows = {row["pod"]: row for row in json.loads(done.stdout)}
        assert {"crun-limited", "native-app", "metered-app", "no-class", "kata-app"} <= set(rows)
        for name, runtime in (("crun-limited", "crun"), ("native-app", "runc")):
            assert rows[name]["status"] == "Running"
            assert rows[name]["inside"] == runtime
            assert rows[name]["kernel"] == os.uname().release
        sandboxed = [row for row in rows.values() if row["runtime_class"] == "sandboxed"]
        assert len(sandboxed) == 2
        if shutil.which("runsc"):
            for row in sandboxed:
                assert (row["status"], row["inside"]) == ("Running", "gVisor")
                assert row["kernel"] not in ("", os.uname().release)
        assert 'lack runtime handler "kata-containers"' in rows["kata-app"]["reason"]
        assert not demo_processes()
        assert not leftovers(before)
