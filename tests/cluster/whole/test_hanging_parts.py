"""Parts that hang without dying are noticed, shown and started again; pods go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import Any

import pytest

from tests.running import RunningCluster, pod, until

pytestmark = pytest.mark.runtime

PARTS = ("apiserver", "controllers", "node", "engine")
NAME = "beside-hanging-parts"


def test_stopped_parts_are_shown_and_come_back(whole_cluster: RunningCluster) -> None:
    whole_cluster.apply(pod(NAME))
    whole_cluster.wait_ready(NAME)
    container = whole_cluster.get("pod", NAME)["status"]["containerStatuses"][0]["containerID"]

    def parts() -> dict[str, Any]:
        rows = json.loads(whole_cluster.moor("status", "-o", "json").stdout)
        return {row["part"]: row for row in rows if row["part"] in PARTS}

    hanging = parts()
    for part in hanging.values():
        os.kill(part["pid"], signal.SIGSTOP)
    shown: set[str] = set()

    def are_shown() -> bool:
        shown.update(name for name, part in parts().items() if part["state"] == "not answering")
        return shown == set(PARTS)

    until(are_shown, "all shown as not answering", 60)

    def are_back() -> bool:
        return all(
            part["restarts"] > hanging[name]["restarts"] and part["state"] == "ready"
            for name, part in parts().items()
        )

    until(are_back, "all parts again", 120)
    whole_cluster.kubectl("wait", "--for=condition=Ready", "node/n1", "--timeout=60s")
    status = whole_cluster.get("pod", NAME)["status"]["containerStatuses"][0]
    assert (status["containerID"], status["restartCount"]) == (container, 0)
    # A node agent that has just started does not have its pods yet.
    until(lambda: _echo(whole_cluster) == "alive\n", "a command in the pod runs", 60)
    whole_cluster.kubectl("delete", "pod", NAME, "--wait=false")


def _echo(cluster: RunningCluster) -> str:
    """What a command in the pod prints; nothing if it cannot be run."""
    command = ["kubectl", "exec", NAME, "--", "echo", "alive"]
    return subprocess.run(
        command, env=cluster.environment, stdout=subprocess.PIPE, text=True, timeout=60, check=False
    ).stdout
