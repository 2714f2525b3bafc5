"""Bundles of a busybox on this machine, for tests of runtimes."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

_NAMESPACES = ("pid", "ipc", "uts", "mount", "network")
_PATH = "PATH=/bin"


def skip_without(*programs: str) -> None:
    """Skip a test unless it is run by root and the programs are there."""
    if os.geteuid() != 0:
        pytest.skip("runtimes need root")
    missing = [name for name in (*programs, "busybox") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")


def write_bundle(
    directory: Path,
    *command: str,
    cgroup: str,
    has_terminal: bool = False,
    memory_bytes: int | None = None,
    annotations: dict[str, str] | None = None,
) -> Path:
    """A directory with a root of one busybox and the spec of a container that runs a command."""
    binaries = directory / "rootfs" / "bin"
    binaries.mkdir(parents=True)
    for name in ("proc", "dev", "tmp"):
        (directory / "rootfs" / name).mkdir()
    busybox = shutil.which("busybox")
    assert busybox is not None
    shutil.copy(busybox, binaries / "busybox")
    for name in ("sh", "cat", "sleep", "echo", "stty", "seq", "head", "tr", "yes", "true"):
        (binaries / name).symlink_to("busybox")
    resources: dict[str, Any] = {"devices": [{"allow": True, "access": "rwm"}]}
    if memory_bytes is not None:
        resources["memory"] = {"limit": memory_bytes}
    spec = {
        "ociVersion": "1.0.2",
        "hostname": "test",
        "root": {"path": "rootfs"},
        "process": process(*command, has_terminal=has_terminal),
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
            {
                "destination": "/dev/pts",
                "type": "devpts",
                "source": "devpts",
                "options": ["newinstance", "ptmxmode=0666", "mode=0620"],
            },
        ],
        "annotations": annotations or {},
        "linux": {
            "namespaces": [{"type": name} for name in _NAMESPACES],
            "cgroupsPath": cgroup,
            "resources": resources,
        },
    }
    (directory / "config.json").write_text(json.dumps(spec))
    return directory


def process(*command: str, has_terminal: bool = False) -> dict[str, Any]:
    """An OCI process of root's."""
    return {
        "terminal": has_terminal,
        "user": {"uid": 0, "gid": 0},
        "args": list(command),
        "env": [_PATH],
        "cwd": "/",
        "capabilities": {"bounding": ["CAP_KILL"], "effective": [], "permitted": []},
    }
