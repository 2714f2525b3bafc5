"""Built-in seccomp profile, cached for each set of capabilities.

Pure. Source: OCI runtime-spec, "Seccomp"; clone(2), personality(2), vsock(7).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from moorage.engine.errors import InvalidError
from moorage.engine.oci.context import BUILT_IN_SECCOMP, UNCONFINED_SECCOMP, Document
from moorage.linux.trust import distrust
from moorage.wire.cri import pb

# Built-in seccomp profile data: the system calls a container may make, and their conditions.
#
# All others are refused with EPERM. Left out are calls that reach beyond the container (modules,
# clocks, swap, reboot, keyrings, io_uring, userfaultfd) and obsolete ones. Names of other
# architectures and of newer kernels do no harm: runtimes ignore what their seccomp library does not
# know. Source: the kernel's syscall tables and man pages; the allow-list that Docker and containerd
# share.

ALLOWED: Mapping[str, str] = {
    "files by name": """
        access chdir chmod chown chown32 creat faccessat faccessat2 fchmodat fchmodat2 fchownat
        file_getattr file_setattr fstatat64 futimesat getcwd inotify_add_watch inotify_init
        inotify_init1 inotify_rm_watch lchown lchown32 link linkat lstat lstat64 mkdir mkdirat
        mknod mknodat name_to_handle_at newfstatat open openat openat2 readlink readlinkat rename
        renameat renameat2 rmdir stat stat64 statfs statfs64 statx symlink symlinkat truncate
        truncate64 unlink unlinkat utime utimensat utimensat_time64 utimes
    """,
    "attributes": """
        fgetxattr flistxattr fremovexattr fsetxattr getxattr getxattrat lgetxattr listxattr
        listxattrat llistxattr lremovexattr lsetxattr removexattr removexattrat setxattr setxattrat
    """,
    "open files": """
        close close_range copy_file_range dup dup2 dup3 fadvise64 fadvise64_64 fallocate fchdir
        fchmod fchown fchown32 fcntl fcntl64 fdatasync flock fstat fstat64 fstatfs fstatfs64 fsync
        ftruncate ftruncate64 getdents getdents64 ioctl _llseek lseek pread64 preadv preadv2
        pwrite64 pwritev pwritev2 read readahead readv sendfile sendfile64 splice sync
        sync_file_range syncfs tee umask vmsplice write writev cachestat
    """,
    "waiting": """
        epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait
        epoll_wait_old eventfd eventfd2 io_cancel io_destroy io_getevents io_pgetevents
        io_pgetevents_time64 io_setup io_submit _newselect pipe pipe2 poll ppoll ppoll_time64
        pselect6 pselect6_time64 select signalfd signalfd4
    """,
    "memory": """
        brk madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mlock mlock2
        mlockall mmap mmap2 mprotect mremap mseal msync munlock munlockall munmap pkey_alloc
        pkey_free pkey_mprotect process_mrelease remap_file_pages
    """,
    "processes": """
        capget capset execve execveat exit exit_group fork getcpu getgid getgid32 getegid getegid32
        geteuid geteuid32 getgroups getgroups32 getpgid getpgrp getpid getppid getpriority
        getresgid getresgid32 getresuid getresuid32 getrlimit getrusage getsid gettid getuid
        getuid32 getrandom get_robust_list get_thread_area ioprio_get ioprio_set pidfd_open prctl
        prlimit64 rseq sched_getaffinity sched_getattr sched_getparam sched_get_priority_max
        sched_get_priority_min sched_getscheduler sched_rr_get_interval
        sched_rr_get_interval_time64 sched_setaffinity sched_setattr sched_setparam
        sched_setscheduler sched_yield setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32
        setgroups setgroups32 setpgid setpriority setregid setregid32 setresgid setresgid32
        setresuid setresuid32 setreuid setreuid32 setrlimit set_robust_list setsid set_thread_area
        set_tid_address setuid setuid32 sysinfo times ugetrlimit uname vfork wait4 waitid waitpid
    """,
    "confining oneself": """
        landlock_add_rule landlock_create_ruleset landlock_restrict_self seccomp
    """,
    "signals": """
        kill pause pidfd_send_signal restart_syscall rt_sigaction rt_sigpending rt_sigprocmask
        rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64
        rt_tgsigqueueinfo sigaltstack sigaction sigpending sigprocmask sigreturn sigsuspend tgkill
        tkill
    """,
    "time": """
        adjtimex alarm clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 clock_gettime
        clock_gettime64 clock_nanosleep clock_nanosleep_time64 getitimer gettimeofday nanosleep
        setitimer time timer_create timer_delete timer_getoverrun timer_gettime timer_gettime64
        timer_settime timer_settime64 timerfd_create timerfd_gettime timerfd_gettime64
        timerfd_settime timerfd_settime64
    """,
    "locks": """
        futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake
    """,
    "sockets": """
        accept accept4 bind connect getpeername getsockname getsockopt listen recv recvfrom recvmmsg
        recvmmsg_time64 recvmsg send sendmmsg sendmsg sendto setsockopt shutdown socketcall
        socketpair
    """,
    "messages between processes": """
        ipc mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend
        mq_timedsend_time64 mq_unlink msgctl msgget msgrcv msgsnd semctl semget semop semtimedop
        semtimedop_time64 shmat shmctl shmdt shmget
    """,
    "tracing one's own children": """
        process_vm_readv process_vm_writev ptrace
    """,
    "kernel information": """
        lsm_get_self_attr lsm_list_modules uretprobe
    """,
}
"""Names by subject, allowed to every container."""

SINCE_KERNEL: Mapping[str, tuple[int, int]] = {
    # Earlier, a traced process could bypass the filter.
    "ptrace": (4, 8),
}

BY_MACHINE: Mapping[str, str] = {
    "x86_64": "arch_prctl modify_ldt",
    "aarch64": "arm_fadvise64_64 arm_sync_file_range breakpoint cacheflush set_tls "
    "sync_file_range2",
    "armv7l": "arm_fadvise64_64 arm_sync_file_range breakpoint cacheflush set_tls sync_file_range2",
    "ppc64le": "swapcontext sync_file_range2",
    "riscv64": "riscv_flush_icache riscv_hwprobe",
    "s390x": "s390_guarded_storage s390_pci_mmio_read s390_pci_mmio_write s390_runtime_instr "
    "s390_sthyi",
}

BY_CAPABILITY: Mapping[str, str] = {
    "CAP_BPF": "bpf",
    "CAP_DAC_READ_SEARCH": "open_by_handle_at",
    "CAP_PERFMON": "perf_event_open",
    "CAP_SYSLOG": "syslog",
    "CAP_SYS_ADMIN": """
        bpf clone clone3 fanotify_init fanotify_mark fsconfig fsmount fsopen fspick listmount
        lookup_dcookie mount mount_setattr move_mount open_tree open_tree_attr perf_event_open
        quotactl quotactl_fd setdomainname sethostname setns statmount syslog umount umount2
        unshare
    """,
    "CAP_SYS_BOOT": "reboot",
    "CAP_SYS_CHROOT": "chroot",
    "CAP_SYS_MODULE": "delete_module finit_module init_module",
    "CAP_SYS_NICE": "get_mempolicy mbind set_mempolicy set_mempolicy_home_node",
    "CAP_SYS_PACCT": "acct",
    "CAP_SYS_PTRACE": "kcmp pidfd_getfd process_madvise process_vm_readv process_vm_writev ptrace",
    "CAP_SYS_RAWIO": "ioperm iopl",
    "CAP_SYS_TIME": "clock_settime clock_settime64 settimeofday stime",
    "CAP_SYS_TTY_CONFIG": "vhangup",
}
"""Names that a capability adds. Those of several are added once."""

NEW_NAMESPACES = 0x7E020000
"""CLONE_NEW*: mount, cgroup, uts, ipc, user, pid, net."""
AF_VSOCK = 40
PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
"""Linux, 32 bit, uname26, both, and a query."""

ARCHITECTURES: Mapping[str, tuple[str, ...]] = {
    "x86_64": ("SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"),
    "aarch64": ("SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"),
    "armv7l": ("SCMP_ARCH_ARM",),
    "loongarch64": ("SCMP_ARCH_LOONGARCH64",),
    "mips64": ("SCMP_ARCH_MIPS64", "SCMP_ARCH_MIPS", "SCMP_ARCH_MIPS64N32"),
    "ppc64le": ("SCMP_ARCH_PPC64LE",),
    "riscv64": ("SCMP_ARCH_RISCV64",),
    "s390x": ("SCMP_ARCH_S390X", "SCMP_ARCH_S390"),
}
"""uname's machine → the native architecture, then the others its kernel runs."""


# Seccomp profile choice, from the CRI's two fields and the handler's default.
#
# Source: CRI LinuxContainerSecurityContext: `seccomp` takes precedence over the older
# `seccomp_profile_path`.

_LOCALHOST = "localhost/"
_OLDER_DEFAULTS = ("runtime/default", "docker/default")
_OLDER_UNCONFINED = ("", "unconfined")

SecurityContext = pb.LinuxContainerSecurityContext | pb.LinuxSandboxSecurityContext


@dataclass(frozen=True, slots=True)
class SeccompChoice:
    """A profile: the built-in one, the one of a file, or, with neither, none."""

    is_built_in: bool = False
    path: str = ""


NO_PROFILE = SeccompChoice()


def choose_seccomp(
    context: SecurityContext, handler_default: str, *, has_seccomp: bool
) -> SeccompChoice:
    """Return the profile of a container or sandbox; a privileged one has none. Raises
    InvalidError.
    """
    if context.privileged:
        return NO_PROFILE
    chosen = _asked(context, handler_default)
    if chosen != NO_PROFILE and not has_seccomp:
        raise InvalidError(
            "a seccomp profile is requested, but this kernel has no seccomp; use Unconfined"
        )
    return chosen


def _asked(context: SecurityContext, handler_default: str) -> SeccompChoice:
    if context.HasField("seccomp"):
        kind, reference = context.seccomp.profile_type, context.seccomp.localhost_ref
        if kind == pb.SecurityProfile.Localhost:
            return _of_file(reference, "seccomp.localhost_ref")
        is_default = kind == pb.SecurityProfile.RuntimeDefault
        return _default(handler_default) if is_default else NO_PROFILE
    older = context.seccomp_profile_path
    if older in _OLDER_UNCONFINED:
        return NO_PROFILE
    if older in _OLDER_DEFAULTS:
        return _default(handler_default)
    if not older.startswith(_LOCALHOST):
        raise InvalidError(
            f"seccomp_profile_path {older!r} is not supported; use runtime/default, unconfined or "
            "localhost/PATH"
        )
    return _of_file(older.removeprefix(_LOCALHOST), "seccomp_profile_path")


def _default(handler_default: str) -> SeccompChoice:
    if handler_default == BUILT_IN_SECCOMP:
        return SeccompChoice(is_built_in=True)
    if handler_default == UNCONFINED_SECCOMP:
        return NO_PROFILE
    return SeccompChoice(path=handler_default)


def _of_file(path: str, field: str) -> SeccompChoice:
    if not path.startswith("/"):
        raise InvalidError(f"{field} {path!r} must be an absolute path")
    return SeccompChoice(path=path)


# Seccomp profiles of the node's files: OCI's `linux.seccomp` as JSON.
#
# Source: CRI SecurityProfile.localhost_ref; OCI runtime-spec, "Seccomp".

_FIELDS = (
    "defaultAction",
    "defaultErrnoRet",
    "architectures",
    "flags",
    "listenerPath",
    "listenerMetadata",
    "syscalls",
)


def read_profile(path: str) -> Document:
    """Read a profile. Blocks. Raises InvalidError naming the file."""
    place = Path(path)
    if not place.is_absolute():
        raise InvalidError(f"seccomp profile {path!r} must be an absolute path")
    if "\0" in path:
        raise InvalidError(f"seccomp profile {path!r} is not a valid path: it contains NUL")
    distrusted = distrust(place)
    if distrusted is not None:
        raise InvalidError(f"refusing seccomp profile {path}: {distrusted}")
    try:
        content = place.read_bytes()
    except OSError as error:
        raise InvalidError(
            f"seccomp profile {path} cannot be read: {error.strerror}; install it on this node"
        ) from error
    try:
        profile = msgspec.json.decode(content, type=Document)
    except msgspec.MsgspecError as error:
        raise InvalidError(f"seccomp profile {path} is not a JSON object: {error}") from error
    if not isinstance(profile.get("defaultAction"), str):
        raise InvalidError(f"seccomp profile {path} has no defaultAction; add one")
    return {name: profile[name] for name in _FIELDS if name in profile}


_ALLOW = "SCMP_ACT_ALLOW"
_REFUSE = "SCMP_ACT_ERRNO"
_EPERM = 1
_ENOSYS = 38
_FIRST_ON_S390 = 1


class SeccompProfiles:
    """The built-in profiles of one host, cached: sorting a few hundred names for each pod is
    avoided.

    The returned profiles are shared; do not modify them.
    """

    def __init__(self, machine: str, kernel: tuple[int, int]) -> None:
        self._machine = machine
        self._kernel = kernel
        self._made: dict[frozenset[str], Document] = {}

    def built_in(self, capabilities: frozenset[str]) -> Document:
        """Return the profile for a process with those capabilities, as OCI's `linux.seccomp`."""
        # Only these affect the profile, so the number of profiles is bounded.
        relevant = frozenset(capabilities & BY_CAPABILITY.keys())
        profile = self._made.get(relevant)
        if profile is None:
            profile = built_in_profile(relevant, self._machine, self._kernel)
            self._made[relevant] = profile
        return profile


def built_in_profile(
    capabilities: Collection[str], machine: str, kernel: tuple[int, int]
) -> Document:
    """Return the profile of RuntimeDefault, unless a handler's file names another."""
    return {
        "defaultAction": _REFUSE,
        "defaultErrnoRet": _EPERM,
        "architectures": list(ARCHITECTURES.get(machine, ())),
        "syscalls": [
            _rule(sorted(_names(capabilities, machine, kernel))),
            *(_rule(["personality"], _is(0, personality)) for personality in PERSONALITIES),
            # A vsock to the hypervisor bypasses every network policy.
            _rule(["socket"], {"index": 0, "value": AF_VSOCK, "op": "SCMP_CMP_NE"}),
            *([] if "CAP_SYS_ADMIN" in capabilities else _clone_rules(machine)),
        ],
    }


def _names(capabilities: Collection[str], machine: str, kernel: tuple[int, int]) -> set[str]:
    allowed = {
        name for name in _words(ALLOWED.values()) if kernel >= SINCE_KERNEL.get(name, kernel)
    }
    allowed.update(BY_MACHINE.get(machine, "").split())
    allowed.update(_words(names for name, names in BY_CAPABILITY.items() if name in capabilities))
    return allowed


def _clone_rules(machine: str) -> list[Document]:
    """Return rules that allow new processes and threads, but no new namespaces.

    A filter cannot inspect clone3's flags, which are in memory; on ENOSYS libraries fall back to
    clone.
    """
    index = _FIRST_ON_S390 if machine == "s390x" else 0
    return [
        _rule(
            ["clone"],
            {"index": index, "value": NEW_NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"},
        ),
        {"names": ["clone3"], "action": _REFUSE, "errnoRet": _ENOSYS},
    ]


def _words(groups: Iterable[str]) -> Iterable[str]:
    for names in groups:
        yield from names.split()


def _is(index: int, value: int) -> dict[str, Any]:
    return {"index": index, "value": value, "op": "SCMP_CMP_EQ"}


def _rule(names: list[str], *arguments: dict[str, Any]) -> Document:
    rule: Document = {"names": names, "action": _ALLOW}
    if arguments:
        rule["args"] = list(arguments)
    return rule
