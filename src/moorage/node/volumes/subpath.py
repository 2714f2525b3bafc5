"""A part of a volume in a container, safe against symlinks that lead out of the volume.

The part is opened step by step inside the volume, never following a link out of it, and bound by
its descriptor: whoever can write to the volume cannot swap it between the check and the use.
Source: kubelet `volume/util/subpath`, CVE-2017-1002101; openat2(2) RESOLVE_BENEATH, with
absolute links into the volume allowed.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePosixPath

from moorage.node.config.errors import ConfigError
from moorage.node.volumes.mounting import Mounter

_MAX_LINKS = 40
_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def check_subpath(subpath: str) -> PurePosixPath:
    """The path's parts. Raises ConfigError for an absolute one or one with `..`."""
    path = PurePosixPath(subpath)
    if path.is_absolute():
        raise ConfigError(f"error SubPath `{subpath}` must not be an absolute path")
    if ".." in path.parts:
        raise ConfigError(f"unable to provision SubPath `{subpath}`: must not contain '..'")
    return path


def bind_subpath(volume: Path, subpath: PurePosixPath, target: Path, mounter: Mounter) -> None:
    """Show a part of a volume at `target`, creating it as a directory where it is missing.

    Blocks. Raises ConfigError when a link leads out of the volume, OSError otherwise.
    """
    descriptor = open_inside(volume, subpath)
    try:
        is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        target.parent.mkdir(parents=True, exist_ok=True)
        mounter.unmount(target)
        if is_directory:
            target.mkdir(exist_ok=True)
        else:
            target.touch(exist_ok=True)
        mounter.bind(f"/proc/self/fd/{descriptor}", target)
    finally:
        os.close(descriptor)


def open_inside(volume: Path, subpath: PurePosixPath) -> int:
    """A path descriptor of something inside a volume; missing directories are made.

    A symlink is followed when what it names is inside the volume. Raises ConfigError when it leads
    elsewhere.
    """
    root = os.open(volume, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    mode = stat.S_IMODE(os.fstat(root).st_mode)
    opened = [root]
    try:
        pending = list(subpath.parts)
        links = 0
        while pending:
            part = pending.pop(0)
            if part == "..":
                # Only links say so; the kernel would follow this one out of the volume.
                if len(opened) == 1:
                    raise ConfigError(
                        f"subpath `{subpath}` not within volume path: "
                        "a symbolic link leads above it"
                    )
                os.close(opened.pop())
                continue
            step = _step(opened[-1], part, mode)
            if stat.S_ISLNK(os.fstat(step).st_mode):
                text = os.readlink("", dir_fd=step)
                os.close(step)
                links += 1
                pending[:0] = _inside(volume, text, links, subpath)
                if text.startswith("/"):
                    _close_down_to(opened, 1)
            else:
                opened.append(step)
        return os.dup(opened[-1])
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _step(parent: int, part: str, mode: int) -> int:
    try:
        return os.open(part, _FLAGS, dir_fd=parent)
    except FileNotFoundError:
        os.mkdir(part, dir_fd=parent)
        made = os.open(part, _FLAGS, dir_fd=parent)
        os.chmod(f"/proc/self/fd/{made}", mode)
        return made


def _inside(volume: Path, text: str, links: int, subpath: PurePosixPath) -> list[str]:
    """The parts a link stands for, relative to the volume when it is absolute."""
    if links > _MAX_LINKS:
        raise ConfigError(f"subPath `{subpath}` has too many symbolic links")
    link = PurePosixPath(text)
    if not link.is_absolute():
        return list(link.parts)
    try:
        return list(link.relative_to(volume).parts)
    except ValueError:
        raise ConfigError(
            f"subpath `{subpath}` not within volume path: a symbolic link leads to {text}"
        ) from None


def _close_down_to(opened: list[int], count: int) -> None:
    while len(opened) > count:
        os.close(opened.pop())
