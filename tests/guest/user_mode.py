"""User-mode Linux as the guest's machine: a kernel that is a program of this machine.

Programs in it run at the processor's speed, unlike in an emulated machine, and it needs no KVM. It
has one processor. Its network is a tap device in a network namespace of its own, which nothing
leaves. Source: Documentation/virt/uml/user_mode_linux_howto_v2.rst of the kernel.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.guest.preparation import ADDRESS, DISK, GATEWAY, GuestError
from tests.guest.reach import Reach

PROGRAM = "linux.uml"
MEMORY_MIB = 2560
FILES_DEVICE = "/dev/ubdb"
_TAP = "guest0"


def is_installed() -> bool:
    """Return whether this machine has the kernel."""
    return shutil.which(PROGRAM) is not None


ADAPTATION = """
update-alternatives --quiet --set iptables /usr/sbin/iptables-legacy
update-alternatives --quiet --set ip6tables /usr/sbin/ip6tables-legacy
grep . /proc/cpuinfo > /etc/cpuinfo
echo 'cpu MHz : 2000.000' >> /etc/cpuinfo
echo '/etc/cpuinfo /proc/cpuinfo none bind 0 0' >> /etc/fstab
rm -f /usr/bin/runsc
"""
"""What makes the guest like another machine: Debian's kernel of this kind has no NAT of nftables,
and says no clock speed, without which a kubelet does not start. gVisor would search addresses that
this kernel does not have, until it is killed (decision 160)."""


@contextmanager
def machine(directory: Path, place: Path, files: Path | None) -> Iterator[tuple[list[str], Reach]]:
    """The command line of a guest, and how it is reached. Raises GuestError."""
    namespace = f"guest-{secrets.token_hex(4)}"
    _ip("netns", "add", namespace)
    try:
        _ip("-n", namespace, "tuntap", "add", "dev", _TAP, "mode", "tap")
        _ip("-n", namespace, "address", "add", f"{GATEWAY}/24", "dev", _TAP)
        _ip("-n", namespace, "link", "set", _TAP, "up")
        entry = ("ip", "netns", "exec", namespace)
        argv = [*entry, *command(directory, place, files)]
        yield argv, Reach(ADDRESS, 22, entry)
    finally:
        _ip("netns", "delete", namespace)


def command(directory: Path, place: Path, files: Path | None = None) -> list[str]:
    """Return the command line for a prepared guest, whose changes go to a file in `place`."""
    second = [f"ubd1r={files}"] if files else []
    return [
        # Its processes are traced ones, which its own end must not leave behind.
        "unshare", "--pid", "--fork", "--kill-child",
        PROGRAM, f"mem={MEMORY_MIB}M", f"uml_dir={place}", "umid=uml",
        f"ubd0={place / 'changes'},{directory / DISK}", *second, "root=/dev/ubda", "rw",
        f"vec0:transport=tap,ifname={_TAP},depth=64",
        "con=null", "ssl=null", "con0=null,fd:1", "panic=-1", "quiet",
    ]  # fmt: skip


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False, timeout=30)
    if done.returncode:
        raise GuestError(f"ip {' '.join(words)}: {done.stderr.strip()}")
