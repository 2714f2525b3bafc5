"""A cluster whose database is lost says so and starts nothing; its pods run on until it is back."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.running import (
    RunningCluster,
    pod,
    running,
    skip_without_kubectl,
    skip_without_runtimes,
    until,
)

pytestmark = [pytest.mark.runtime, pytest.mark.slow, pytest.mark.timeout(300)]


def _container(cluster: RunningCluster) -> tuple[Any, ...]:
    status = cluster.get("pod", "stays")["status"]["containerStatuses"][0]
    return status["containerID"], status["restartCount"], status["state"]["running"]


def test_pods_outlive_a_lost_database(tmp_path: Path) -> None:
    skip_without_kubectl()
    skip_without_runtimes()
    with running(tmp_path / "data", node_name="n1") as cluster:
        cluster.apply(pod("stays"))
        cluster.wait_ready("stays")
        before = _container(cluster)
        server = cluster.part("apiserver")["pid"]
        os.kill(cluster.part("supervisor")["pid"], signal.SIGKILL)
        until(lambda: not Path(f"/proc/{server}").exists(), "the end of the API server")
        database = cluster.data_dir / "db"
        database.rename(cluster.data_dir / "elsewhere")
        for _ in range(2):
            refused = cluster.moor("up", "--detach", status=1)
            assert "state.db is gone" in refused.stderr
            assert "--accept-loss" in refused.stderr
        (cluster.data_dir / "elsewhere").rename(database)
        cluster.moor("up", "--detach")
        cluster.wait_ready("stays")
        assert _container(cluster) == before
