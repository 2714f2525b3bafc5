"""Cgroups for tests: ordinary directories of each layout, and real ones that go whatever
happens.
"""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from moorage.linux.cgroup_control import kill_processes, make_cgroup, remove_cgroup
from moorage.linux.cgroups import Cgroups, Layout, current_cgroups
from tests.running import until

POD = "/pods/a"

_V1 = ("cpu", "cpuacct", "cpuset", "memory", "pids", "blkio", "freezer", "hugetlb")
_V2 = ("cpu", "cpuset", "memory", "pids", "io", "hugetlb")


def write(directory: Path, files: Mapping[str, str]) -> None:
    """Files with their contents, in a directory that is made."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (directory / name).write_text(content)


def v1(root: Path, *, without: str = "") -> Cgroups:
    """Version 1, each controller in a directory of its name; one may be missing."""
    mounts = {name: root / name for name in _V1 if name != without}
    for mount in mounts.values():
        mount.mkdir()
    return Cgroups(Layout.V1, mounts, hierarchies=tuple(mounts.values()))


def v2(root: Path, controllers: tuple[str, ...] = _V2) -> Cgroups:
    """Version 2 alone."""
    return Cgroups(Layout.V2, unified=root, v2=controllers, hierarchies=(root,))


def hybrid(root: Path) -> Cgroups:
    """Version 1 with everything but hugetlb, which an empty version 2 has."""
    old = v1(root, without="hugetlb")
    unified = root / "unified"
    unified.mkdir()
    return Cgroups(Layout.HYBRID, old.v1, unified, ("hugetlb",), (*old.hierarchies, unified))


@contextmanager
def real_cgroup(name: str = "") -> Iterator[tuple[Cgroups, str]]:
    """A path of this machine for cgroups that are gone afterwards, with all in them."""
    if os.geteuid() != 0:
        pytest.skip("making cgroups needs root")
    cgroups = current_cgroups()
    path = f"/test-{secrets.token_hex(4)}"
    try:
        make_cgroup(cgroups, path + name)
    except OSError as error:
        pytest.skip(f"cgroups cannot be made here: {error}")
    try:
        yield cgroups, path + name
    finally:
        until(lambda: _is_removed(cgroups, path), f"cgroup {path} is removed", 10)


def enter(cgroups: Cgroups, path: str, *argv: str) -> subprocess.Popen[bytes]:
    """Start a program in a cgroup of every hierarchy."""
    files = [
        directory / "cgroup.procs" for directory in cgroups.directories(path) if directory.is_dir()
    ]
    script = "".join(f"echo $$ > {file} && " for file in files) + 'exec "$@"'
    return subprocess.Popen(("sh", "-c", script, "sh", *argv))


def _is_removed(cgroups: Cgroups, path: str) -> bool:
    for process in kill_processes(cgroups, path):
        process.close()
    try:
        remove_cgroup(cgroups, path)
    except OSError:
        return False
    return True
