"""Inputs of a spec: the pod's sandbox, the image, the handler, and the container.

Values only. The engine's RPCs fill them in, and the rules beside this module read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moorage.engine.handlers.definition import CgroupDriver
from moorage.engine.oci.identity import Identity
from moorage.linux.capabilities import NAMES
from moorage.linux.cgroups import Cgroups, Layout
from moorage.linux.host import Host, read_host
from moorage.linux.oom import LOWEST_OOM_SCORE
from moorage.wire.cri import pb

# Host facts that a container's `config.json` depends on, derived from the `Host` of the process.
#
# Source: capabilities(7); Linux cgroup-v1 and cgroup-v2 documents.


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """The host. `oom_score_floor` is the lowest oom_score_adj this process may set.

    `machine` is uname's name of the processor. The capability names have their CAP_.
    """

    kernel: tuple[int, int]
    machine: str
    is_cgroup_v2: bool = False
    has_hugetlb: bool = False
    has_swap_accounting: bool = False
    has_app_armor: bool = False
    has_selinux: bool = False
    has_seccomp: bool = True
    oom_score_floor: int = LOWEST_OOM_SCORE
    known_capabilities: frozenset[str] = frozenset(NAMES)
    own_capabilities: frozenset[str] = frozenset(NAMES)


def look_at_host(host: Host | None = None) -> HostFacts:
    """Return the facts of a host, of this one if it is not given.

    Blocks. Raises OSError without /proc.
    """
    host = host or read_host()
    return HostFacts(
        kernel=host.kernel.version,
        machine=host.kernel.machine,
        is_cgroup_v2=host.cgroups.layout is Layout.V2,
        has_hugetlb=has_controller(host.cgroups, "hugetlb"),
        has_swap_accounting=host.has_swap_accounting,
        has_app_armor=host.has_app_armor,
        has_selinux=host.has_selinux,
        has_seccomp=host.has_seccomp,
        oom_score_floor=host.oom_score_floor,
        known_capabilities=host.known_capabilities,
        own_capabilities=host.capabilities,
    )


def has_controller(cgroups: Cgroups, name: str) -> bool:
    """Return whether a runtime finds the controller: on a hybrid it reads version 1 only."""
    return name in (cgroups.v2 if cgroups.layout is Layout.V2 else cgroups.v1)


Document = dict[str, Any]
"""A JSON object: an OCI `config.json` or a part of one."""

BUILT_IN_SECCOMP = "builtin"
UNCONFINED_SECCOMP = "unconfined"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerTraits:
    """A handler's definition and runtime features, as far as they shape a spec.

    The patterns are shell globs over annotation keys: the pod's are passed to the sandbox and to
    containers, the container's own to containers. `default_seccomp` is the meaning of
    RuntimeDefault: `builtin`, `unconfined`, or the absolute path of a profile. `is_virtualised`:
    containers run under a kernel of the runtime's own; with `has_processes_joined_unsaid`, a
    container without a PID namespace in its spec joins the pod's there.
    """

    name: str = ""
    annotation_patterns: tuple[str, ...] = ()
    container_annotation_patterns: tuple[str, ...] = ()
    has_recursive_read_only: bool = False
    has_user_namespaces: bool = False
    cgroup_driver: CgroupDriver = CgroupDriver.CGROUPFS
    is_virtualised: bool = False
    has_processes_joined_unsaid: bool = False
    has_host_devices_when_privileged: bool = True
    default_seccomp: str = BUILT_IN_SECCOMP


@dataclass(frozen=True, slots=True, kw_only=True)
class Rlimit:
    """A limit of setrlimit(2), with its name there: `RLIMIT_NOFILE`."""

    name: str
    soft: int
    hard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxFiles:
    """The sandbox's files to mount into containers; None leaves one out.

    `shm` is the sandbox's own tmpfs, None where it has the host's IPC namespace.
    """

    hostname: Path | None = None
    hosts: Path | None = None
    resolv_conf: Path | None = None
    shm: Path | None = None

    @classmethod
    def of(cls, directory: Path, config: pb.PodSandboxConfig) -> SandboxFiles:
        """Return the files of a sandbox with that configuration in its directory."""
        options = config.linux.security_context.namespace_options
        return cls(
            hostname=directory / "hostname",
            hosts=directory / "hosts",
            resolv_conf=directory / "resolv.conf",
            shm=directory / "shm" if options.ipc != pb.NODE else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxContext:
    """A sandbox as the specs of its containers need it.

    The namespace paths are pinned files, "" where nothing is pinned; then those of the infra
    process are joined, whose process id on this host is `infra_pid`. `hostname` is the pod's, or
    the host's when the pod has the host's network.
    """

    id: str
    config: pb.PodSandboxConfig
    hostname: str = ""
    netns: str = ""
    ipcns: str = ""
    utsns: str = ""
    userns: str = ""
    infra_pid: int | None = None
    files: SandboxFiles = SandboxFiles()

    @property
    def options(self) -> pb.NamespaceOption:
        """The pod's namespace options."""
        return self.config.linux.security_context.namespace_options

    @property
    def is_on_host_network(self) -> bool:
        return self.options.network == pb.NODE


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDefaults:
    """An image's defaults for fields that the container does not set."""

    user: str = ""
    env: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    working_dir: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRequest:
    """The inputs of a container's spec.

    `target_pid` is the first process, on this host, of the container whose PID namespace is to be
    joined. Limits that are not in `rlimits` are those of the runtime's own process.
    """

    id: str
    config: pb.ContainerConfig
    sandbox: SandboxContext
    image: ImageDefaults
    identity: Identity
    rootfs: Path
    handler: HandlerTraits
    target_pid: int | None = None
    rlimits: tuple[Rlimit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRequest:
    """The inputs of an infra task's spec: it holds a pod's namespaces, or a virtualised runtime."""

    sandbox: SandboxContext
    argv: tuple[str, ...]
    rootfs: Path
    handler: HandlerTraits
    env: Mapping[str, str] = field(default_factory=dict)
