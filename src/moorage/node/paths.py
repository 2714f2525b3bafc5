"""Where the node agent keeps things, laid out as the kubelet lays them out.

The same names under another root, so that tools that look into a kubelet's directory find their
way, and so that either agent can take over a node from the other. Source: kubelet
`kubelet_getters.go`, CRI log directory convention.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class NodePaths:
    """The agent's directories. `root` is `--root-dir`, `logs` is where the CRI writes logs."""

    root: Path
    logs: Path

    @property
    def pods(self) -> Path:
        return self.root / "pods"

    @property
    def image_records(self) -> Path:
        """What was pulled, and with whose credentials."""
        return self.root / "image_manager"

    def pod(self, uid: str) -> PodPaths:
        return PodPaths(self.pods / uid)

    def has_traces(self, namespace: str, name: str, uid: str) -> bool:
        """Whether the pod has logs or a directory here, as every pod of this agent has. Blocks."""
        return self.pod_logs(namespace, name, uid).exists() or self.pod(uid).root.exists()

    def pod_logs(self, namespace: str, name: str, uid: str) -> Path:
        return self.logs / f"{namespace}_{name}_{uid}"


@dataclass(frozen=True, slots=True)
class PodPaths:
    """The directory of one pod."""

    root: Path

    @property
    def uid(self) -> str:
        return self.root.name

    @property
    def volumes(self) -> Path:
        return self.root / "volumes"

    def volume(self, plugin: str, name: str) -> Path:
        """`plugin` as the kubelet names it, such as `empty-dir`."""
        return self.volumes / f"kubernetes.io~{plugin}" / name

    @property
    def hosts_file(self) -> Path:
        return self.root / "etc-hosts"

    def container(self, container: str) -> Path:
        """Holds the termination message files of a container."""
        return self.root / "containers" / container

    @property
    def subpaths(self) -> Path:
        return self.root / "volume-subpaths"

    def subpath(self, volume: str, container: str, index: int) -> Path:
        """Where the subPath of a container's mount number `index` is bound."""
        return self.subpaths / volume / container / str(index)

    @property
    def user_namespace(self) -> Path:
        return self.root / "userns"

    @property
    def runtime_handler(self) -> Path:
        """The handler the pod was admitted with."""
        return self.root / "runtime-handler"

    @property
    def directories(self) -> tuple[Path, ...]:
        return (self.root, self.volumes, self.root / "plugins")


def container_log(container: str, attempt: int) -> str:
    """The log's path below the pod's log directory."""
    return f"{container}/{attempt}.log"


def legacy_log_link(pod: str, namespace: str, container: str, container_id: str) -> str:
    """The flat name log shippers expect under /var/log/containers."""
    # A file name holds 255 bytes; the id is the part that must stay whole.
    suffix = f"-{container_id}.log"
    return f"{pod}_{namespace}_{container}"[: 255 - len(suffix)] + suffix
