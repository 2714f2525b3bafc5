"""The feature gate RuntimeClass, off: the field is as if it were not there."""

from __future__ import annotations

from pathlib import Path

from tests.running import pod, running, skip_without_kubectl


def test_with_the_gate_off_the_class_of_a_pod_is_dropped(tmp_path: Path) -> None:
    skip_without_kubectl()
    gates = {"RuntimeClass": False}
    with running(tmp_path / "data", has_node=False, gates=gates) as cluster:
        cluster.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=30s")
        cluster.apply(pod("plain", runtime_class="no-such-class"))
        assert "runtimeClassName" not in cluster.get("pod", "plain")["spec"]
