"""ReplicationControllers on a real node: pods, scaling, a disruption budget."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.running import RunningCluster, pod, until

pytestmark = pytest.mark.runtime


@pytest.fixture
def name(whole_cluster: RunningCluster) -> Iterator[str]:
    """A name for a ReplicationController and its budget, which are gone afterwards."""
    name = f"rc-{uuid.uuid4().hex[:8]}"
    yield name
    whole_cluster.remove("rc,pdb", name)


def test_pods_of_a_replication_controller(whole_cluster: RunningCluster, name: str) -> None:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod(name)["spec"]}
    whole_cluster.apply(
        {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": name},
         "spec": {"replicas": 2, "template": template}},
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
         "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}}},
    )  # fmt: skip

    def ready() -> int:
        status = whole_cluster.get("rc", name)["status"]
        assert "terminatingReplicas" not in status
        return int(status.get("readyReplicas", 0))

    until(lambda: ready() == 2, "both pods are ready")
    # Its scale says how many pods the budget expects.
    until(
        lambda: whole_cluster.get("pdb", name)["status"].get("expectedPods") == 2,
        "the budget expects both pods",
    )
    whole_cluster.kubectl("scale", "rc", name, "--replicas=0")
    until(lambda: whole_cluster.get("rc", name)["status"]["replicas"] == 0, "no pod is left")
