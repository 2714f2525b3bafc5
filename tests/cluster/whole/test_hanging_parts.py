"""Parts that hang without dying are noticed, shown and started again; pods go on."""

from __future__ import annotations

import json
import os
import signal
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
    assert whole_cluster.kubectl("exec", NAME, "--", "echo", "alive").stdout == "alive\n"
    whole_cluster.kubectl("delete", "pod", NAME, "--wait=false")
