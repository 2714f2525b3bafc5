"""Infra program: a tiny init for pods with a shared PID namespace or a virtual machine.

It has a root file system of its own with one static program, which waits for signals and reaps.
Source: KEP-495 (shareProcessNamespace).
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from moorage.engine.errors import FailedError
from moorage.linux.atomic_file import replace_file
from moorage.linux.program import Program, UnfitProgramError, read_program
from moorage.linux.trees import make_directories

# Program, Debian package, argv. busybox limits one sleep to 2147483 s.
_CANDIDATES = (
    ("catatonit", "catatonit", ("/init", "-P")),
    (
        "busybox",
        "busybox-static",
        ("/init", "sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 2147483 & wait; done"),
    ),
)
_PROGRAM_MODE = _DIRECTORY_MODE = 0o755
# Root of a user namespace cannot create mount points in it.
_MOUNT_POINTS = ("dev", "etc", "proc", "sys")
# Sandboxes are created at once in several threads, and share the infra root file system.
_WRITING = threading.Lock()
_MOUNTED_FILES = ("etc/hostname", "etc/hosts", "etc/resolv.conf")


@dataclass(frozen=True, slots=True)
class InfraProcess:
    """The infra root file system, and the search path for the program."""

    rootfs: Path
    search_path: str
    read: Callable[[Path, str], Program] = read_program

    def prepare(self) -> tuple[str, ...]:
        """Create the root file system if it is absent. Returns the argv to run in it. Blocks.

        Raises FailedError when the host has no suitable program.
        """
        complaints = []
        for name, package, argv in _CANDIDATES:
            path = shutil.which(name, path=self.search_path)
            if path is None:
                complaints.append(f"{name} is not on PATH (apt-get install {package})")
                continue
            try:
                program = self.read(Path(path), package)
            except UnfitProgramError as error:
                complaints.append(str(error))
                continue
            with _WRITING:
                self._write(program.content)
            return argv
        raise FailedError(f"no program for the sandbox's infra process: {'; '.join(complaints)}")

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
