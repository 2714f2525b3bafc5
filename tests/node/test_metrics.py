"""The agent's own metrics."""

from __future__ import annotations

import pytest

from moorage.node.metrics import Metrics


def test_only_what_was_asked_for() -> None:
    text = Metrics().text(["prober_"])
    assert "# TYPE prober_probe_total counter" in text
    assert "kubelet_" not in text


@pytest.mark.parametrize(
    ("rpc", "operation"),
    [
        ("RunPodSandbox", "run_podsandbox"),
        ("ListPodSandboxStats", "list_podsandbox_stats"),
        ("CreateContainer", "create_container"),
        ("UpdateContainerResources", "update_container"),
        ("Version", "version"),
    ],
)
def test_calls_have_the_kubelets_names(rpc: str, operation: str) -> None:
    metrics = Metrics()
    metrics.count_call(rpc, 0.01, False)
    metrics.count_call(rpc, 9, True)
    labels = {"operation_type": operation}
    assert metrics.runtime_operations.value(**labels) == 2
    assert metrics.runtime_errors.value(**labels) == 1
    name = "kubelet_runtime_operations_duration_seconds_bucket"
    assert f'{name}{{operation_type="{operation}",le="0.0125"}} 1' in metrics.text()
