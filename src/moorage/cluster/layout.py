"""Where everything of one cluster lies, below its data directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SYSTEM_DATA_DIR = Path("/var/lib/moorage")
RUN = Path("/run/moorage")
"""What a reboot ends: a directory for each cluster, named by its id."""
ENGINE_SOCKET = "engine.sock"
"""Where the cluster's own engine takes calls, in its run directory."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of a cluster. Nothing outside `root` belongs to it but what the kernel holds."""

    root: Path

    @property
    def settings(self) -> Path:
        """What was decided at the first start: name, ports, networks."""
        return self.root / "cluster.json"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.root / "kubeconfig"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def database(self) -> Path:
        return self.root / "db" / "state.db"

    @property
    def store_mark(self) -> Path:
        """What records outside the database that it was made, and how far it went."""
        return self.root / "store.mark"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def lock(self) -> Path:
        """Held by the running supervisor, which writes its process id into it."""
        return self.root / "supervisor.lock"

    @property
    def change_lock(self) -> Path:
        """Held by whoever makes, changes or takes down the cluster, while that takes."""
        return self.root / "change.lock"

    @property
    def state(self) -> Path:
        """What the supervisor last said of its parts."""
        return self.root / "supervisor.json"

    @property
    def node(self) -> Path:
        """The node agent's own: volumes, checkpoints."""
        return self.root / "node"

    @property
    def node_store(self) -> Path:
        """The identity of the store whose pods run on the node."""
        return self.node / "store"

    @property
    def pod_logs(self) -> Path:
        """What containers wrote."""
        return self.root / "pods"

    @property
    def engine(self) -> Path:
        """The container engine's own."""
        return self.root / "engine"

    @property
    def engine_in_use(self) -> Path:
        """Which engine the pods may be on."""
        return self.root / "engine-in-use"

    @property
    def images(self) -> Path:
        """Image archives made on this machine."""
        return self.root / "images"

    def log(self, part: str) -> Path:
        return self.logs / f"{part}.log"
