"""Cgroup pressure, block device I/O and huge pages.

Only version 2 measures pressure. On a hybrid the runtime may have created the same cgroup there; it
counts if it holds the processes. Every call blocks for some system calls. Source: kernel cgroup-v2
document; cgroup-v1 blkio and hugetlb documents.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from moorage.engine.cgroups.files import (
    DeviceUsage,
    Pressure,
    devices_v1,
    devices_v2,
    number,
    numbers,
    pressure,
    read,
)
from moorage.linux.cgroups import Cgroups, Layout, directory_in

# Pairs of files that version 1 may have, recursive ones first.
_BLKIO = (
    ("throttle.io_service_bytes_recursive", "throttle.io_serviced_recursive"),
    ("throttle.io_service_bytes", "throttle.io_serviced"),
)
_PAGES = re.compile(r"hugetlb\.(\d+[KMG]B)\.(?:usage_in_bytes|current)$")
# Only version 1 records the maximum usage.
_PAGES_V1 = ("usage_in_bytes", "max_usage_in_bytes")
_PAGES_V2 = ("current", "")


@dataclass(frozen=True, slots=True)
class Pressures:
    """Pressure of each resource; None where it is not measured."""

    cpu: Pressure | None = None
    memory: Pressure | None = None
    io: Pressure | None = None


@dataclass(frozen=True, slots=True)
class PageUsage:
    """Huge pages of one size, named as by the kernel (`2MB`); in bytes."""

    size: str
    used: int
    peak: int | None = None


def read_pressures(cgroups: Cgroups, path: str) -> Pressures:
    """Return a cgroup's pressure."""
    if cgroups.unified is None:
        return Pressures()
    directory = directory_in(cgroups.unified, path)
    if cgroups.layout is Layout.HYBRID and not _has_processes(str(directory)):
        return Pressures()
    pressures = (pressure(read(f"{directory}/{name}.pressure")) for name in ("cpu", "memory", "io"))
    return Pressures(*pressures)


def read_devices(cgroups: Cgroups, path: str) -> tuple[DeviceUsage, ...]:
    """Return a cgroup's block device I/O."""
    blkio = cgroups.v1.get("blkio")
    if blkio is not None:
        directory = directory_in(blkio, path)
        texts = ([read(f"{directory}/blkio.{name}") for name in pair] for pair in _BLKIO)
        return next((devices_v1(*pair) for pair in texts if any(pair)), ())
    if cgroups.unified is None or "io" not in cgroups.v2:
        return ()
    return devices_v2(read(f"{directory_in(cgroups.unified, path)}/io.stat"))


def read_huge_pages(cgroups: Cgroups, path: str) -> tuple[PageUsage, ...]:
    """Return a cgroup's huge page usage by page size."""
    mount = cgroups.mount_of("hugetlb")
    if mount is None:
        return ()
    directory = directory_in(mount, path)
    used, peak = _PAGES_V1 if "hugetlb" in cgroups.v1 else _PAGES_V2
    pages = []
    for size in _page_sizes(str(directory)):
        bytes_used = number(read(f"{directory}/hugetlb.{size}.{used}"))
        most = number(read(f"{directory}/hugetlb.{size}.{peak}")) if peak else None
        if bytes_used is not None:
            pages.append(PageUsage(size, bytes_used, most))
    return tuple(pages)


def _has_processes(directory: str) -> bool:
    return numbers(read(f"{directory}/cgroup.events")).get("populated") == 1


def _page_sizes(directory: str) -> list[str]:
    if not os.path.isdir(directory):
        return []
    matches = map(_PAGES.match, os.listdir(directory))
    return sorted({match[1] for match in matches if match is not None})
