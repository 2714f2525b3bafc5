"""Capabilities in use: for each an operation that the kernel permits with the capability alone.

Every operation is harmless: it concerns the container's own files and processes, or has arguments
that the kernel refuses after the check of the capability. Source: capabilities(7), the kernel's
checks.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from moorage.runtimes.probing.programs.script import AT_FDCWD, Cell, Script, text_of

_RDWR, _RDWR_CREATE = 2, 0o102
_AF_INET, _SOCK_STREAM, _SOCK_RAW, _ICMP = 2, 1, 3, 1
_SOL_SOCKET, _SO_RCVBUFFORCE = 1, 33
_RLIMIT_NOFILE, _RLIMIT_MEMLOCK = 7, 8
_OTHER_USER = 1
_ADJ_TICK = 0x4000
_F_SETLEASE, _F_RDLCK = 1024, 0
_PTRACE_SEIZE = 0x4206
_PR_CAPBSET_DROP, _CAP_WAKE_ALARM = 24, 35
_S_IFCHR = 0o020000
_CLOCK_BOOTTIME_ALARM = 9
_PROT_READ_WRITE, _PRIVATE_ANONYMOUS = 3, 0x22
_SIGKILL = 9
_FILE = text_of("/tmp/probe-file")


def write(script: Script) -> None:
    """Write the program."""
    script.print_file("/proc/self/status")
    for name, operate in OPERATIONS.items():
        with script.child(name):
            cell = operate(script)
        script.report(name, cell)


def _file(script: Script, mode: int = 0o600) -> Cell:
    """Return a descriptor of a new file."""
    descriptor = script.call("openat", AT_FDCWD, _FILE, _RDWR_CREATE, mode)
    script.call("fchmodat", AT_FDCWD, _FILE, mode)
    return descriptor


def _others_file(script: Script, mode: int = 0o600) -> Cell:
    """Return a descriptor of a file that belongs to another user."""
    descriptor = _file(script, mode)
    script.call("fchownat", AT_FDCWD, _FILE, _OTHER_USER, _OTHER_USER, 0)
    return descriptor


def _chown(script: Script) -> Cell:
    _file(script)
    return script.call("fchownat", AT_FDCWD, _FILE, _OTHER_USER, _OTHER_USER, 0)


def _dac_override(script: Script) -> Cell:
    _others_file(script, 0)
    return script.call("openat", AT_FDCWD, _FILE, _RDWR, 0)


def _dac_read_search(script: Script) -> Cell:
    # A handle that fits no file system: ESTALE, EBADF or EINVAL after the check.
    handle = struct.pack("<II", 8, 1) + bytes(8)
    return script.call("open_by_handle_at", -1, handle, 0)


def _fowner(script: Script) -> Cell:
    _others_file(script)
    return script.call("fchmodat", AT_FDCWD, _FILE, 0o640)


def _ipc_lock(script: Script) -> Cell:
    script.call("prlimit64", 0, _RLIMIT_MEMLOCK, bytes(16), 0)
    page = script.call("mmap", 0, 4096, _PROT_READ_WRITE, _PRIVATE_ANONYMOUS, -1, 0)
    return script.call("mlock", page, 4096)


def _with_others_process(script: Script, act: Callable[[Cell], Cell]) -> Cell:
    """Return the result of an act on a process of another user."""
    with script.concurrent() as pid:
        script.call("setresuid", _OTHER_USER, _OTHER_USER, _OTHER_USER)
        script.sleep(2000)
    script.sleep(50)
    cell = act(pid)
    script.call("kill", pid, _SIGKILL)
    return cell


def _kill(script: Script) -> Cell:
    return _with_others_process(script, lambda pid: script.call("kill", pid, 0))


def _ptrace(script: Script) -> Cell:
    return _with_others_process(script, lambda pid: script.call("ptrace", _PTRACE_SEIZE, pid, 0, 0))


def _lease(script: Script) -> Cell:
    # No lease while the file is open for writing.
    script.call("close", _others_file(script, 0o644))
    descriptor = script.call("openat", AT_FDCWD, _FILE, 0, 0)
    return script.call("fcntl", descriptor, _F_SETLEASE, _F_RDLCK)


def _mknod(script: Script) -> Cell:
    return script.call("mknodat", AT_FDCWD, text_of("/tmp/probe-null"), _S_IFCHR | 0o600, 0x103)


def _net_admin(script: Script) -> Cell:
    descriptor = script.call("socket", _AF_INET, _SOCK_STREAM, 0)
    size = struct.pack("<I", 65536)
    return script.call("setsockopt", descriptor, _SOL_SOCKET, _SO_RCVBUFFORCE, size, 4)


def _net_bind_service(script: Script) -> Cell:
    descriptor = script.call("socket", _AF_INET, _SOCK_STREAM, 0)
    # Port 81 of the loopback address.
    address = struct.pack(">HH4s8x", 0x0200, 81, bytes([127, 0, 0, 1]))
    return script.call("bind", descriptor, address, 16)


def _net_raw(script: Script) -> Cell:
    return script.call("socket", _AF_INET, _SOCK_RAW, _ICMP)


def _perfmon(script: Script) -> Cell:
    # The processor clock of this process, with the kernel's share.
    attributes = struct.pack("<IIQQQQQ", 1, 112, 0, 0, 0, 0, 1).ljust(112, b"\0")
    return script.call("perf_event_open", attributes, 0, -1, -1, 0)


def _setfcap(script: Script) -> Cell:
    # Version 2 of the attribute, without any capability in it.
    value = struct.pack("<5I", 0x02000000, 0, 0, 0, 0)
    name = text_of("security.capability")
    return script.call("fsetxattr", _file(script), name, value, 20, 0)


def _setgid(script: Script) -> Cell:
    return script.call("setgroups", 1, struct.pack("<I", _OTHER_USER))


def _setuid(script: Script) -> Cell:
    return script.call("setresuid", _OTHER_USER, _OTHER_USER, _OTHER_USER)


def _setpcap(script: Script) -> Cell:
    return script.call("prctl", _PR_CAPBSET_DROP, _CAP_WAKE_ALARM, 0, 0, 0)


def _sys_admin(script: Script) -> Cell:
    return script.call("sethostname", text_of("probe"), 5)


def _sys_boot(script: Script) -> Cell:
    # Not the magic numbers, so EINVAL after the check.
    return script.call("reboot", 0, 0, 0, 0)


def _sys_chroot(script: Script) -> Cell:
    return script.call("chroot", text_of("/"))


def _sys_module(script: Script) -> Cell:
    return script.call("delete_module", text_of("moorage_no_such_module"), 0o4000)


def _sys_nice(script: Script) -> Cell:
    return script.call("setpriority", 0, 0, -5)


def _sys_pacct(script: Script) -> Cell:
    return script.call("acct", text_of("/no-such-file"))


def _sys_resource(script: Script) -> Cell:
    script.call("prlimit64", 0, _RLIMIT_NOFILE, struct.pack("<QQ", 64, 64), 0)
    return script.call("prlimit64", 0, _RLIMIT_NOFILE, struct.pack("<QQ", 128, 128), 0)


def _sys_time(script: Script) -> Cell:
    # A length of the tick that is out of range: EINVAL after the check.
    timex = struct.pack("<I", _ADJ_TICK).ljust(208, b"\0")
    return script.call("adjtimex", timex)


def _sys_tty_config(script: Script) -> Cell:
    return script.call("vhangup")


def _syslog(script: Script) -> Cell:
    # The size of the kernel's log.
    return script.call("syslog", 10, 0, 0)


def _wake_alarm(script: Script) -> Cell:
    return script.call("timerfd_create", _CLOCK_BOOTTIME_ALARM, 0)


OPERATIONS: dict[str, Callable[[Script], Cell]] = {
    "CHOWN": _chown,
    "DAC_OVERRIDE": _dac_override,
    "DAC_READ_SEARCH": _dac_read_search,
    "FOWNER": _fowner,
    "IPC_LOCK": _ipc_lock,
    "KILL": _kill,
    "LEASE": _lease,
    "MKNOD": _mknod,
    "NET_ADMIN": _net_admin,
    "NET_BIND_SERVICE": _net_bind_service,
    "NET_RAW": _net_raw,
    "PERFMON": _perfmon,
    "SETFCAP": _setfcap,
    "SETGID": _setgid,
    "SETPCAP": _setpcap,
    "SETUID": _setuid,
    "SYSLOG": _syslog,
    "SYS_ADMIN": _sys_admin,
    "SYS_BOOT": _sys_boot,
    "SYS_CHROOT": _sys_chroot,
    "SYS_MODULE": _sys_module,
    "SYS_NICE": _sys_nice,
    "SYS_PACCT": _sys_pacct,
    "SYS_PTRACE": _ptrace,
    "SYS_RESOURCE": _sys_resource,
    "SYS_TIME": _sys_time,
    "SYS_TTY_CONFIG": _sys_tty_config,
    "WAKE_ALARM": _wake_alarm,
}
"""Capability → its operation. Those without one have none that is harmless."""
