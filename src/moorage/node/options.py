"""Node agent options.

One frozen value, built by the command line or the cluster supervisor; nothing in this package reads
environment variables or configuration files of its own. Names and defaults follow
KubeletConfiguration where it has the same setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from moorage.api.host_ports import Listener
from moorage.api.nodes import Taint
from moorage.linux.id_register import REGISTER
from moorage.node.images.verification import AllowlistError, Verification
from moorage.node.pod_facts.labels import owner_of
from moorage.node.pressure.thresholds import EvictionOptions, ThresholdError, thresholds_of
from moorage.node.shutdown_periods import ShutdownPeriod

RUNTIME_CLASS = "RuntimeClass"
GATES = {RUNTIME_CLASS: True}
"""Feature gates of the node agent → their defaults."""

CGROUPFS = "cgroupfs"
SYSTEMD = "systemd"


class OptionsError(ValueError):
    """Options contradict each other or the host; the text says what to set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """HTTPS endpoint for the API server. Certificates are PEM files.

    `api_server_names` are the common names that a client certificate may have; when empty, any
    certificate that `client_ca_file` signed is accepted.
    """

    certificate_file: Path
    key_file: Path
    client_ca_file: Path
    address: str = "0.0.0.0"
    port: int = 10250
    api_server_names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageGarbageOptions:
    """Thresholds of image removal: above `high_percent` of the disk, down to `low_percent`."""

    high_percent: int = 85
    low_percent: int = 80
    minimum_age_s: float = 120.0
    period_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerGarbageOptions:
    """How many dead containers are kept for their logs. Source: kubelet `ContainerGCPolicy`."""

    minimum_age_s: float = 0.0
    per_container: int = 1
    in_all: int = -1
    period_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRotationOptions:
    """Size limit of a container's log file, and how many files are kept.

    The kubelet checks every 10 s; a check every second bounds what a flooding container writes in
    between to the engine's limit of the log rate.
    """

    max_bytes: int = 10 * 1024 * 1024
    max_files: int = 5
    period_s: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """Settings of one node agent, apart from the cluster's and the engine's.

    `reserved` is subtracted from the allocatable resources (resource name → quantity; `pid` too, as
    in KubeletConfiguration's `systemReserved`). `node_ip` and `hostname` default to the host's.
    `service_environment` overrides service environment variables, such as KUBERNETES_SERVICE_HOST
    where cluster IPs are not routed. `cluster_id` distinguishes this cluster's sandboxes from
    others on the same engine. `listeners` are the host ports that the cluster itself uses: no pod
    gets them. `id_register` is the host's register of user ID ranges. `oom_score_floor` is the
    lowest oom_score_adj that the engine may set: -1000 with CAP_SYS_RESOURCE, the engine's own
    score without. `static_pod_path` is the directory of static pods' manifests.
    `shutdown_periods` are the pods' grace periods when the host shuts down; without any, a shutdown
    is not delayed.
    """

    name: str
    cluster_id: str = ""
    node_ip: str = ""
    hostname: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    root_dir: Path = Path("/var/lib/moorage/node")
    pod_logs_dir: Path = Path("/var/log/pods")
    container_logs_dir: Path | None = Path("/var/log/containers")
    seccomp_dir: Path | None = None
    server: ServerOptions | None = None
    cgroup_root: str = "/moorage"
    cgroup_driver: str = CGROUPFS
    oom_score_floor: int = -1000
    max_pods: int = 110
    id_register: Path = REGISTER
    pod_pids_limit: int = -1
    reserved: Mapping[str, str] = field(default_factory=dict)
    cluster_dns: tuple[str, ...] = ()
    cluster_domain: str = "cluster.local"
    resolv_conf: Path | None = Path("/etc/resolv.conf")
    service_environment: Mapping[str, str] = field(default_factory=dict)
    listeners: tuple[Listener, ...] = ()
    parallel_pulls: int = 5
    seccomp_default: bool = False
    gates: Mapping[str, bool] = field(default_factory=dict)
    status_period_s: float = 300.0
    lease_duration_s: int = 40
    engine_check_period_s: float = 5.0
    relist_period_s: float = 1.0
    refresh_period_s: float = 30.0
    image_garbage: ImageGarbageOptions = ImageGarbageOptions()
    image_verification: Verification = field(default_factory=Verification)
    container_garbage: ContainerGarbageOptions = ContainerGarbageOptions()
    log_rotation: LogRotationOptions = LogRotationOptions()
    eviction: EvictionOptions = field(default_factory=EvictionOptions)
    static_pod_path: Path | None = None
    shutdown_periods: tuple[ShutdownPeriod, ...] = ()

    @property
    def owner(self) -> str:
        """Return the owner label of this agent's sandboxes."""
        return owner_of(self.cluster_id, self.name)

    def is_enabled(self, gate: str) -> bool:
        """Return whether a feature gate is enabled. Raises KeyError for an unknown gate."""
        return self.gates.get(gate, GATES[gate])

    def check(self) -> None:
        """Raise OptionsError for invalid options, before anything is started."""
        unknown = sorted(set(self.gates) - set(GATES))
        if unknown:
            raise OptionsError(
                f"unknown feature gate {unknown[0]!r}: the node agent knows {', '.join(GATES)}"
            )
        if self.cgroup_driver != CGROUPFS:
            raise OptionsError(
                f"cgroup driver {self.cgroup_driver!r} is not supported: set the engine and the "
                "node agent to 'cgroupfs' (containerd: SystemdCgroup = false; "
                'CRI-O: cgroup_manager = "cgroupfs")'
            )
        if not self.cgroup_root.startswith("/"):
            raise OptionsError(f"cgroup root {self.cgroup_root!r} must be an absolute path")
        try:
            self.image_verification.check()
        except AllowlistError as error:
            raise OptionsError(str(error)) from error
        try:
            thresholds_of(self.eviction)
        except ThresholdError as error:
            raise OptionsError(str(error)) from error
        if self.log_rotation.max_files < 2:
            raise OptionsError("log rotation needs at least 2 files: the current and one before")
        if self.image_garbage.low_percent >= self.image_garbage.high_percent:
            raise OptionsError("image garbage: the low threshold must be below the high one")
