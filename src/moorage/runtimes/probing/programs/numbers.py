"""Numbers of the system calls that probe programs make. Source: Linux `syscall.tbl`, `unistd.h`."""

from __future__ import annotations

NOT_THERE = 4095
"""A number without a system call, for those that an architecture lacks: ENOSYS."""

# Name → number on amd64, number on arm64.
_NUMBERS: dict[str, tuple[int, int]] = {
    "accept4": (288, 242),
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bind": (49, 200),
    "bpf": (321, 280),
    "capget": (125, 90),
    "chroot": (161, 51),
    "clock_gettime": (228, 113),
    "clone3": (435, 435),
    "close": (3, 57),
    "close_range": (436, 436),
    "connect": (42, 203),
    "copy_file_range": (326, 285),
    "delete_module": (176, 106),
    "epoll_create1": (291, 20),
    "epoll_pwait2": (441, 441),
    "exit_group": (231, 94),
    "faccessat2": (439, 439),
    "fanotify_init": (300, 262),
    "fchmodat": (268, 53),
    "fchownat": (260, 54),
    "fcntl": (72, 25),
    "fsetxattr": (190, 7),
    "futex_waitv": (449, 449),
    "getpid": (39, 172),
    "getppid": (110, 173),
    "inotify_add_watch": (254, 27),
    "inotify_init1": (294, 26),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "landlock_create_ruleset": (444, 444),
    "listen": (50, 201),
    "lseek": (8, 62),
    "membarrier": (324, 283),
    "memfd_create": (319, 279),
    "mkdirat": (258, 34),
    "mknodat": (259, 33),
    "mlock": (149, 228),
    "mmap": (9, 222),
    "mount": (165, 40),
    "nanosleep": (35, 101),
    "open_by_handle_at": (304, 265),
    "openat": (257, 56),
    "openat2": (437, 437),
    "perf_event_open": (298, 241),
    "pidfd_open": (434, 434),
    "pipe2": (293, 59),
    "pivot_root": (155, 41),
    "prctl": (157, 167),
    "prlimit64": (302, 261),
    "ptrace": (101, 117),
    "read": (0, 63),
    "readlinkat": (267, 78),
    "reboot": (169, 142),
    "rseq": (334, 293),
    "sched_getaffinity": (204, 123),
    "seccomp": (317, 277),
    "setgroups": (116, 159),
    "sethostname": (170, 161),
    "setitimer": (38, 103),
    "setpriority": (141, 140),
    "setresuid": (117, 147),
    "setsockopt": (54, 208),
    "socket": (41, 198),
    "splice": (275, 76),
    "statfs": (137, 43),
    "statx": (332, 291),
    "sysinfo": (99, 179),
    "syslog": (103, 116),
    "timerfd_create": (283, 85),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
    "wait4": (61, 260),
    "write": (1, 64),
}
_COLUMNS = ("amd64", "arm64")


NAMES = frozenset(_NUMBERS)
"""The system calls in the table."""


def number_of(name: str, architecture: str) -> int:
    """Return a system call's number. Raises KeyError, ValueError for what is not in the table."""
    return _NUMBERS[name][_COLUMNS.index(architecture)]
