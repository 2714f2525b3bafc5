"""The demo shows every example's fate and leaves the machine as it found it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.documents import REPOSITORY, blocks, matches
from tests.forks import run
from tests.machine import demo_processes, host_resources, leftovers
from tests.running import EXAMPLES, MOOR, skip_without_gvisor, skip_without_runtimes

pytestmark = [pytest.mark.runtime, pytest.mark.slow]


DEMO = ("demo", "--examples", str(EXAMPLES))


@pytest.mark.timeout(240)
def test_the_demo_twice_in_a_row(tmp_path: Path) -> None:
    """As a document, and as the README shows it: each leaves nothing for the next."""
    skip_without_runtimes()
    before = host_resources()
    done = run("moorage.cli", *DEMO, "-o", "json", timeout_s=110, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    _check_document(json.loads(done.stdout))
    assert not demo_processes()
    assert not leftovers(before)
    # The one whole cluster of tests of which each process is a program.
    program = subprocess.run(
        [*MOOR, *DEMO], capture_output=True, text=True, timeout=110, check=False, cwd=tmp_path
    )
    printed = program.stdout
    assert program.returncode == 0, printed + program.stderr
    assert not demo_processes()
    assert not leftovers(before)
    skip_without_gvisor()
    (table,) = [
        block.text
        for block in blocks((REPOSITORY / "README.md").read_text())
        if block.text.startswith("POD ")
    ]
    # The README's node is n1; the demo's has the host's name.
    printed = printed.replace(f" {platform.node().lower()} ", " n1 ")
    assert matches(f"...\n{table}...\n", printed), printed


def _check_document(document: dict[str, Any]) -> None:
    rows = {row["pod"]: row for row in document["pods"]}
    levels = {found["handler"]: found["isolation"] for found in document["classes"]}
    assert levels["crun"] == levels["runc"] == "shared-kernel"
    assert {"crun-limited", "native-app", "metered-app", "no-class", "kata-app"} <= set(rows)
    for name, runtime in (("crun-limited", "crun"), ("native-app", "runc")):
        assert rows[name]["status"] == "Running"
        assert rows[name]["inside"] == runtime
        assert rows[name]["kernel"] == os.uname().release
    sandboxed = [row for row in rows.values() if row["runtime_class"] == "sandboxed"]
    assert len(sandboxed) == 2
    if shutil.which("runsc"):
        assert levels["gvisor"] == "user-space-kernel"
        assert "user-space-kernel" in document["refusal"]
        assert document["fitted"]["class"] == "gvisor"
        for row in sandboxed:
            assert (row["status"], row["inside"]) == ("Running", "gVisor")
            assert row["kernel"] not in ("", os.uname().release)
    assert 'lack runtime handler "kata-containers"' in rows["kata-app"]["reason"]
