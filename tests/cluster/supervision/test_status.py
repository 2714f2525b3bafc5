"""Status of a cluster's processes, with a process that holds its lock."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from moorage.cluster.layout import Layout
from moorage.cluster.supervision.supervise import PartStatus, part_statuses
from moorage.cluster.supervision.supervisor import read_state
from tests.cluster.holding import HOLDS


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "a b")


def test_how_a_cluster_is(layout: Layout) -> None:
    assert part_statuses(layout) == ()
    argv = [sys.executable, "-c", HOLDS, str(layout.root), "obedient"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        part = {"state": "ready", "pid": process.pid, "restarts": 2, "ready_after_s": 0.5}
        part["last_end"] = "signal SIGKILL"
        waiting = {"state": "waiting", "pid": None, "restarts": 0, "ready_after_s": None}
        state = {"pid": 1, "parts": {"apiserver": part, "node": waiting}}
        layout.state.write_text(json.dumps(state))
        rows = part_statuses(layout)
        memory = [row.memory_bytes for row in rows]
        process.kill()
    assert rows == (
        PartStatus("supervisor", "ready", process.pid, 0, None, memory[0]),
        PartStatus("apiserver", "ready", process.pid, 2, 0.5, memory[1], "signal SIGKILL"),
        PartStatus("node", "waiting", None, 0, None, None),
    )
    assert memory[0]
    assert memory[1]


@pytest.mark.parametrize("content", [None, "", '{"pid"'])
def test_incomplete_state_is_none(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "state"
    if content is not None:
        path.write_text(content)
    assert read_state(path) is None
