"""The defaults of kube-controller-manager 1.36."""

from __future__ import annotations

from dataclasses import asdict

from moorage.controllers.options import ControllerOptions, has_no_programs


def test_defaults_are_upstreams() -> None:
    assert asdict(ControllerOptions(cluster_ca="ca")) == {
        "cluster_ca": "ca",
        "cluster_ca_key": None,
        "node_grace_period_s": 50.0,
        "node_startup_grace_period_s": 60.0,
        "node_evictions_per_s": 0.1,
        "node_slow_evictions_per_s": 0.01,
        "large_zone_nodes": 50,
        "unhealthy_zone_share": 0.55,
        "terminated_pods_kept": 12_500,
        "orphan_pod_quarantine_s": 40.0,
        "legacy_token_unused_s": 8760 * 3600.0,
        "replica_set_workers": 5,
        "replication_controller_workers": 5,
        "deployment_workers": 5,
        "stateful_set_workers": 5,
        "daemon_set_workers": 2,
        "job_workers": 5,
        "cron_job_workers": 5,
        "resource_quota_workers": 5,
        "garbage_workers": 10,
        "autoscaler_workers": 5,
        "autoscaler_period_s": 15.0,
        "autoscaler_tolerance": 0.1,
        "autoscaler_downscale_stabilization_s": 300.0,
        "autoscaler_cpu_initialization_s": 300.0,
        "autoscaler_initial_readiness_delay_s": 30.0,
        "namespace_workers": 5,
        # Ours.
        "installs_definitions": False,
        "creates_classes": False,
        "missing_network": frozenset(),
        "load_balancer_addresses": (),
        "is_listening": has_no_programs,
        "removes_gates": False,
        "labels_floors": False,
        "runs_runtimes": True,
    }
