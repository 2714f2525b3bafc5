"""Where a private engine keeps its things: what must last in the data folder, the rest in /run.

The kernel takes no socket path over 107 bytes, and a data folder may lie deep, so sockets are
under a short path of the cluster's own. What a reboot ends (sockets, sandboxes' state, network
namespaces, address leases) is there too, so that it ends with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

RUN = Path("/run/moorage")
HUGETLB_MARKER = RUN / "hugetlb"
"""Says that a cluster of this machine moved the hugetlb controller. The last one moves it back."""


@dataclass(frozen=True, slots=True)
class EnginePaths:
    """`data` outlives a reboot, `run` does not; `log` is the file the engine writes to."""

    data: Path
    run: Path
    log: Path

    @classmethod
    def of(cls, cluster_id: str, data: Path, log: Path) -> EnginePaths:
        """The paths of a cluster's engine. Paths are made absolute."""
        return cls(data.absolute(), RUN / cluster_id, log.absolute())

    @property
    def socket(self) -> Path:
        return self.run / "containerd.sock"

    @property
    def endpoint(self) -> str:
        """The CRI endpoint."""
        return f"unix://{self.socket}"

    @property
    def configuration(self) -> Path:
        return self.data / "containerd.toml"

    @property
    def root(self) -> Path:
        """Images, snapshots and the containers' records."""
        return self.data / "containerd"

    @property
    def state(self) -> Path:
        """Running sandboxes and containers: bundles, mounts, network namespaces."""
        return self.run / "containerd"

    @property
    def bundles(self) -> Path:
        """One folder for each task that a shim runs, named by its id."""
        return self.state / "io.containerd.runtime.v2.task" / "k8s.io"

    @property
    def runtimes(self) -> Path:
        """Where OCI runtimes keep their containers' state."""
        return self.run / "runtimes"

    @property
    def cni(self) -> Path:
        """The network's configuration."""
        return self.data / "cni"

    @property
    def leases(self) -> Path:
        """Which pod has which address."""
        return self.run / "leases"

    @property
    def registries(self) -> Path:
        """One folder for each registry that has a mirror."""
        return self.data / "registries"

    @property
    def record(self) -> Path:
        """Which process is the engine's, for a start that finds it running."""
        return self.run / "containerd.json"

    @property
    def notifications(self) -> Path:
        """The socket on which the engine says that it is ready."""
        return self.run / "notify.sock"
