"""A sandbox for faulty code: namespaces of its own, and a root file system that is read-only.

Faulty code that removes, mounts or kills as root must not reach what others have. Without root
there are no namespaces, and the user's own permissions are the limit.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

_NEWNS, _NEWIPC, _NEWPID, _NEWNET = 0x20000, 0x8000000, 0x20000000, 0x40000000
_SCRATCH = ("/tmp", "/run", "/var/lib", "/var/log", "/var/tmp", "/etc/cni", "/etc/moorage")

# Other mounts become read-only. Tests that need them remove what they make in these.
_NOT_DISKS = {
    "binfmt_misc", "bpf", "cgroup", "cgroup2", "debugfs", "devpts", "devtmpfs", "fusectl",
    "hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "securityfs", "sysfs", "tmpfs", "tracefs",
}  # fmt: skip


def enter_sandbox(tree: Path) -> None:
    """Move this process into namespaces of its own, in which of all directories `tree` is writable.

    The next child that the caller forks is the init of the process namespace: it calls
    `mount_proc`. Other directories that tests write to are empty ones in memory.

    Raises:
        OSError: the kernel refuses.
    """
    _unshare(_NEWNS | _NEWIPC | _NEWNET)
    _run("mount", "--make-rprivate", "/")
    kept = os.open(tree, os.O_PATH | os.O_DIRECTORY)
    for path in filter(os.path.isdir, _SCRATCH):
        _run("mount", "-t", "tmpfs", "scratch", path)
    tree.mkdir(parents=True, exist_ok=True)
    # Unresolved: its path leads to the empty directory by now.
    source = f"/proc/self/fd/{kept}"
    command = ["mount", "--no-canonicalize", "--bind", source, str(tree)]
    subprocess.run(command, check=True, pass_fds=(kept,))
    os.close(kept)
    os.chdir(tree)
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, path, kind, options, *_ = line.split()
        hidden = any(path.startswith(f"{scratch}/") for scratch in _SCRATCH)
        if kind not in _NOT_DISKS and not hidden and "rw" in options.split(","):
            _run("mount", "-o", "remount,bind,ro", path)
    _run("ip", "link", "set", "lo", "up")
    # Last: the next child, whichever it is, becomes the namespace's init.
    _unshare(_NEWPID)


def mount_proc() -> None:
    """Mount the proc file system of this process namespace."""
    _run("mount", "-t", "proc", "proc", "/proc")


def _unshare(namespaces: int) -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(namespaces) != 0:
        raise OSError(ctypes.get_errno(), "unshare for the sandbox of faulty code")


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
