"""Node agent paths, in the kubelet's layout.

The same names under another root, so that tools for a kubelet's directory work, and either agent
can take over a node from the other. Source: kubelet `kubelet_getters.go`, CRI log directory
convention.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class NodePaths:
    """Directories of the agent. `root` is `--root-dir`; the CRI writes logs below `logs`."""

    root: Path
    logs: Path

    @property
    def pods(self) -> Path:
        return self.root / "pods"

    @property
    def image_records(self) -> Path:
        """Directory of the pull records."""
        return self.root / "image_manager"

    @property
    def shutdown_record(self) -> Path:
        """File with the times of the last shutdown, of the kubelet's name."""
        return self.root / "graceful_node_shutdown_state"

    @property
    def local_volumes(self) -> Path:
        """Directory of the volumes that Moorage provisioned on this node; it outlives all pods."""
        return self.root / "local-volumes"

    def local_volume(self, handle: str) -> Path:
        """Return the directory of a provisioned volume; the handle is a claim's uid."""
        return self.local_volumes / handle

    def unfinished_volume(self, handle: str) -> Path:
        """Return where the directory of a provisioned volume is until it is complete."""
        return self.local_volumes / f".{handle}.new"

    def pod(self, uid: str) -> PodPaths:
        return PodPaths(self.pods / uid)

    def has_traces(self, namespace: str, name: str, uid: str) -> bool:
        """Return whether the pod has logs or a directory here, as all pods of this agent do.

        Blocks.
        """
        return self.pod_logs(namespace, name, uid).exists() or self.pod(uid).root.exists()

    def pod_logs(self, namespace: str, name: str, uid: str) -> Path:
        return self.logs / f"{namespace}_{name}_{uid}"


@dataclass(frozen=True, slots=True)
class PodPaths:
    """Paths of one pod."""

    root: Path

    @property
    def uid(self) -> str:
        return self.root.name

    @property
    def volumes(self) -> Path:
        return self.root / "volumes"

    def volume(self, plugin: str, name: str) -> Path:
        """Return a volume's directory; `plugin` is a kubelet name such as `empty-dir`."""
        return self.volumes / f"kubernetes.io~{plugin}" / name

    def ready_file(self, plugin: str, name: str) -> Path:
        """Return the file that says that a volume's directory is complete, as the kubelet's."""
        return self.root / "plugins" / f"kubernetes.io~{plugin}" / name / "ready"

    @property
    def hosts_file(self) -> Path:
        return self.root / "etc-hosts"

    def container(self, container: str) -> Path:
        """Return the directory of a container's termination message files."""
        return self.root / "containers" / container

    @property
    def subpaths(self) -> Path:
        return self.root / "volume-subpaths"

    def subpath(self, volume: str, container: str, index: int) -> Path:
        """Return the bind mount target of the subPath of a container's mount number `index`."""
        return self.subpaths / volume / container / str(index)

    @property
    def user_namespace(self) -> Path:
        return self.root / "userns"

    @property
    def runtime_handler(self) -> Path:
        """File with the handler that the pod was admitted with."""
        return self.root / "runtime-handler"

    @property
    def resources(self) -> Path:
        """File with the resources that the pod was promised and its containers were given."""
        return self.root / "resources"

    @property
    def directories(self) -> tuple[Path, ...]:
        return (self.root, self.volumes, self.root / "plugins")


def container_log(container: str, attempt: int) -> str:
    """Return the log's path below the pod's log directory."""
    return f"{container}/{attempt}.log"


def legacy_log_link(pod: str, namespace: str, container: str, container_id: str) -> str:
    """Return the flat link name that log shippers expect under /var/log/containers."""
    # A file name has at most 255 bytes; the ID must not be truncated.
    suffix = f"-{container_id}.log"
    return f"{pod}_{namespace}_{container}"[: 255 - len(suffix)] + suffix
