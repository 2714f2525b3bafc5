"""Register of node agents that allocate user id ranges on this host.

Ranges belong to the host, and a host may have several clusters. Each agent's pod directories record
the ranges in use (`PODS/UID/userns`); the register lists those directories, one file for each
agent, and its lock makes choosing and recording a range atomic. An entry whose directory is gone is
dropped. The register is kept on disk, since pod directories survive a reboot.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from moorage.linux.trust import make_private, write_private

REGISTER = Path("/var/lib/moorage-idmaps")
KUBELET_PODS = Path("/var/lib/kubelet/pods")
"""The pod directories of a kubelet, whose `userns` files have the same format."""


@contextmanager
def locked_register(register: Path) -> Iterator[None]:
    """Lock the register; blocks while another process holds it. Raises OSError."""
    while True:
        make_private(register)
        descriptor = os.open(register, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Its last user may have removed it before the lock was free.
            if os.fstat(descriptor).st_nlink:
                yield
                return
        finally:
            os.close(descriptor)


def enter(register: Path, pods: Path) -> None:
    """Register an agent's pod directories. The caller holds the lock."""
    file = _entry(register, pods)
    if not file.exists():
        write_private(file, os.fsencode(pods.resolve()))


def others(register: Path, pods: Path) -> list[Path]:
    """Return the pod directories of other agents; drops those that are gone."""
    own, directories = _entry(register, pods), [KUBELET_PODS]
    for file in register.iterdir():
        place = Path(os.fsdecode(file.read_bytes()))
        if not place.is_dir():
            file.unlink()
        elif file != own:
            directories.append(place)
    return directories


def forget(pods: Path, register: Path = REGISTER) -> None:
    """Remove an agent whose pod directories are gone, and an empty register."""
    if not register.is_dir():
        return
    with locked_register(register):
        _entry(register, pods).unlink(missing_ok=True)
        others(register, pods)
        if not any(register.iterdir()):
            register.rmdir()


def _entry(register: Path, pods: Path) -> Path:
    return register / hashlib.sha256(os.fsencode(pods.resolve())).hexdigest()[:32]
