"""Feature vocabulary: what a runtime handler may or may not support, by name.

Each name stands in profiles, node labels, needs and messages. Probes find whether a handler has a
feature; demands of a pod's fields, and needs that are stated in words, refer to it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from moorage.api.runtime_group import (
    SUPPORTED,
    UNKNOWN,
    UNSUPPORTED,
    ProfileFeature,
    RuntimeProfile,
)

# Feature findings of several nodes: which nodes agree, and the words for what was found.

STATE_WORDS = {SUPPORTED: "yes", UNSUPPORTED: "no", UNKNOWN: "unknown"}
"""State of a feature → the word for it in a table."""

STOPPED_WITHOUT = {
    "syscall-statx": "`ls` and `stat` of Debian 12 and other images with coreutils 9 fail "
    '("Invalid argument"); busybox images work',
    "blocking-reads": "a server that reads before its client has sent may fail",
    "exec": "`kubectl exec` and exec probes fail",
}
"""Features that ordinary programs need → what fails without them."""


def alike(profiles: Iterable[RuntimeProfile]) -> dict[str, list[list[RuntimeProfile]]]:
    """Return the profiles of each handler, by name, in groups that found the same."""
    handlers: dict[str, dict[frozenset[tuple[str, str]], list[RuntimeProfile]]] = {}
    for profile in profiles:
        states = frozenset((feature.name, feature.state) for feature in profile.status.features)
        handlers.setdefault(profile.spec.handler, {}).setdefault(states, []).append(profile)
    return {handler: list(groups.values()) for handler, groups in sorted(handlers.items())}


def lacks(features: Iterable[ProfileFeature]) -> tuple[str, ...]:
    """Return a sentence for each feature whose lack stops programs that ask for nothing special."""
    return tuple(
        sorted(
            f"{feature.message}, so {STOPPED_WITHOUT[feature.name]}"
            for feature in features
            if feature.state == UNSUPPORTED and feature.name in STOPPED_WITHOUT
        )
    )


class FeatureArea(enum.Enum):
    """Part of the system that a feature belongs to, in the order of the matrix."""

    NAMESPACES = "namespaces"
    SECURITY = "security"
    VOLUMES = "volumes and devices"
    NETWORK = "network"
    LIFECYCLE = "lifecycle"
    LIMITS = "limits"
    TERMINAL = "terminal"
    SYSTEM_CALLS = "system calls"
    CAPABILITIES = "capabilities"


class Feature(msgspec.Struct, frozen=True):
    """A feature: its name, its area, and a sentence that completes "a container can ..."."""

    name: str
    area: FeatureArea
    meaning: str


CAPABILITIES = (
    "AUDIT_CONTROL", "AUDIT_READ", "AUDIT_WRITE", "BLOCK_SUSPEND", "BPF", "CHECKPOINT_RESTORE",
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "IPC_LOCK", "IPC_OWNER",
    "KILL", "LEASE", "LINUX_IMMUTABLE", "MAC_ADMIN", "MAC_OVERRIDE", "MKNOD", "NET_ADMIN",
    "NET_BIND_SERVICE", "NET_BROADCAST", "NET_RAW", "PERFMON", "SETFCAP", "SETGID", "SETPCAP",
    "SETUID", "SYSLOG", "SYS_ADMIN", "SYS_BOOT", "SYS_CHROOT", "SYS_MODULE", "SYS_NICE",
    "SYS_PACCT", "SYS_PTRACE", "SYS_RAWIO", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG",
    "WAKE_ALARM",
)  # fmt: skip
"""Linux capabilities as `securityContext.capabilities` spells them. Source: capabilities(7)."""

SYSTEM_CALLS = (
    "bpf", "clone3", "close_range", "copy_file_range", "epoll_pwait2", "faccessat2", "fanotify",
    "futex_waitv", "inotify", "io_uring", "landlock", "membarrier", "memfd_create", "mount",
    "openat2", "perf_event_open", "pidfd_open", "pivot_root", "ptrace", "rseq", "seccomp",
    "splice", "statx", "unshare", "userfaultfd",
)  # fmt: skip
"""System calls whose lack stops common programs; each is probed with an ordinary call."""

_AREAS: dict[FeatureArea, dict[str, str]] = {
    FeatureArea.NAMESPACES: {
        "host-network": "use the node's network (`hostNetwork`)",
        "host-pid": "see the node's processes (`hostPID`)",
        "host-ipc": "use the node's System V IPC (`hostIPC`)",
        "shared-process-namespace": "see its pod's processes (`shareProcessNamespace`)",
        "user-namespaces": "run in a user namespace (`hostUsers: false`)",
    },
    FeatureArea.SECURITY: {
        "privileged": "run privileged, with the node's devices and all capabilities",
        "seccomp": "be confined by a seccomp profile",
        "apparmor": "be confined by an AppArmor profile",
        "selinux": "run with an SELinux label",
        "no-new-privileges": "be kept from gaining privileges",
        "read-only-root": "have a read-only root file system",
        "nested-containers": "create namespaces, as a container engine inside it must",
    },
    FeatureArea.VOLUMES: {
        "recursive-read-only-mounts": "mount a volume read-only with all mounts below it",
        "mount-propagation": "see mounts that the node makes later (`HostToContainer`)",
        "devices": "use devices of the node",
        "gpu": "use a GPU of the node",
        "block-volumes": "use a raw block volume (`volumeDevices`)",
    },
    FeatureArea.NETWORK: {
        "raw-sockets": "open raw sockets, as ping does, with the capability NET_RAW",
        "packet-sockets": "open packet sockets, as tcpdump does, with the capability NET_RAW",
        "ipv6": "use IPv6 sockets",
        "blocking-reads": "wait in a read from a socket until data arrives",
        "no-network": "be started without any network but the loopback device",
    },
    FeatureArea.LIFECYCLE: {
        "exec": "have further processes started in it",
        "checkpoint": "be checkpointed",
        "live-resize": "get other limits while it runs (`resize`)",
        "port-forward": "be reached by port-forward",
    },
    FeatureArea.LIMITS: {
        "cpu-limit": "be limited in CPU time",
        "memory-limit": "be ended when it exceeds its memory limit",
        "pids-limit": "be limited in processes",
        "cpu-limit-visible": "see its CPU limit, as `nproc` counts processors",
        "memory-limit-visible": "see its memory limit as the size of memory",
        "cgroup-visible": "read its own cgroup's limits in /sys/fs/cgroup",
    },
    FeatureArea.TERMINAL: {
        "terminal": "have a real terminal (`tty: true`)",
    },
    FeatureArea.SYSTEM_CALLS: {
        f"syscall-{name.replace('_', '-')}": f"use the system call {name}" for name in SYSTEM_CALLS
    },
    FeatureArea.CAPABILITIES: {
        f"capability-{name.lower().replace('_', '-')}": f"use the capability {name}"
        for name in CAPABILITIES
    },
}

FEATURES: dict[str, Feature] = {
    name: Feature(name, area, meaning)
    for area, names in _AREAS.items()
    for name, meaning in names.items()
}
"""Name → feature, in the order of the matrix. A name is a DNS label of up to 63 characters."""

_UNLABELLED_AREAS = frozenset({FeatureArea.SYSTEM_CALLS, FeatureArea.CAPABILITIES})


def is_labelled(feature: str) -> bool:
    """Return whether nodes have a label for a feature that they support, as most features do.

    System calls and capabilities are in profiles alone: hundreds of labels would go out with every
    change of a node.
    """
    known = FEATURES.get(feature)
    return known is not None and known.area not in _UNLABELLED_AREAS


def capability_feature(capability: str) -> str:
    """Return the feature of a capability in the API's spelling, with or without `CAP_`."""
    return f"capability-{capability.upper().removeprefix('CAP_').lower().replace('_', '-')}"


def system_call_feature(name: str) -> str:
    """Return the feature of a system call of `SYSTEM_CALLS`."""
    return f"syscall-{name.replace('_', '-')}"
