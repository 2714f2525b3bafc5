"""CRI configuration of a probe: its sandbox and its container.

Pure. Source: CRI v1; kubelet `generatePodSandboxConfig` and `generateContainerConfig`.
"""

from __future__ import annotations

import msgspec

from moorage.api.runtime_group import PROBE_LABEL, PROBE_NAMESPACE
from moorage.runtimes.probing.carrier import (
    ENVIRONMENT,
    USER,
    WORKING_DIRECTORY,
    ProbeContainer,
    Seccomp,
)
from moorage.wire.cri import pb

NAMESPACE = PROBE_NAMESPACE
CONTAINER_NAME = "probe"
LOG_NAME = "probe.log"
DEVICES_DIRECTORY = "/probe-devices"

_ID_RANGE_LENGTH = 65536
_PERIOD_US = 100_000
_PROFILES = {
    Seccomp.UNCONFINED: pb.SecurityProfile.Unconfined,
    Seccomp.RUNTIME_DEFAULT: pb.SecurityProfile.RuntimeDefault,
}


def probe_owner(cluster_id: str, node: str) -> str:
    """Return the value of the label for a cluster's node."""
    return f"{cluster_id}.{node}"


class ProbePlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a probe runs: its name and UID, its log directory and the cgroup of its pod.

    `first_id` is the first of 65536 user IDs of the host for a user namespace.
    """

    name: str
    uid: str
    owner: str
    log_directory: str
    cgroup_parent: str
    first_id: int


def sandbox_config(probe: ProbeContainer, place: ProbePlace) -> pb.PodSandboxConfig:
    """Return the configuration of a probe's sandbox."""
    config = pb.PodSandboxConfig(
        metadata=pb.PodSandboxMetadata(
            name=place.name, uid=place.uid, namespace=NAMESPACE, attempt=0
        ),
        log_directory=place.log_directory,
        labels={PROBE_LABEL: place.owner},
        linux=pb.LinuxPodSandboxConfig(
            cgroup_parent=place.cgroup_parent,
            security_context=pb.LinuxSandboxSecurityContext(
                privileged=probe.is_privileged,
                namespace_options=_namespaces(probe, place),
                seccomp=pb.SecurityProfile(profile_type=pb.SecurityProfile.RuntimeDefault),
                selinux_options=_selinux(probe),
            ),
            resources=resources(probe.cpu_millis, probe.memory_bytes),
        ),
    )
    if not probe.uses_host_network:
        config.hostname = "probe"
    return config


def container_config(probe: ProbeContainer, place: ProbePlace) -> pb.ContainerConfig:
    """Return the configuration of a probe's container."""
    security = pb.LinuxContainerSecurityContext(
        privileged=probe.is_privileged,
        namespace_options=_namespaces(probe, place),
        run_as_user=pb.Int64Value(value=USER),
        run_as_group=pb.Int64Value(value=USER),
        readonly_rootfs=probe.has_read_only_root,
        no_new_privs=probe.forbids_new_privileges,
        seccomp=pb.SecurityProfile(profile_type=_PROFILES[probe.seccomp]),
        selinux_options=_selinux(probe),
        capabilities=pb.Capability(
            add_capabilities=probe.capabilities, drop_capabilities=probe.dropped_capabilities
        ),
    )
    security.apparmor.profile_type = (
        pb.SecurityProfile.RuntimeDefault if probe.has_apparmor else pb.SecurityProfile.Unconfined
    )
    return pb.ContainerConfig(
        metadata=pb.ContainerMetadata(name=CONTAINER_NAME, attempt=0),
        image=pb.ImageSpec(image=probe.image),
        command=probe.command,
        working_dir=WORKING_DIRECTORY,
        envs=[pb.KeyValue(key=name, value=value.encode()) for name, value in ENVIRONMENT.items()],
        labels={PROBE_LABEL: place.owner},
        log_path=LOG_NAME,
        tty=probe.has_terminal,
        stdin=probe.has_terminal,
        mounts=[
            pb.Mount(
                host_path=mount.host_path,
                container_path=mount.path,
                readonly=True,
                recursive_read_only=mount.is_recursive,
                propagation=(
                    pb.PROPAGATION_HOST_TO_CONTAINER
                    if mount.sees_later_mounts
                    else pb.PROPAGATION_PRIVATE
                ),
            )
            for mount in probe.mounts
        ],
        devices=[
            pb.Device(host_path=path, container_path=container_device(path), permissions="rm")
            for path in probe.devices
        ],
        linux=pb.LinuxContainerConfig(
            resources=resources(probe.cpu_millis, probe.memory_bytes), security_context=security
        ),
    )


def container_device(path: str) -> str:
    """Return where a device of the node is in a probe's container."""
    return f"{DEVICES_DIRECTORY}/{path.rsplit('/', 1)[-1]}"


def resources(cpu_millis: int, memory_bytes: int) -> pb.LinuxContainerResources:
    """Return the limits of a container; 0 stands for none."""
    limits = pb.LinuxContainerResources(cpu_shares=2)
    if cpu_millis:
        limits.cpu_period = _PERIOD_US
        limits.cpu_quota = cpu_millis * _PERIOD_US // 1000
        limits.cpu_shares = max(2, cpu_millis * 1024 // 1000)
    if memory_bytes:
        limits.memory_limit_in_bytes = memory_bytes
    return limits


def _namespaces(probe: ProbeContainer, place: ProbePlace) -> pb.NamespaceOption:
    pid = pb.CONTAINER
    if probe.uses_host_pid:
        pid = pb.NODE
    elif probe.shares_processes:
        pid = pb.POD
    options = pb.NamespaceOption(
        network=pb.NODE if probe.uses_host_network else pb.POD,
        pid=pid,
        ipc=pb.NODE if probe.uses_host_ipc else pb.POD,
    )
    if probe.has_user_namespace:
        mapping = pb.IDMapping(host_id=place.first_id, container_id=0, length=_ID_RANGE_LENGTH)
        options.userns_options.CopyFrom(
            pb.UserNamespace(mode=pb.POD, uids=[mapping], gids=[mapping])
        )
    return options


def _selinux(probe: ProbeContainer) -> pb.SELinuxOption | None:
    return pb.SELinuxOption(level=probe.selinux_level) if probe.selinux_level else None
