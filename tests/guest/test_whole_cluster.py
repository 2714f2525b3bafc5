"""`moor up` on a host with systemd and cgroups of version 2 alone."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.guest.kubelet import WITHIN_S
from tests.guest.machine import Guest
from tests.guest.preparation import VENV
from tests.running import BUSYBOX

_MOOR = f"{VENV}/bin/moor"
_DATA = "--data-dir /root/cluster"
_CLASSES = ("runc", "crun")


@pytest.fixture(scope="module")
def cluster(guest: Guest) -> Iterator[Guest]:
    """The guest with a whole cluster of ours, in place of the engine and kubelet of others."""
    guest.run("systemctl stop kubelet moorage-engine", within_s=WITHIN_S)
    started = guest.run(
        f"{_MOOR} up --detach {_DATA} --pod-network 10.246.0.0/24", within_s=WITHIN_S
    )
    if started.code:
        # It waits for a minute, which a slow guest exceeds, and the cluster goes on starting.
        assert "not ready after" in started.errors, started.errors
        guest.until("grep '^cluster ready' /root/cluster/logs/supervisor.log", WITHIN_S)
    for name in _CLASSES:
        # A handler has its class once a probe ran under it.
        guest.until(f"grep 'runtime class created name={name}' /root/cluster/logs/*.log", WITHIN_S)
    yield guest
    guest.must(f"{_MOOR} down {_DATA}", within_s=WITHIN_S)


def test_a_pod_runs_under_each_class_with_its_limit(cluster: Guest) -> None:
    words = f"--class {','.join(_CLASSES)} --limit memory=64Mi --timeout 600 -o json"
    script = "uname -r; cat /sys/fs/cgroup/memory.max"
    done = cluster.run(
        f"{_MOOR} run {_DATA} {words} {BUSYBOX} -- sh -c '{script}'", within_s=WITHIN_S
    )
    assert done.code == 0, f"{done.output}{done.errors}"
    results = json.loads(done.output)["results"]
    outputs = {result["runtime_class"]: result["output"].split() for result in results}
    seen_by_each = [cluster.must("uname -r").strip(), str(64 * 1024**2)]
    assert outputs == dict.fromkeys(_CLASSES, seen_by_each)
