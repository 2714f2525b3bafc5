"""A normal start and a restart log no warning: no part warns of another's start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from moorage.runtimes.probing.programs import PROBE_IMAGE
from tests.running import (
    BUSYBOX,
    NGINX_STAND_IN,
    RunningCluster,
    running,
    skip_without_kubectl,
    skip_without_runtimes,
)
from tests.subnets import free_subnet

pytestmark = pytest.mark.runtime

# Warnings about the host, not about the start: hugetlb cgroups, paths outside the data
# directory, and a disk that other files fill above the image threshold.
_LIMITS_OF_THE_HOST = ("hugetlb", "outside", "image disk stays full")


def _complaints(cluster: RunningCluster) -> list[str]:
    lines = [
        line
        for log in (cluster.data_dir / "logs").iterdir()
        for line in log.read_text().splitlines()
        if re.search(r"Z (warning|error) |Traceback", line)
    ]
    return [line for line in lines if not any(limit in line for limit in _LIMITS_OF_THE_HOST)]


def test_parts_start_without_complaints_twice(tmp_path: Path) -> None:
    skip_without_kubectl()
    skip_without_runtimes()
    # While it is down, another test's cluster would take a network that was chosen by itself.
    network = str(free_subnet())
    with running(tmp_path / "data", node_name="n1", pod_network=network) as cluster:
        # A cluster that is ready serves the kinds of our own group.
        cluster.kubectl("get", "runtimeprofiles,runtimepolicies,runtimerollouts", "-A")
        assert not _complaints(cluster)
        images = {
            name
            for image in cluster.get("node", "n1")["status"]["images"]
            for name in image["names"]
        }
        assert {BUSYBOX, NGINX_STAND_IN, PROBE_IMAGE} == {
            name for name in images if "@" not in name
        }
        cluster.moor("down")
        cluster.moor("up", "--detach")
        assert not _complaints(cluster)
