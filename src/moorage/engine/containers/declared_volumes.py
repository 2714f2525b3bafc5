"""Declared volumes: the paths that an image says are volumes (`VOLUME` of a Dockerfile).

Each gets a directory of the container, filled with what the image has there, unless a mount of the
container is at that path. The paths are chosen by the image's author: they are resolved inside the
root file system, and never lead out of it. Source: OCI image-spec, `config.Volumes`; containerd.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable
from pathlib import Path

from moorage.engine.errors import InvalidError
from moorage.engine.oci import KERNEL_TREES, POD_FILES, absolute
from moorage.linux.rooted_path import resolve_in_root

MAX_VOLUMES = 128
"""How many volumes an image may declare: each is a mount of every container."""
_MAX_PATH_BYTES = 4096 - 1
_SHOWN = 200


def choose_volumes(
    image: str, declared: Collection[str], requested: Iterable[str], rootfs: Path
) -> tuple[str, ...]:
    """Return the paths of a container's declared volumes, absolute and without links.

    Left out are paths at which the container has a mount (`requested`), files of the pod, and what
    is in the kernel's file systems. Blocks. Raises InvalidError for a path that can be no volume.
    """
    if len(declared) > MAX_VOLUMES:
        raise InvalidError(
            f"image {image} declares {len(declared)} volumes, more than {MAX_VOLUMES}; "
            "build it with fewer VOLUME paths"
        )
    taken = {*POD_FILES, *_covered(requested, rootfs)}
    chosen: dict[str, None] = {}
    for path in declared:
        wanted = _valid(image, path)
        place = _resolved(image, wanted, rootfs)
        if not taken.isdisjoint((wanted, place)) or _is_the_kernels(place):
            continue
        _verify_directory(image, path, rootfs / place[1:])
        chosen[place] = None
    return tuple(chosen)


def _covered(requested: Iterable[str], rootfs: Path) -> Iterable[str]:
    """Yield where mounts are, by their own path and by where it leads in the image."""
    for path in map(absolute, requested):
        yield path
        try:
            yield _inside(rootfs, resolve_in_root(rootfs, path))
        except OSError:
            # The runtime will refuse it, or mount it where nothing else is.
            continue


def _valid(image: str, path: str) -> str:
    if "\0" in path or len(os.fsencode(path)) > _MAX_PATH_BYTES:
        raise _invalid(image, path, "is no path")
    wanted = absolute(path)
    if wanted == "/":
        raise _invalid(image, path, "is the root directory")
    return wanted


def _resolved(image: str, path: str, rootfs: Path) -> str:
    try:
        place = _inside(rootfs, resolve_in_root(rootfs, path))
    except OSError as error:
        raise _invalid(image, path, f"cannot be resolved: {error.strerror}") from error
    if place == "/":
        raise _invalid(image, path, "is a link to the root directory")
    return place


def _inside(rootfs: Path, path: Path) -> str:
    return f"/{path.relative_to(rootfs)}" if path != rootfs else "/"


def _is_the_kernels(place: str) -> bool:
    # Images of systemd declare /sys/fs/cgroup; a volume there would hide the cgroups.
    return any(place == tree or place.startswith(f"{tree}/") for tree in KERNEL_TREES)


def _verify_directory(image: str, path: str, place: Path) -> None:
    try:
        mode = place.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise _invalid(image, path, f"cannot be a directory: {error.strerror}") from error
    if not stat.S_ISDIR(mode):
        raise _invalid(image, path, "is no directory in it")


def _invalid(image: str, path: str, why: str) -> InvalidError:
    shown = path if len(path) <= _SHOWN else f"{path[:_SHOWN]}…"
    return InvalidError(
        f"image {image} declares the volume {shown!r}, which {why}; correct VOLUME in the image"
    )
