"""Metrics of a whole cluster's parts: where they are, who reads them, what they show."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator

import pytest

from tests.running import RunningCluster, pod, until

pytestmark = pytest.mark.runtime


def _read(cluster: RunningCluster, part: str, *, as_admin: bool = True) -> tuple[int, str]:
    settings = json.loads((cluster.data_dir / "cluster.json").read_text())
    pki = cluster.data_dir / "pki"
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    if as_admin:
        context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    url = f"https://127.0.0.1:{settings[f'{part}_port']}/metrics"
    try:
        with urllib.request.urlopen(url, context=context, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


@pytest.fixture(scope="module")
def a_pod(whole_cluster: RunningCluster) -> Iterator[str]:
    """A pod that was scheduled."""
    name = f"metrics-{uuid.uuid4().hex[:8]}"
    whole_cluster.apply(pod(name))
    yield name
    whole_cluster.kubectl("delete", "pod", name, "--wait=false")


@pytest.mark.parametrize(
    ("part", "series"),
    [
        ("controllers", 'workqueue_adds_total{name="'),
        ("controllers", 'workqueue_work_duration_seconds_count{name="'),
        ("controllers", 'rest_client_requests_total{code="200",method="GET"'),
        ("scheduler", 'scheduler_schedule_attempts_total{profile="default-scheduler"'),
        ("scheduler", 'scheduler_pending_pods{queue="active"}'),
        ("scheduler", "process_resident_memory_bytes"),
    ],
)
def test_parts_serve_their_metrics(
    whole_cluster: RunningCluster, a_pod: str, part: str, series: str
) -> None:
    whole_cluster.wait_ready(a_pod)
    until(lambda: series in _read(whole_cluster, part)[1], f"{series} in the metrics of {part}")


def test_without_a_certificate_nothing_is_read(whole_cluster: RunningCluster) -> None:
    for part in ("controllers", "scheduler"):
        assert _read(whole_cluster, part, as_admin=False) == (401, "Unauthorized\n")


def test_the_node_agents_metrics_come_through_the_api(whole_cluster: RunningCluster) -> None:
    (node,) = whole_cluster.get("nodes")["items"]
    path = f"/api/v1/nodes/{node['metadata']['name']}/proxy/metrics"
    text = whole_cluster.kubectl("get", "--raw", path).stdout
    for series in (
        'kubelet_runtime_operations_total{operation_type="version"}',
        "kubelet_running_pods ",
        'rest_client_requests_total{code="200"',
        "process_cpu_seconds_total ",
    ):
        assert f"\n{series}" in text
