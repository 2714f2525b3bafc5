"""Layout of a cluster's data directory."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from moorage.cluster.settings import SettingsError

# Data directory check: a cluster is created only in a directory without other files.

# Pod names (namespace, name, uid) and container names are below it. Source: PATH_MAX, NAME_MAX.
_DATA_DIR_BYTES = 1024
# Names that only a cluster's directory has. A start reports which of them is missing.
_MARKS = frozenset({"cluster.json", "db", "pki", "store.mark", "supervisor.json"})
# Names that may exist in a cluster's directory before its settings, or on an empty file system.
_BEFORE_SETTINGS = frozenset({"change.lock", "engine", "images", "logs", "lost+found", "restore"})


def check_directory(directory: Path) -> None:
    """Check that a directory has a cluster, or that one can be created there.

    Raises SettingsError for a path that cannot be written to, that belongs to another user, or that
    holds other files, which deleting the cluster would delete.
    """
    problem = _problem(directory)
    if problem:
        raise SettingsError(f"--data-dir {directory}: {problem}; choose another directory")


def _problem(root: Path) -> str:
    """Return why a directory cannot be a cluster's, empty if it can."""
    if len(bytes(root)) > _DATA_DIR_BYTES:
        return f"the path is longer than {_DATA_DIR_BYTES} bytes, which leaves no room below it"
    if not root.exists():
        return _parent_problem(next(parent for parent in root.parents if parent.exists()))
    if not os.access(root, os.W_OK | os.X_OK):
        return "it is not writable for this user"
    # Its owner could exchange the settings, which say what root runs.
    owner = root.stat().st_uid
    if owner not in (0, os.geteuid()):
        return f"it belongs to uid {owner}, who could change what runs as root; chown it"
    names = {entry.name for entry in root.iterdir()}
    if not names & _MARKS and not names <= _BEFORE_SETTINGS:
        return f"it is not a cluster's directory and is not empty ({min(names - _BEFORE_SETTINGS)})"
    return ""


def _parent_problem(parent: Path) -> str:
    if not parent.is_dir():
        return f"{parent} is not a directory"
    if not os.access(parent, os.W_OK | os.X_OK):
        return f"{parent} is not writable for this user"
    return ""


# Names that several parts of a cluster share.

CLUSTER_DOMAIN = "cluster.local"
ISSUER = f"https://kubernetes.default.svc.{CLUSTER_DOMAIN}"
"""The issuer of service account tokens."""
FRONT_PROXY_NAME = "front-proxy-client"
"""The common name of the API server's certificate for calls to extension servers."""
NODE_CLIENT_NAME = "kube-apiserver-kubelet-client"
"""The common name of the API server's certificate for calls to node agents."""

NETWORK_NAME = "system:moorage-network"
"""The common name of the network agent's certificate as a client of the API server."""


SYSTEM_DATA_DIR = Path("/var/lib/moorage")
RUN = Path("/run/moorage")
"""State that a reboot removes: a directory for each cluster, named by its ID."""
PROBE_RESULTS = Path("/var/cache/moorage/probes")
"""What probes of runtime handlers found on this machine, for all of its clusters."""
ENGINE_SOCKET = "engine.sock"
"""The socket of the cluster's own engine, in its run directory."""
DNS_SOCKET = "dns.sock"
"""The socket in the run directory on which the cluster DNS receives the names of Services."""


class Layout(msgspec.Struct, frozen=True):
    """The paths of a cluster. Outside `root` it has only its run directory and kernel objects.

    `run` has the run directories of this machine's clusters.
    """

    root: Path
    run: Path = RUN

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
