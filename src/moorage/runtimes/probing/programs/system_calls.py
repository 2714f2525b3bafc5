"""System calls of the vocabulary, each made as common programs make it.

Every result is reported by the system call's name. Run with all capabilities and without seccomp,
so that an error is the kernel's own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from moorage.runtimes.probing.programs.script import AT_FDCWD, Cell, Script, text_of

_AT_NO_AUTOMOUNT = 0x800
_STATX_BASIC = 0x7FF
_CLONE_NEWNS, _CLONE_NEWUTS = 0x00020000, 0x04000000
_MS_REC_PRIVATE = 0x44000
_SIGCHLD = 17
_RSEQ_SIGNATURE = 0x53053053
_RDWR_CREATE = 0o102
_SECCOMP_ALLOW = 0x7FFF0000
_PR_SET_NO_NEW_PRIVS = 38
_TMP = text_of("/tmp")
_ITSELF = text_of("/proc/self/exe")


def write(script: Script) -> None:
    """Write the program."""
    for name, make in CALLS.items():
        with script.child(name):
            cell = make(script)
        script.report(name, cell)


def _bpf(script: Script) -> Cell:
    # BPF_MAP_CREATE of an array with one element.
    return script.call("bpf", 0, struct.pack("<4I", 2, 4, 8, 1).ljust(72, b"\0"), 72)


def _clone3(script: Script) -> Cell:
    return script.call("clone3", struct.pack("<8Q", 0, 0, 0, 0, _SIGCHLD, 0, 0, 0), 64)


def _close_range(script: Script) -> Cell:
    return script.call("close_range", 100, 200, 0)


def _copy_file_range(script: Script) -> Cell:
    source = script.call("openat", AT_FDCWD, text_of("/tmp/probe-a"), _RDWR_CREATE, 0o600)
    script.call("write", source, b"0123456789abcdef", 16)
    target = script.call("openat", AT_FDCWD, text_of("/tmp/probe-b"), _RDWR_CREATE, 0o600)
    return script.call("copy_file_range", source, bytes(8), target, bytes(8), 16, 0)


def _epoll_pwait2(script: Script) -> Cell:
    descriptor = script.call("epoll_create1", 0)
    return script.call("epoll_pwait2", descriptor, script.buffer(64), 1, bytes(16), 0, 8)


def _faccessat2(script: Script) -> Cell:
    return script.call("faccessat2", AT_FDCWD, text_of("/"), 0, 0x200)


def _fanotify(script: Script) -> Cell:
    return script.call("fanotify_init", 0, 0)


def _futex_waitv(script: Script) -> Cell:
    # A value that is not the expected one: EAGAIN without waiting.
    word = script.buffer(8, b"\1")
    waiter = script.buffer(24, struct.pack("<QQII", 0, word.address, 2, 0))
    return script.call("futex_waitv", waiter, 1, 0, bytes(16), 1)


def _inotify(script: Script) -> Cell:
    descriptor = script.call("inotify_init1", 0)
    return script.call("inotify_add_watch", descriptor, _TMP, 0x100)


def _io_uring(script: Script) -> Cell:
    return script.call("io_uring_setup", 4, script.buffer(120))


def _landlock(script: Script) -> Cell:
    return script.call("landlock_create_ruleset", 0, 0, 1)


def _membarrier(script: Script) -> Cell:
    return script.call("membarrier", 0, 0, 0)


def _memfd_create(script: Script) -> Cell:
    return script.call("memfd_create", text_of("probe"), 0)


def _mount(script: Script) -> Cell:
    script.call("unshare", _CLONE_NEWNS)
    script.call("mount", text_of("none"), text_of("/"), 0, _MS_REC_PRIVATE, 0)
    return script.call("mount", text_of("none"), _TMP, text_of("tmpfs"), 0, 0)


def _openat2(script: Script) -> Cell:
    return script.call("openat2", AT_FDCWD, text_of("/"), bytes(24), 24)


def _perf_event_open(script: Script) -> Cell:
    # The processor clock of this process, disabled, without kernel and hypervisor.
    attributes = struct.pack("<IIQQQQQ", 1, 112, 0, 0, 0, 0, 0x61).ljust(112, b"\0")
    return script.call("perf_event_open", attributes, 0, -1, -1, 0)


def _pidfd_open(script: Script) -> Cell:
    return script.call("pidfd_open", script.call("getpid"), 0)


def _pivot_root(script: Script) -> Cell:
    script.call("unshare", _CLONE_NEWNS)
    script.call("mount", text_of("none"), text_of("/"), 0, _MS_REC_PRIVATE, 0)
    script.call("mount", text_of("none"), _TMP, text_of("tmpfs"), 0, 0)
    script.call("mkdirat", AT_FDCWD, text_of("/tmp/old"), 0o700)
    return script.call("pivot_root", _TMP, text_of("/tmp/old"))


def _ptrace(script: Script) -> Cell:
    return script.call("ptrace", 0, 0, 0, 0)


def _rseq(script: Script) -> Cell:
    return script.call("rseq", script.buffer(64), 32, 0, _RSEQ_SIGNATURE)


def _seccomp(script: Script) -> Cell:
    script.call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    filter_ = script.buffer(8, struct.pack("<HBBI", 6, 0, 0, _SECCOMP_ALLOW))
    program = struct.pack("<H6xQ", 1, filter_.address)
    return script.call("seccomp", 1, 0, program)


def _splice(script: Script) -> Cell:
    pipe = script.buffer(64)
    script.call("pipe2", pipe, 0)
    # The pair of 32-bit descriptors: 3 and 4 in a process that has no others.
    source = script.call("openat", AT_FDCWD, _ITSELF, 0)
    return script.call("splice", source, 0, 4, 0, 16, 0)


def _statx(script: Script) -> Cell:
    return script.call(
        "statx", AT_FDCWD, text_of("/"), _AT_NO_AUTOMOUNT, _STATX_BASIC, script.buffer(256)
    )


def _unshare(script: Script) -> Cell:
    return script.call("unshare", _CLONE_NEWUTS)


def _userfaultfd(script: Script) -> Cell:
    # UFFD_USER_MODE_ONLY, as programs without privileges use it.
    return script.call("userfaultfd", 1)


CALLS: dict[str, Callable[[Script], Cell]] = {
    "bpf": _bpf,
    "clone3": _clone3,
    "close_range": _close_range,
    "copy_file_range": _copy_file_range,
    "epoll_pwait2": _epoll_pwait2,
    "faccessat2": _faccessat2,
    "fanotify": _fanotify,
    "futex_waitv": _futex_waitv,
    "inotify": _inotify,
    "io_uring": _io_uring,
    "landlock": _landlock,
    "membarrier": _membarrier,
    "memfd_create": _memfd_create,
    "mount": _mount,
    "openat2": _openat2,
    "perf_event_open": _perf_event_open,
    "pidfd_open": _pidfd_open,
    "pivot_root": _pivot_root,
    "ptrace": _ptrace,
    "rseq": _rseq,
    "seccomp": _seccomp,
    "splice": _splice,
    "statx": _statx,
    "unshare": _unshare,
    "userfaultfd": _userfaultfd,
}
"""Name in `moorage.runtimeclass.features.SYSTEM_CALLS` → the calls whose last result counts."""
