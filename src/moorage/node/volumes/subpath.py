"""A part of a volume in a container, safe against symlinks that lead out of the volume.

The part is opened step by step inside the volume, never following a link out of it, and bound by
its descriptor: whoever can write to the volume cannot swap it between the check and the use.
Source: kubelet `volume/util/subpath`, CVE-2017-1002101; openat2(2) RESOLVE_BENEATH, with
absolute links into the volume allowed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from pathlib import Path, PurePosixPath

from moorage.linux.descent import Descent
from moorage.linux.trees import make_directories
from moorage.node.config.errors import ConfigError
from moorage.node.volumes.mounting import Mounter

_MAX_LINKS = 40
_FLAGS = os.O_PATH | os.O_NOFOLLOW


def check_subpath(subpath: str) -> PurePosixPath:
    """The path's parts. Raises ConfigError for an absolute one, one with `..` or with NUL."""
    path = PurePosixPath(subpath)
    if path.is_absolute():
        raise ConfigError(f"error SubPath `{subpath}` must not be an absolute path")
    if ".." in path.parts:
        raise ConfigError(f"unable to provision SubPath `{subpath}`: must not contain '..'")
    if "\0" in subpath:
        raise ConfigError(f"unable to provision SubPath `{subpath}`: must not contain NUL")
    return path


def bind_subpath(volume: Path, subpath: PurePosixPath, target: Path, mounter: Mounter) -> None:
    """Show a part of a volume at `target`, creating it as a directory where it is missing.

    Blocks. Raises ConfigError when a link leads out of the volume, OSError otherwise.
    """
    descriptor = open_inside(volume, subpath)
    try:
        is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        make_directories(target.parent)
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
    root = os.open(volume, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # What is mounted inside a volume is part of it.
        with Descent(root, crosses_mounts=True) as place:
            return _descend(place, volume, subpath)
    finally:
        os.close(root)


def _descend(place: Descent, volume: Path, subpath: PurePosixPath) -> int:
    mode = stat.S_IMODE(os.fstat(place.directory).st_mode)
    pending = deque(subpath.parts)
    links = 0
    while pending:
        part = pending.popleft()
        if part == "..":
            # Only links say so; the kernel would follow this one out of the volume.
            if not place.depth or place.leave() is None:
                raise ConfigError(
                    f"subpath `{subpath}` not within volume path: a symbolic link leads above it"
                )
            continue
        step = _step(place, part, mode)
        if step is None:
            continue
        if not stat.S_ISLNK(os.fstat(step).st_mode):
            if not pending:
                return step
            os.close(step)
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), part)
        text = os.readlink("", dir_fd=step)
        os.close(step)
        links += 1
        pending.extendleft(reversed(_inside(volume, text, links, subpath)))
        if text.startswith("/"):
            place.restart()
    return os.open(".", _FLAGS, dir_fd=place.directory)


def _step(place: Descent, part: str, mode: int) -> int | None:
    """Enter a directory, made where it is missing; a descriptor of what is none."""
    try:
        place.enter(part)
    except FileNotFoundError:
        os.mkdir(part, dir_fd=place.directory)
        place.enter(part)
        os.fchmod(place.directory, mode)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        return os.open(part, _FLAGS, dir_fd=place.directory)
    return None


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
