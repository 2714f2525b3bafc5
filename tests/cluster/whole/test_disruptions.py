"""Disruption budgets with real pods: kubectl drain waits for them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest

from tests.running import RunningCluster, pod, until

pytestmark = pytest.mark.runtime


@pytest.fixture
def name(whole_cluster: RunningCluster) -> Iterator[str]:
    """A name for a Deployment and its budget, which are gone afterwards."""
    name = f"pdb-{uuid.uuid4().hex[:8]}"
    yield name
    whole_cluster.remove("deployment,pdb", name)


def test_evictions_wait_for_the_replacement(whole_cluster: RunningCluster, name: str) -> None:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod(name)["spec"]}
    whole_cluster.apply({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
    })  # fmt: skip
    whole_cluster.apply({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}},
    })  # fmt: skip
    whole_cluster.kubectl("rollout", "status", f"deployment/{name}", "--timeout=60s")

    def allowed() -> int:
        return int(whole_cluster.get("pdb", name)["status"].get("disruptionsAllowed", 0))

    until(lambda: allowed() == 1, "a disruption is allowed")
    before = {
        item["metadata"]["name"] for item in whole_cluster.get("pods", "-l", f"app={name}")["items"]
    }
    assert len(before) == 2
    # One after the other: the second eviction is refused until the first pod is replaced.
    shown = whole_cluster.kubectl(
        "drain", "--ignore-daemonsets", "--force", "--delete-emptydir-data", "--timeout=60s",
        "--grace-period=0", f"--pod-selector=app={name}", "--dry-run=server",
        whole_cluster.get("nodes")["items"][0]["metadata"]["name"],
    ).stdout  # fmt: skip
    assert all(f"evicting pod default/{pod_name}" in shown for pod_name in before)
    first, second = sorted(before)
    path = "/api/v1/namespaces/default/pods/{}/eviction"

    def evict(pod_name: str, *, fails: bool = False) -> str:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod_name}}
        done = whole_cluster.kubectl(
            "create", "--raw", path.format(pod_name), "-f", "-", stdin=json.dumps(body), fails=fails
        )
        return done.stdout + done.stderr

    # The replacement finds no node until the refusal is there: it may be ready before it else.
    node = whole_cluster.get("nodes")["items"][0]["metadata"]["name"]
    whole_cluster.kubectl("cordon", node)
    try:
        assert '"Success"' in evict(first)
        refusal = evict(second, fails=True)
    finally:
        whole_cluster.kubectl("uncordon", node)
    assert "Cannot evict pod as it would violate the pod's disruption budget." in refusal
    until(lambda: allowed() == 1, "a disruption is allowed")
    assert '"Success"' in evict(second)
