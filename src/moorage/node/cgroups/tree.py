"""Cgroup tree below one root: creates, configures, queries and removes cgroups on this host.

`values` decides which files get which values. Controllers that the host lacks are skipped. Every
call blocks, possibly on kernel locks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from moorage.api.logs import Log
from moorage.linux.cgroup_control import CgroupError, make_cgroup
from moorage.linux.cgroup_removal import kill_and_remove_cgroup_blocking
from moorage.linux.cgroups import Cgroups, Layout, directory_in
from moorage.node.cgroups.values import (
    V1_LIMITS,
    V2_LIMITS,
    CgroupValues,
    limits_in,
    v1_files,
    v2_files,
)

__all__ = ["CgroupError", "CgroupTree"]

log = Log(__name__)

# The limit file of a page size on version 1 and on version 2; other hugetlb files do not match.
_PAGE_FILE = re.compile(r"hugetlb\.(\d+[KMG]B)\.(?:limit_in_bytes|max)$")


@dataclass(frozen=True, slots=True)
class CgroupTree:
    """The cgroup hierarchies below one root, such as `/moorage`."""

    cgroups: Cgroups
    root: str

    def path(self, directory: str) -> str:
        """Return a cgroup's path in the form engines expect: absolute, without the mount point."""
        return f"{self.root.rstrip('/')}/{directory}"

    def ensure(self, directory: str, values: CgroupValues) -> None:
        """Create a cgroup and its parents, and write its values. Raises CgroupError."""
        path = self.path(directory)
        make_cgroup(self.cgroups, path)
        try:
            if self.cgroups.layout is Layout.V2:
                self._set_v2(path, values)
            else:
                self._set_v1(path, values)
        except OSError as error:
            raise CgroupError(
                error.errno,
                f"failed to set cgroup {path}: {error.strerror} ({error.filename})",
            ) from error

    def read(self, directory: str) -> CgroupValues | None:
        """Return a cgroup's limits of CPU and memory; None if it does not exist.

        Raises CgroupError.
        """
        path = self.path(directory)
        is_v2 = self.cgroups.layout is Layout.V2
        files = {}
        for controller, name in V2_LIMITS if is_v2 else V1_LIMITS:
            mount = self.cgroups.unified if is_v2 else self.cgroups.v1.get(controller)
            if mount is not None:
                files[name] = _read(directory_in(mount, path) / name)
        present = {name: content for name, content in files.items() if content is not None}
        if not present:
            return None
        return limits_in(present)

    def memory_usage_bytes(self, directory: str) -> int | None:
        """Return the memory that a cgroup uses, caches included; None without that file."""
        is_v2 = self.cgroups.layout is Layout.V2
        mount = self.cgroups.unified if is_v2 else self.cgroups.v1.get("memory")
        if mount is None:
            return None
        name = "memory.current" if is_v2 else "memory.usage_in_bytes"
        content = _read(directory_in(mount, self.path(directory)) / name)
        return None if content is None else int(content)

    def exists(self, directory: str) -> bool:
        """Return whether the cgroup exists, in the unified or else the memory hierarchy."""
        is_v2 = self.cgroups.layout is Layout.V2
        first = self.cgroups.unified if is_v2 else self.cgroups.v1.get("memory")
        return first is None or directory_in(first, self.path(directory)).is_dir()

    def remove(self, directory: str) -> None:
        """Kill every process in a cgroup and remove it with its descendants. Raises CgroupError."""
        kill_and_remove_cgroup_blocking(self.cgroups, self.path(directory))

    def _set_v1(self, path: str, values: CgroupValues) -> None:
        hugetlb = self.cgroups.v1.get("hugetlb")
        sizes = _page_sizes(directory_in(hugetlb, path)) if hugetlb is not None else ()
        for controller, file, content in v1_files(values, sizes):
            mount = self.cgroups.v1.get(controller)
            if mount is not None:
                _write(directory_in(mount, path) / file, content)

    def _set_v2(self, path: str, values: CgroupValues) -> None:
        if self.cgroups.unified is None:
            return
        directory = directory_in(self.cgroups.unified, path)
        present = set((directory / "cgroup.controllers").read_text().split())
        for controller, file, content in v2_files(values, _page_sizes(directory)):
            if controller in present:
                _write(directory / file, content)


def _write(path: Path, content: str) -> None:
    try:
        path.write_text(content)
    except FileNotFoundError:
        log.debug("cgroup file missing", path=path)


def _read(path: Path) -> str | None:
    """Return a file's content, None without it. Raises CgroupError."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CgroupError(error.errno, f"failed to read {path}: {error.strerror}") from error


def _page_sizes(place: Path) -> list[str]:
    """Return the huge page sizes of a cgroup in the kernel's spelling: `2MB`, `1GB`."""
    matches = {_PAGE_FILE.match(entry.name) for entry in place.glob("hugetlb.*")}
    return sorted({match[1] for match in matches if match is not None})
