"""The tiny init that holds what no file can: a pod's process namespace, or a virtual machine.

A root file system of its own with one static program. It waits for signals and reaps, so a pod
that shares its processes has an init. Source: KEP-495 (shareProcessNamespace).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from moorage.engine.errors import FailedError
from moorage.linux.atomic_file import replace_file
from moorage.linux.program import UnfitProgramError, read_program
from moorage.linux.trees import make_directories

# Program → its Debian package and what to run. busybox's sleep is its longest, again and again.
_CANDIDATES = (
    ("catatonit", "catatonit", ("/init", "-P")),
    (
        "busybox",
        "busybox-static",
        ("/init", "sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 2147483 & wait; done"),
    ),
)
_PROGRAM_MODE = _DIRECTORY_MODE = 0o755
# Root of a user namespace can make none in it.
_MOUNT_POINTS = ("dev", "etc", "proc", "sys")
_MOUNTED_FILES = ("etc/hostname", "etc/hosts", "etc/resolv.conf")


@dataclass(frozen=True, slots=True)
class InfraProcess:
    """Where the root file system is made, and where programs are looked for."""

    rootfs: Path
    search_path: str

    def prepare(self) -> tuple[str, ...]:
        """Make the root file system if it is not there; what to run in it. Blocks.

        Raises FailedError when this machine has no program for it.
        """
        complaints = []
        for name, package, argv in _CANDIDATES:
            found = shutil.which(name, path=self.search_path)
            if found is None:
                complaints.append(f"{name} is not on PATH (apt-get install {package})")
                continue
            try:
                program = read_program(Path(found), package)
            except UnfitProgramError as error:
                complaints.append(str(error))
                continue
            self._write(program.content)
            return argv
        raise FailedError(f"nothing can hold the sandbox of such a pod: {'; '.join(complaints)}")

    def _write(self, content: bytes) -> None:
        for directory in _MOUNT_POINTS:
            make_directories(self.rootfs / directory, _DIRECTORY_MODE)
        for name in _MOUNTED_FILES:
            (self.rootfs / name).touch()
        target = self.rootfs / "init"
        if target.exists() and target.read_bytes() == content:
            return
        # Renamed into place: the present one may be running.
        replace_file(target, content, mode=_PROGRAM_MODE)
