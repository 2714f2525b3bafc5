"""`moor status`: a row for each part, and the exit status of a cluster that is down."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.cli.moor import cluster, locked, moor


def test_each_part_has_a_row(tmp_path: Path) -> None:
    layout = cluster(tmp_path)
    why = "killed: not ready after 120 s"
    part = {"state": "restarting", "pid": 0, "restarts": 2, "ready_after_s": None, "last_end": why}
    ready = {"state": "ready", "pid": os.getpid(), "restarts": 0, "ready_after_s": 1.5}
    layout.state.write_text(json.dumps({"parts": {"apiserver": ready, "node": part}}))
    with locked(layout) as pid:
        answer = moor("status", "--data-dir", layout.root)
        rows = json.loads(moor("status", "-o", "json", "--data-dir", layout.root).out)
    assert (answer.status, answer.err) == (0, "")
    head, supervisor, apiserver, node, last_end, *rest = answer.out.splitlines()
    assert head.split() == ["PART", "STATE", "PID", "RESTARTS", "READY", "AFTER", "MEMORY"]
    assert supervisor.split()[:5] == ["supervisor", "ready", str(pid), "0", "-"]
    assert apiserver.split()[:6] == ["apiserver", "ready", str(os.getpid()), "0", "1.50", "s"]
    assert apiserver.split()[-1] == "MiB"
    assert 10 < int(apiserver.split()[-2]) < 10_000
    assert node.split() == ["node", "restarting", "0", "2", "-", "-"]
    assert last_end.strip() == f"last end: {why}"
    assert rest == ["", f"API https://127.0.0.1:6443 · data {layout.root}"]
    assert [row["part"] for row in rows] == ["supervisor", "apiserver", "node"]
    assert rows[1]["ready_after_s"] == 1.5
    assert rows[2]["memory_bytes"] is None
    assert [row["last_end"] for row in rows] == ["", "", why]


def test_stopped_or_missing_cluster_exits_with_status_3(tmp_path: Path) -> None:
    layout = cluster(tmp_path)
    down = moor("status", "--data-dir", layout.root)
    assert (down.status, down.out) == (3, "")
    assert "is not running; `moor up` resumes it" in down.err
    none = moor("status", "--data-dir", tmp_path)
    assert none.status == 3
    assert f"there is no cluster in {tmp_path}; `moor up` makes one" in none.err
