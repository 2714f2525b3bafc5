"""Making, changing and removing cgroups on this machine.

The thin part: which directories and files, decided by `layout` and `values`, are written here.
Controllers that the machine lacks are passed over. Every call blocks, on kernel locks at times.
Source: cgroups(7), kernel cgroup-v1 and cgroup-v2 documents.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from moorage.api.logs import Log
from moorage.node.cgroups.layout import CgroupLayout
from moorage.node.cgroups.values import CgroupValues, v1_files, v2_files

log = Log(__name__)

_CPUSET_FILES = ("cpuset.cpus", "cpuset.mems")
# The limit of a page size on version 1 and on version 2; there are others of other names.
_PAGE_FILE = re.compile(r"hugetlb\.(\d+[KMG]B)\.(?:limit_in_bytes|max)$")
_REMOVE_TRIES = 20
_REMOVE_PAUSE_S = 0.02


class CgroupError(OSError):
    """A cgroup that could not be made or changed; the text names it."""


@dataclass(frozen=True, slots=True)
class CgroupTree:
    """The part of the cgroup hierarchies below one root, such as `/moorage`."""

    layout: CgroupLayout
    root: str

    def path(self, directory: str) -> str:
        """A cgroup's name as engines want it: absolute, without the mount point."""
        return f"{self.root.rstrip('/')}/{directory}"

    def ensure(self, directory: str, values: CgroupValues) -> None:
        """Make a cgroup with its parents, and set it. Raises CgroupError."""
        try:
            if self.layout.unified is not None:
                self._ensure_v2(self.layout.unified, directory, values)
            else:
                self._ensure_v1(directory, values)
        except OSError as error:
            raise CgroupError(
                error.errno,
                f"failed to create cgroup {self.path(directory)}: {error.strerror} "
                f"({error.filename})",
            ) from error

    def exists(self, directory: str) -> bool:
        """Whether the cgroup is there, in the hierarchy that matters most."""
        first = self.layout.unified or self.layout.controllers.get("memory")
        return first is None or self._place(first, directory).is_dir()

    def remove(self, directory: str) -> None:
        """End every process in a cgroup and remove it, with all below. Raises CgroupError."""
        for hierarchy in self.layout.hierarchies:
            place = self._place(hierarchy, directory)
            if place.is_dir():
                self._remove(place)

    def _ensure_v1(self, directory: str, values: CgroupValues) -> None:
        for mount in set(self.layout.controllers.values()):
            self._place(mount, directory).mkdir(parents=True, exist_ok=True)
        if "cpuset" in self.layout.controllers:
            self._inherit_cpuset(self.layout.controllers["cpuset"], directory)
        hugetlb = self.layout.controllers.get("hugetlb")
        sizes = _page_sizes(self._place(hugetlb, directory)) if hugetlb is not None else ()
        for controller, file, content in v1_files(values, sizes):
            mount_point = self.layout.controllers.get(controller)
            if mount_point is not None:
                _write(self._place(mount_point, directory) / file, content)

    def _inherit_cpuset(self, mount: Path, directory: str) -> None:
        """A new cpuset is empty, and no process may enter an empty one."""
        place = mount
        for part in self._place(mount, directory).relative_to(mount).parts:
            parent, place = place, place / part
            for file in _CPUSET_FILES:
                if not (place / file).read_text().strip():
                    _write(place / file, (parent / file).read_text().strip())

    def _ensure_v2(self, mount: Path, directory: str, values: CgroupValues) -> None:
        place = mount
        for part in self._place(mount, directory).relative_to(mount).parts:
            _delegate(place)
            place = place / part
            place.mkdir(exist_ok=True)
        present = set((place / "cgroup.controllers").read_text().split())
        for controller, file, content in v2_files(values, _page_sizes(place)):
            if controller in present:
                _write(place / file, content)

    def _remove(self, place: Path) -> None:
        failure = OSError()
        for _ in range(_REMOVE_TRIES):
            for process in _processes(place):
                _kill(process)
            try:
                for directory in _deepest_first(place):
                    directory.rmdir()
                return
            except FileNotFoundError:
                continue
            except OSError as error:
                failure = error
            # The kernel lets go of a cgroup a moment after its last process.
            time.sleep(_REMOVE_PAUSE_S)
        raise CgroupError(
            failure.errno, f"failed to remove cgroup {place}: {failure.strerror}"
        ) from failure

    def _place(self, mount: Path, directory: str) -> Path:
        return mount / self.path(directory).lstrip("/")


def _delegate(place: Path) -> None:
    """Let children use every controller that this cgroup has."""
    available = set((place / "cgroup.controllers").read_text().split())
    enabled = set((place / "cgroup.subtree_control").read_text().split())
    missing = available - enabled
    if missing:
        _write(place / "cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(missing)))


def _write(path: Path, content: str) -> None:
    try:
        path.write_text(content)
    except FileNotFoundError:
        log.debug("cgroup file missing", path=path)


def _page_sizes(place: Path) -> list[str]:
    """The huge page sizes that a cgroup knows, as the kernel names them: `2MB`, `1GB`."""
    found = {_PAGE_FILE.match(each.name) for each in place.glob("hugetlb.*")}
    return sorted({match[1] for match in found if match is not None})


def _processes(place: Path) -> Iterator[int]:
    for directory in _deepest_first(place):
        try:
            text = (directory / "cgroup.procs").read_text()
        except OSError:
            continue
        yield from (int(line) for line in text.split())


def _kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return


def _deepest_first(place: Path) -> Iterable[Path]:
    found = [place]
    for directory, names, _ in os.walk(place):
        found += [Path(directory) / name for name in names]
    return reversed(found)
