"""subPath mounts, safe against symlinks that lead out of the volume.

The path is opened component by component inside the volume, never following a link out of it, and
bind mounted by its descriptor: a writer to the volume cannot replace it between check and use.
Source: kubelet `volume/util/subpath`, CVE-2017-1002101; openat2(2) RESOLVE_BENEATH, with absolute
links into the volume allowed.
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
    """Parse a subPath. Raises ConfigError if it is absolute or contains `..` or NUL."""
    path = PurePosixPath(subpath)
    if path.is_absolute():
        raise ConfigError(f"error SubPath `{subpath}` must not be an absolute path")
    if ".." in path.parts:
        raise ConfigError(f"unable to provision SubPath `{subpath}`: must not contain '..'")
    if "\0" in subpath:
        raise ConfigError(f"unable to provision SubPath `{subpath}`: must not contain NUL")
    return path


def bind_subpath(volume: Path, subpath: PurePosixPath, target: Path, mounter: Mounter) -> None:
    """Bind mount a path of a volume at `target`; a missing path is created as a directory.

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
    """Return a path descriptor of an entry inside a volume; missing directories are created.

    A symlink is followed when its target is inside the volume. Raises ConfigError when it leads
    elsewhere.
    """
    root = os.open(volume, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Mounts inside a volume are part of it.
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
            # Only from a link's target; the kernel would follow it out of the volume.
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
    """Enter a directory, creating a missing one.

    Returns None, or a descriptor of an entry that is not a directory.
    """
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
    """Return the components of a link's target, relative to the volume if it is absolute."""
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
