"""Script of a probe program: system calls in order, with results that are reported by name.

    script.call("openat", AT_FDCWD, b"/etc/passwd\\0", 0) → a cell with the result
    with script.child("mount") as child: …                 calls in a process of their own

An argument is a number, bytes (its address is passed), a Cell (its value is passed) or a Buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from moorage.runtimes.probing.programs.interpreter import (
    BUFFERS_ADDRESS,
    BUFFERS_BYTES,
    CELLS_ADDRESS,
    DATA_ADDRESS,
    FORK,
    HEX,
    JUMP,
    NO_WAIT,
    REPEAT,
    WORDS,
    executable,
)

# Numbers of the system calls that probe programs make. Source: Linux `syscall.tbl`, `unistd.h`.

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


AT_FDCWD = -100
CHILD_LIMIT_S = 3
"""A child that takes longer is ended by SIGALRM."""

_CELLS_BYTES = 0x10000
_PROT_READ_WRITE = 3
_MAP_SHARED, _MAP_FIXED, _MAP_ANONYMOUS = 1, 0x10, 0x20
_DIGITS = 16
_READ_BYTES = 4096
_STDOUT = 1
_ARGUMENTS = 6


class Cell(msgspec.Struct, frozen=True):
    """A place for a 64-bit result."""

    address: int


class Buffer(msgspec.Struct, frozen=True):
    """A place for what a system call writes."""

    address: int
    size: int

    def at(self, offset: int) -> Cell:
        """Return the 64-bit value at an offset."""
        return Cell(self.address + offset)


Argument = int | bytes | Cell | Buffer


class Script:
    """A program under construction, for one architecture."""

    def __init__(self, architecture: str) -> None:
        self._architecture = architecture
        self._table: list[list[int]] = []
        self._data = bytearray()
        self._next_cell = CELLS_ADDRESS
        self._next_buffer = BUFFERS_ADDRESS
        self._reports: list[tuple[str, Cell]] = []
        # Results must be shared, since children write them.
        self.call(
            "mmap", CELLS_ADDRESS, _CELLS_BYTES, _PROT_READ_WRITE,
            _MAP_SHARED | _MAP_FIXED | _MAP_ANONYMOUS, -1, 0,
        )  # fmt: skip

    def call(self, name: str, *arguments: Argument, repeats: bool = False) -> Cell:
        """Append a system call; return the cell of its result, below 0 for an error number."""
        cell = self.cell()
        words, mask = [], 0
        for position, argument in enumerate(arguments):
            words.append(self._word(argument))
            if isinstance(argument, Cell):
                mask |= 1 << position
        words += [0] * (_ARGUMENTS - len(words))
        self._add(number_of(name, self._architecture), words, mask, REPEAT if repeats else 0, cell)
        return cell

    def report(self, name: str, cell: Cell) -> None:
        """Print a value by name at the end of the program."""
        self._reports.append((name, cell))

    def cell(self) -> Cell:
        """Return a new cell; it is 0 until something is written."""
        cell = Cell(self._next_cell)
        self._next_cell += 8
        assert self._next_cell <= CELLS_ADDRESS + _CELLS_BYTES
        return cell

    def buffer(self, size: int, content: bytes = b"") -> Buffer:
        """Return a new buffer, aligned to 64 bytes, of a size in bytes and with this content."""
        if content:
            return Buffer(self._word(content.ljust(size, b"\0")), size)
        buffer = Buffer(self._next_buffer, size)
        self._next_buffer += (size + 63) & ~63
        assert self._next_buffer <= BUFFERS_ADDRESS + BUFFERS_BYTES
        return buffer

    @contextmanager
    def child(self, name: str = "", *, limit_s: int = CHILD_LIMIT_S) -> Iterator[Buffer]:
        """Have the calls of the block made in a process of its own, and wait for its end.

        Its wait status is reported as `NAME.end` if there is a name. Yields the buffer of its
        resource usage, as wait4 writes it.
        """
        status, usage = self.cell(), self.buffer(256)
        with self._forked(FORK, status, usage):
            self._limit(limit_s)
            yield usage
        if name:
            self.report(f"{name}.end", status)

    @contextmanager
    def concurrent(self) -> Iterator[Cell]:
        """Have the calls of the block made in a process of its own; yields the cell of its pid."""
        with self._forked(FORK | NO_WAIT, self.cell(), self.buffer(8)) as pid:
            self._limit(CHILD_LIMIT_S)
            yield pid

    def split(self) -> Cell:
        """Go on in two processes; return the cell of the fork's result."""
        cell = self.cell()
        self._add(0, [0] * _ARGUMENTS, 0, FORK | NO_WAIT, cell)
        return cell

    @contextmanager
    def endless(self) -> Iterator[None]:
        """Have the calls of the block repeated for ever."""
        first = len(self._table)
        yield
        back = first - len(self._table) - 1
        self._add(0, [back, 0, 0, 0, 0, 0], 0, JUMP, self.cell())

    def sleep(self, milliseconds: int) -> None:
        """Append a pause."""
        seconds, rest = divmod(milliseconds, 1000)
        moment = seconds.to_bytes(8, "little") + (rest * 1_000_000).to_bytes(8, "little")
        self.call("nanosleep", moment, 0)

    def print_text(self, text: str) -> None:
        """Append the output of a text."""
        content = text.encode()
        self.call("write", _STDOUT, content, len(content))

    def print_file(self, path: str, *, reads: int = 1) -> None:
        """Append the output of a file's beginning, up to 4096 bytes a read, below its path."""
        self.print_text(f"== {path}\n")
        descriptor = self.call("openat", AT_FDCWD, text_of(path), 0)
        buffer = self.buffer(_READ_BYTES)
        for _ in range(reads):
            count = self.call("read", descriptor, buffer, _READ_BYTES)
            self.call("write", _STDOUT, buffer, count)
        self.call("close", descriptor)
        self.print_text("\n")

    def print_link(self, path: str) -> None:
        """Append the output of a symbolic link's target, below its path."""
        self.print_text(f"== {path}\n")
        buffer = self.buffer(256)
        count = self.call("readlinkat", AT_FDCWD, text_of(path), buffer, buffer.size)
        self.call("write", _STDOUT, buffer, count)
        self.print_text("\n")

    def finished(self) -> bytes:
        """Return the executable. Prints the reports, and ends with status 0."""
        self.print_reports()
        self.call("exit_group", 0)
        return executable(self._architecture, self._table, bytes(self._data))

    def print_reports(self) -> None:
        """Append the output of what was reported so far."""
        text, digits = bytearray(b"== results\n"), []
        for name, cell in self._reports:
            text += f"{name} ".encode()
            digits.append((cell, len(text)))
            text += b"0" * _DIGITS + b"\n"
        self._reports = []
        address = self._word(bytes(text))
        for cell, offset in digits:
            self._add(0, [cell.address, address + offset, 0, 0, 0, 0], 0, HEX, cell)
        self.call("write", _STDOUT, Buffer(address, len(text)), len(text))

    @contextmanager
    def _forked(self, flags: int, status: Cell, usage: Buffer | None = None) -> Iterator[Cell]:
        place, pid = len(self._table), self.cell()
        assert usage is not None
        self._add(0, [0, status.address, usage.address, 0, 0, 0], 0, flags, pid)
        yield pid
        self.call("exit_group", 0)
        self._table[place][1] = len(self._table) - place - 1

    def _limit(self, seconds: int) -> None:
        """Have the process ended by SIGALRM."""
        timer = bytes(16) + seconds.to_bytes(8, "little") + bytes(8)
        self.call("setitimer", 0, timer, 0)

    def _add(self, number: int, words: list[int], mask: int, flags: int, cell: Cell) -> None:
        entry = [number, *words, mask, flags, cell.address]
        assert len(entry) == WORDS
        self._table.append(entry)

    def _word(self, argument: Argument) -> int:
        if isinstance(argument, int):
            return argument
        if isinstance(argument, bytes):
            # Aligned, since structures are passed too.
            self._data += bytes(-len(self._data) % 64)
            address = DATA_ADDRESS + len(self._data)
            self._data += argument
            return address
        return argument.address


def text_of(text: str) -> bytes:
    """Return a text as system calls take it, with a zero byte at its end."""
    return text.encode() + b"\0"
