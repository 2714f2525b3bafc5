"""What the person who starts a node agent may decide.

One frozen value, built by the command line or the cluster supervisor and read everywhere; nothing
in this package reads environment variables or files of its own to learn how to behave. Names and
defaults follow KubeletConfiguration where it has the same setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from moorage.api.host_ports import Listener
from moorage.api.nodes import Taint
from moorage.linux.id_register import REGISTER
from moorage.node.images.verification import AllowlistError, Verification
from moorage.node.runtime.labels import owner_of

RUNTIME_CLASS = "RuntimeClass"
GATES = {RUNTIME_CLASS: True}
"""Every feature gate of the node agent → whether it is on unless told otherwise."""

CGROUPFS = "cgroupfs"
SYSTEMD = "systemd"


class OptionsError(ValueError):
    """Options that contradict each other or the machine; the text says what to set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The HTTPS endpoint the API server calls. Certificates are PEM files.

    `api_server_names` are the common names a client certificate may carry; with none given, any
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
    """When images are removed: above `high_percent` of the disk, down to `low_percent`."""

    high_percent: int = 85
    low_percent: int = 80
    minimum_age_s: float = 120.0
    period_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerGarbageOptions:
    """How many dead containers stay for their logs. Source: kubelet `ContainerGCPolicy`."""

    minimum_age_s: float = 0.0
    per_container: int = 1
    in_all: int = -1
    period_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRotationOptions:
    """How long one container's log may grow, and how many files of it are kept.

    The kubelet looks every 10 s; every second bounds what a flooding container writes between two
    looks to the engine's limit of the log rate.
    """

    max_bytes: int = 10 * 1024 * 1024
    max_files: int = 5
    period_s: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """Everything about one node agent that is not the cluster's or the engine's.

    `reserved` is kept back from what pods may be given (resource name → quantity; `pid` too, as in
    KubeletConfiguration's `systemReserved`). `node_ip` and
    `hostname` are found on the machine when empty. `service_environment` overrides variables of
    the service environment, such as KUBERNETES_SERVICE_HOST where nothing routes cluster IPs.
    `cluster_id` distinguishes this cluster's sandboxes from others on the same engine.
    `listeners` are the ports of this host that the cluster itself uses: no pod gets them.
    `id_register` is the machine's register of user id ranges.
    `oom_score_floor` is the lowest oom_score_adj the engine may set here: -1000 with
    CAP_SYS_RESOURCE, the engine's own score without.
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

    @property
    def owner(self) -> str:
        """The owner label of this agent's sandboxes."""
        return owner_of(self.cluster_id, self.name)

    def is_enabled(self, gate: str) -> bool:
        """Whether a feature gate is on. Raises KeyError for a gate that does not exist."""
        return self.gates.get(gate, GATES[gate])

    def check(self) -> None:
        """Raise OptionsError for what cannot work, before anything has been started."""
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
        if self.log_rotation.max_files < 2:
            raise OptionsError("log rotation needs at least 2 files: the current and one before")
        if self.image_garbage.low_percent >= self.image_garbage.high_percent:
            raise OptionsError("image garbage: the low threshold must be below the high one")
