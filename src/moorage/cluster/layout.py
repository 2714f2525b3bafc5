"""Layout of a cluster's data directory."""

from __future__ import annotations

from pathlib import Path

import msgspec

SYSTEM_DATA_DIR = Path("/var/lib/moorage")
RUN = Path("/run/moorage")
PROBE_RESULTS = Path("/var/cache/moorage/probes")
"""What probes of runtime handlers found on this machine, for all of its clusters."""
"""State that a reboot removes: a directory for each cluster, named by its ID."""
ENGINE_SOCKET = "engine.sock"
"""The socket of the cluster's own engine, in its run directory."""


class Layout(msgspec.Struct, frozen=True):
    """The paths of a cluster. Outside `root` it has only its run directory and kernel objects."""

    root: Path

    @property
    def settings(self) -> Path:
        """Settings from the first start: name, ports, networks."""
        return self.root / "cluster.json"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.root / "kubeconfig"

    def part_kubeconfig(self, part: str) -> Path:
        """Return the kubeconfig for the program that takes a part's place."""
        return self.root / f"{part}.kubeconfig"

    @property
    def runtimes(self) -> Path:
        """Runtimes that `moor runtime` installed: NAME/VERSION."""
        return self.root / "runtimes"

    @property
    def front_proxy(self) -> Path:
        """The directory of the authority that extension servers trust."""
        return self.pki / "front-proxy"

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.root / "pki"

    @property
    def database(self) -> Path:
        """The store's database."""
        return self.root / "db" / "state.db"

    @property
    def store_mark(self) -> Path:
        """A record outside the database that it was created, and of its last revision."""
        return self.root / "store.mark"

    @property
    def logs(self) -> Path:
        """Logs of the parts."""
        return self.root / "logs"

    @property
    def audit_log(self) -> Path:
        """The API server's audit log."""
        return self.logs / "audit.log"

    @property
    def lock(self) -> Path:
        """Locked by the running supervisor, which writes its process ID into it."""
        return self.root / "supervisor.lock"

    @property
    def change_lock(self) -> Path:
        """Locked by the process that creates, changes or stops the cluster."""
        return self.root / "change.lock"

    @property
    def state(self) -> Path:
        """The status of the parts, as the supervisor last wrote it."""
        return self.root / "supervisor.json"

    @property
    def node(self) -> Path:
        """The node agent's directory: volumes, checkpoints."""
        return self.root / "node"

    @property
    def node_store(self) -> Path:
        """The identity of the store whose pods run on the node."""
        return self.node / "store"

    @property
    def pod_logs(self) -> Path:
        """Container logs."""
        return self.root / "pods"

    @property
    def engine(self) -> Path:
        """The container engine's directory."""
        return self.root / "engine"

    @property
    def engine_in_use(self) -> Path:
        """The endpoint of the engine that may have pods."""
        return self.root / "engine-in-use"

    @property
    def images(self) -> Path:
        """Image archives created on this host."""
        return self.root / "images"

    @property
    def unpacked(self) -> Path:
        """A backup while it is being restored."""
        return self.root / "restore"

    @property
    def replaced(self) -> Path:
        """What a restore replaced, in a directory for each."""
        return self.root / "replaced"

    def log(self, part: str) -> Path:
        """Return the path of a part's log."""
        return self.logs / f"{part}.log"
