"""Any one part is killed: it comes back, pods go on, and the cluster works as before."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.running import RunningCluster, pod, until

pytestmark = pytest.mark.runtime


@pytest.fixture
def name(whole_cluster: RunningCluster) -> Iterator[str]:
    name = f"d-{uuid.uuid4().hex[:8]}"
    yield name
    for pod_name in (name, f"{name}-after"):
        whole_cluster.remove("pod", pod_name)


def _container(cluster: RunningCluster, name: str) -> tuple[Any, ...]:
    status = cluster.get("pod", name)["status"]["containerStatuses"][0]
    return status["containerID"], status["restartCount"], status["state"]


def _prove_that_all_works(cluster: RunningCluster, name: str, before: tuple[Any, ...]) -> None:
    cluster.kubectl("wait", "--for=condition=Ready", "node/n1", "--timeout=30s")
    cluster.wait_ready(name)
    assert _container(cluster, name) == before
    assert cluster.kubectl("exec", name, "--", "echo", "alive").stdout == "alive\n"
    cluster.apply(pod(f"{name}-after", runtime_class="crun"))
    cluster.wait_ready(f"{name}-after")


@pytest.mark.parametrize("part", ["apiserver", "controllers", "node", "engine"])
def test_a_killed_part_comes_back(whole_cluster: RunningCluster, name: str, part: str) -> None:
    whole_cluster.apply(pod(name))
    whole_cluster.wait_ready(name)
    before, killed = _container(whole_cluster, name), whole_cluster.part(part)
    os.kill(killed["pid"], signal.SIGKILL)

    def is_back() -> bool:
        now = whole_cluster.part(part)
        return bool(now["restarts"] == killed["restarts"] + 1 and now["state"] == "ready")

    until(is_back, f"{part} again")
    _prove_that_all_works(whole_cluster, name, before)
