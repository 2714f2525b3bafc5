"""Facts about the running kernel: version, KVM, limits.

Source: uname(2); proc(5); Linux, Documentation/virt/kvm/api.rst.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_RELEASE = re.compile(r"^(\d+)\.(\d+)")
_KVM = Path("/dev/kvm")
_TASK_LIMITS = (Path("/proc/sys/kernel/pid_max"), Path("/proc/sys/kernel/threads-max"))


def kernel_version(release: str) -> tuple[int, int]:
    """Return the major and minor version in a kernel release; (0, 0) if it has none."""
    match = _RELEASE.match(release)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def can_open_kvm() -> bool:
    """Return whether this process can open /dev/kvm, which virtual machines need."""
    try:
        os.close(os.open(_KVM, os.O_RDWR))
    except OSError:
        return False
    return True


def max_pids() -> int:
    """Return how many processes and threads the kernel allows at once. Raises OSError.

    The lower of both settings, as in the kubelet's node allocatable.
    """
    return min(int(path.read_text()) for path in _TASK_LIMITS)
