"""Quotas and limit ranges with real controllers and pods."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.running import RunningCluster, pod, until

pytestmark = pytest.mark.runtime


@pytest.fixture
def namespace(whole_cluster: RunningCluster) -> Iterator[str]:
    """A namespace with its account, which is gone afterwards."""
    name = f"quota-{uuid.uuid4().hex[:8]}"
    whole_cluster.create_namespace(name)
    yield name
    whole_cluster.remove("namespace", name)


def test_a_quota_is_used_and_freed(whole_cluster: RunningCluster, namespace: str) -> None:
    def kubectl(*arguments: str, fails: bool = False) -> str:
        done = whole_cluster.kubectl(*arguments, "-n", namespace, fails=fails)
        return done.stdout + done.stderr

    kubectl("create", "quota", "q", "--hard=pods=1,limits.memory=64Mi,secrets=1")

    def used(resource: str) -> str:
        quota = whole_cluster.get("quota", "q", "-n", namespace)
        return str(quota.get("status", {}).get("used", {}).get(resource, ""))

    until(lambda: used("pods") == "0", "the quota is observed")
    whole_cluster.apply({
        "apiVersion": "v1", "kind": "LimitRange",
        "metadata": {"name": "l", "namespace": namespace},
        "spec": {"limits": [{"type": "Container", "default": {"memory": "48Mi"}}]},
    })  # fmt: skip
    first = pod("a")
    first["metadata"]["namespace"] = namespace
    whole_cluster.apply(first)
    assert (used("pods"), used("limits.memory")) == ("1", "48Mi")
    refusal = kubectl("run", "b", "--image=i", "--restart=Never", fails=True)
    assert (
        'pods "b" is forbidden: exceeded quota: q, requested: limits.memory=48Mi,pods=1, used: '
        "limits.memory=48Mi,pods=1, limited: limits.memory=64Mi,pods=1"
    ) in refusal
    assert "limits.memory: 48Mi/64Mi" in kubectl("get", "quota", "q")
    kubectl("delete", "pod", "a", "--grace-period=0", "--force")
    until(lambda: used("pods") == "0", "the pod's use is freed")
    kubectl("create", "secret", "generic", "s")
    kubectl("create", "secret", "generic", "t", fails=True)
    kubectl("delete", "secret", "s")
    until(lambda: used("secrets") == "0", "the secret's use is freed")
    kubectl("create", "secret", "generic", "t")
