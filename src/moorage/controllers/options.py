"""Controller options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from moorage.api.missing_network import NOTHING


def has_no_programs(address: str, port: tuple[str, int]) -> bool:
    """Return that no program of the host has a port, where addresses are no host's."""
    del address, port
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """Defaults are those of kube-controller-manager 1.36; durations are in seconds.

    `cluster_ca` is the PEM bundle that pods verify the API server with; `cluster_ca_key` the file
    of its key, which signs certificate requests. Without one they are approved, but not signed.
    `installs_definitions`: apply the custom resources of the group runtime.moorage.dev.
    `runs_runtimes`: run the controllers of that group. `creates_classes`: create RuntimeClasses for
    the handlers that work. `removes_gates`: follow pods that the webhook holds until a node has
    their handler. `labels_floors`: label the namespaces of floors, so that they fail closed.
    their handler. `missing_network`: record events on objects of these kinds, which nothing
    implements. `load_balancer_addresses`: those of this host that load balancers get, unless
    `is_listening` says that a program of the host has the port; without any, others assign them.
    """

    cluster_ca: str
    cluster_ca_key: Path | None = None
    node_grace_period_s: float = 50.0
    node_startup_grace_period_s: float = 60.0
    node_evictions_per_s: float = 0.1
    node_slow_evictions_per_s: float = 0.01
    large_zone_nodes: int = 50
    unhealthy_zone_share: float = 0.55
    terminated_pods_kept: int = 12_500
    orphan_pod_quarantine_s: float = 40.0
    legacy_token_unused_s: float = 365 * 24 * 3600.0
    replica_set_workers: int = 5
    replication_controller_workers: int = 5
    deployment_workers: int = 5
    stateful_set_workers: int = 5
    daemon_set_workers: int = 2
    job_workers: int = 5
    cron_job_workers: int = 5
    resource_quota_workers: int = 5
    garbage_workers: int = 10
    autoscaler_workers: int = 5
    autoscaler_period_s: float = 15.0
    autoscaler_tolerance: float = 0.1
    autoscaler_downscale_stabilization_s: float = 300.0
    autoscaler_cpu_initialization_s: float = 300.0
    autoscaler_initial_readiness_delay_s: float = 30.0
    namespace_workers: int = 5
    runs_runtimes: bool = True
    installs_definitions: bool = False
    creates_classes: bool = False
    removes_gates: bool = False
    labels_floors: bool = False
    missing_network: frozenset[str] = NOTHING
    load_balancer_addresses: tuple[str, ...] = ()
    is_listening: Callable[[str, tuple[str, int]], bool] = has_no_programs
