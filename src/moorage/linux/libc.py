"""libc calls that Python's standard library lacks, each raising OSError with the kernel's errno.

The only module that loads libc. Blocking calls release the GIL. Imports the standard library alone,
for the program that unpacks layers.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

AT_FDCWD, AT_EMPTY_PATH = -100, 0x1000
CLONE_NEWNET, CLONE_NEWIPC = 0x40000000, 0x08000000
CLONE_NEWUTS, CLONE_NEWUSER = 0x04000000, 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 1 << 14, 1 << 18
MNT_DETACH, UMOUNT_NOFOLLOW = 2, 8
_MADV_DONTNEED = 4
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_PR_SET_NO_NEW_PRIVS = 38

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def mount(
    source: str | Path | None,
    target: Path,
    fstype: str | None = None,
    flags: int = 0,
    options: str | None = None,
) -> None:
    """Call mount(2)."""
    status = _libc.mount(
        _encoded(source),
        os.fsencode(target),
        _encoded(fstype),
        ctypes.c_ulong(flags),
        _encoded(options),
    )
    _check(status, target)


def umount(target: Path, flags: int = 0) -> None:
    """Call umount2(2)."""
    _check(_libc.umount2(os.fsencode(target), flags), target)


def unshare(flags: int) -> None:
    """Call unshare(2) for this thread."""
    _check(_libc.unshare(flags))


def setns(descriptor: int, kind: int) -> None:
    """Call setns(2) for this thread; `os.setns` needs Python 3.12."""
    _check(_libc.setns(descriptor, kind))


def set_parent_death_signal(number: int) -> None:
    """Have the kernel signal this process when its parent dies. Source: prctl(2)."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


def gain_no_privileges() -> None:
    """Keep this process and its children from privileges of files they run. Source: prctl(2)."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")


def set_child_subreaper(*, is_on: bool) -> None:
    """Have orphaned descendants become children of this process, or not. Source: prctl(2)."""
    _check(
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, int(is_on), 0, 0, 0), "prctl(PR_SET_CHILD_SUBREAPER)"
    )


def syncfs(descriptor: int) -> None:
    """Call syncfs(2)."""
    _check(_libc.syncfs(descriptor))


def malloc_trim() -> None:
    """Return free memory at the heap's end, and whole free pages in it, to the kernel.

    Source: malloc_trim(3).
    """
    _libc.malloc_trim(0)


def dont_need(address: int, length: int) -> None:
    """Call madvise(2) with MADV_DONTNEED for whole pages, which must be mapped.

    Pages of a private file mapping come back as they are in the file, changes are lost.
    """
    advised = _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(length), _MADV_DONTNEED)
    _check(advised, "madvise(MADV_DONTNEED)")


def inotify_init(flags: int) -> int:
    """Call inotify_init1(2). Returns the descriptor."""
    return _check(_libc.inotify_init1(flags), "inotify")


def inotify_add_watch(descriptor: int, path: Path, mask: int) -> int:
    """Call inotify_add_watch(2). Returns the watch."""
    return _check(_libc.inotify_add_watch(descriptor, os.fsencode(path), mask), path)


def inotify_rm_watch(descriptor: int, watch: int) -> None:
    """Call inotify_rm_watch(2)."""
    _check(_libc.inotify_rm_watch(descriptor, watch))


def syscall(number: int, subject: str | Path, *arguments: int | bytes) -> int:
    """Call syscall(2). Returns the result; `subject` is the path that an error names."""
    # Integers have the width of a register; a plain int would be passed as 32 bits.
    wide = [
        ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments
    ]
    return _check(_libc.syscall(ctypes.c_long(number), *wide), subject)


def _encoded(text: str | Path | None) -> bytes | None:
    return None if text is None else os.fsencode(text)


def _check(result: int, subject: str | Path | None = None) -> int:
    if result < 0:
        number = ctypes.get_errno()
        error = (number, os.strerror(number))
        raise OSError(*error) if subject is None else OSError(*error, str(subject))
    return int(result)
