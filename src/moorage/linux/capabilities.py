"""Capabilities of this process. Source: capabilities(7), linux/capability.h."""

from __future__ import annotations

import re

SYS_RESOURCE = "CAP_SYS_RESOURCE"
SYS_ADMIN = "CAP_SYS_ADMIN"
NET_ADMIN = "CAP_NET_ADMIN"

# Indexed by their numbers.
NAMES = (
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
)
NEEDED = (
    SYS_ADMIN,
    NET_ADMIN,
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
)
"""Required by an engine that runs containers."""

_EFFECTIVE = re.compile(r"^CapEff:\s*([0-9a-f]+)$", re.MULTILINE)


def effective_capabilities(status: str) -> frozenset[str]:
    """Return the effective capabilities in the text of a /proc/PID/status."""
    match = _EFFECTIVE.search(status)
    mask = int(match.group(1), 16) if match else 0
    return frozenset(name for number, name in enumerate(NAMES) if mask >> number & 1)
