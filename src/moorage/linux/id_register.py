"""The machine's register of node agents that hand out ranges of user ids.

Ranges belong to the host, and a host may have several clusters. Each agent's pod directories say
which ranges it uses (`PODS/UID/userns`); the register only says where those directories are, one
file an agent, and its lock makes choosing and noting a range one step. A directory that is gone has
no pods: its entry is dropped. The register is kept on disk, since pod directories outlive a reboot.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from moorage.linux.private import make_private, write_private

REGISTER = Path("/var/lib/moorage-idmaps")
KUBELET_PODS = Path("/var/lib/kubelet/pods")
"""A kubelet's own, whose file form is the same."""


@contextmanager
def locked_register(register: Path) -> Iterator[None]:
    """Hold the register for this process; blocks while another does. Raises OSError."""
    while True:
        make_private(register)
        descriptor = os.open(register, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Its last user may have removed it while this one waited.
            if os.fstat(descriptor).st_nlink:
                yield
                return
        finally:
            os.close(descriptor)


def enter(register: Path, pods: Path) -> None:
    """Note that an agent has its pod directories there; the register is locked."""
    file = _entry(register, pods)
    if not file.exists():
        write_private(file, os.fsencode(pods.resolve()))


def others(register: Path, pods: Path) -> list[Path]:
    """Return the pod directories of the other agents, and drop those that are gone."""
    own, found = _entry(register, pods), [KUBELET_PODS]
    for file in register.iterdir():
        place = Path(os.fsdecode(file.read_bytes()))
        if not place.is_dir():
            file.unlink()
        elif file != own:
            found.append(place)
    return found


def forget(pods: Path, register: Path = REGISTER) -> None:
    """Drop an agent whose pods and their directories are gone, and an empty register."""
    if not register.is_dir():
        return
    with locked_register(register):
        _entry(register, pods).unlink(missing_ok=True)
        others(register, pods)
        if not any(register.iterdir()):
            register.rmdir()


def _entry(register: Path, pods: Path) -> Path:
    return register / hashlib.sha256(os.fsencode(pods.resolve())).hexdigest()[:32]
