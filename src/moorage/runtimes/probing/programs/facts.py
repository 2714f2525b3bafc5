"""Facts that a container sees of itself: kernel, processors, memory, namespaces, security.

Run with different settings, the same program answers most questions.
"""

from __future__ import annotations

from moorage.runtimes.probing.programs.script import AT_FDCWD, Script, text_of

RECURSIVE_MOUNT = "/probe-mount"
"""Where a directory of the node is mounted; `/shm` below it is a mount of its own."""
SUBMOUNT = f"{RECURSIVE_MOUNT}/shm"
CGROUP_LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)
"""The container's own memory limit, with cgroups of version 2 and 1."""
NODE_DEVICES = ("/dev/kmsg", "/dev/loop-control", "/dev/fuse", "/dev/net/tun", "/dev/mem")
"""Devices that privileged containers have, of which a node has at least one."""

KERNEL_LOG = "kernel log"
"""Name of the section with the kernel's log."""

_FILES = (
    "/proc/version",
    "/proc/sys/kernel/random/boot_id",
    "/proc/1/comm",
    "/proc/self/uid_map",
    "/proc/self/attr/current",
    "/proc/net/dev",
    "/proc/meminfo",
    "/sys/class/dmi/id/product_name",
    *CGROUP_LIMITS,
)
_LINKS = ("/proc/self/ns/ipc", "/proc/self/ns/net", "/proc/self/ns/pid")
_TCGETS = 0x5401
_PR_GET_NO_NEW_PRIVS = 39
_KEYCTL_GET_KEYRING_ID, _SESSION_KEYRING = 0, -3
_WRITE_CREATE = 0o101
_STATFS_FLAGS = 80


def write(script: Script) -> None:
    """Write the program."""
    for path in _FILES:
        script.print_file(path)
    # The flags of a processor alone may take 3 KiB.
    script.print_file("/proc/cpuinfo", reads=2)
    script.print_file("/proc/self/status")
    script.print_file("/proc/self/mountinfo", reads=4)
    for path in _LINKS:
        script.print_link(path)
    _kernel_log(script)
    script.report("getpid", script.call("getpid"))
    script.report("terminal", script.call("ioctl", 0, _TCGETS, script.buffer(64)))
    script.report("no-new-privileges", script.call("prctl", _PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0))
    script.report(
        "write-to-root",
        script.call("openat", AT_FDCWD, text_of("/probe-file"), _WRITE_CREATE, 0o600),
    )
    # Denied by the usual profiles, and allowed to everyone without one.
    script.report("keyctl", script.call("keyctl", _KEYCTL_GET_KEYRING_ID, _SESSION_KEYRING, 0))
    script.report("add-key", script.call("add_key", text_of("user"), text_of("k"), b"v", 1, -3))
    _processors(script)
    _memory(script)
    _submount(script)
    for device in NODE_DEVICES:
        statx = script.call("statx", AT_FDCWD, text_of(device), 0, 0, script.buffer(256))
        script.report(f"device {device}", statx)


def _kernel_log(script: Script) -> None:
    """Print the beginning of the kernel's log, where it is small: gVisor greets there."""
    script.print_text(f"== {KERNEL_LOG}\n")
    log = script.buffer(512)
    # SYSLOG_ACTION_READ_ALL returns the last bytes of a larger log.
    count = script.call("syslog", 3, log, log.size)
    script.call("write", 1, log, count)
    script.print_text("\n")


def _processors(script: Script) -> None:
    mask = script.buffer(128)
    script.report("affinity-bytes", script.call("sched_getaffinity", 0, mask.size, mask))
    for word in range(4):
        script.report(f"affinity-{word}", mask.at(8 * word))


def _memory(script: Script) -> None:
    info = script.buffer(128)
    script.report("sysinfo", script.call("sysinfo", info))
    # struct sysinfo: uptime, three load averages, totalram; mem_unit is a 32-bit number at 104.
    script.report("total-memory", info.at(32))
    script.report("memory-unit", info.at(104))


def _submount(script: Script) -> None:
    found = script.buffer(256)
    script.report("submount", script.call("statfs", text_of(SUBMOUNT), found))
    script.report("submount-flags", found.at(_STATFS_FLAGS))
