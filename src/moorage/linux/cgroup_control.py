"""Cgroup control: create, enter, freeze, kill and remove cgroups in all hierarchies.

A cgroup is named by its path, as OCI's `cgroupsPath`, and is a directory in every hierarchy. The
caller sets its limits. Every call blocks for some system calls, at times on kernel locks, and none
waits. All raise CgroupError, and ValueError for a path that names the root. Source: cgroups(7),
kernel cgroup-v1 and cgroup-v2 documents.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from moorage.api.logs import Log
from moorage.linux.cgroups import Cgroups, Layout, directory_in
from moorage.linux.process import Process
from moorage.linux.trees import Step, remove_directories, walk

log = Log(__name__)

# Above this, processes are opened in batches, so that a fork bomb cannot exhaust this process's
# descriptors.
HELD_AT_ONCE = 256
_CPUSET_FILES = ("cpuset.cpus", "cpuset.mems")
_MAKE_TRIES = 3
_CGROUP_MODE = 0o755
_MAY_BE_CLOSED = (errno.EROFS, errno.EACCES, errno.EPERM)
# Freezer file, with the values that freeze and thaw.
_FREEZERS = (("freezer.state", "FROZEN", "THAWED"), ("cgroup.freeze", "1", "0"))


class CgroupError(OSError):
    """A cgroup could not be created, changed or removed; the text names it."""


def make_cgroup(cgroups: Cgroups, path: str) -> tuple[str, ...]:
    """Create a cgroup and its parents, where missing. Returns the created ones, outermost first.

    Version 2 delegates every controller; on version 1, cpusets are copied from the parent.
    """
    tries = _MAKE_TRIES
    while True:
        tries -= 1
        try:
            return _make(cgroups, path)
        except OSError as error:
            # An empty parent may be removed by another process meanwhile.
            if not tries or not isinstance(error, FileNotFoundError):
                raise _failure("create", path, error) from error


def has_cgroup(cgroups: Cgroups, path: str) -> bool:
    """Return whether the cgroup exists in any hierarchy."""
    return any(directory.is_dir() for directory in cgroups.directories(path))


def enter_cgroup(cgroups: Cgroups, path: str, pid: int) -> None:
    """Move a process into a cgroup, in every hierarchy that has it. Raises CgroupError."""
    for directory in cgroups.directories(path):
        try:
            (directory / "cgroup.procs").write_text(str(pid))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _failure("enter", path, error) from error


def make_cpu_cgroup(cgroups: Cgroups, path: str, quota_us: int, period_us: int) -> None:
    """Create a cgroup with a CPU quota, in the cpu controller's hierarchy alone.

    Its processes together run `quota_us` in every `period_us`, both in microseconds. Raises
    CgroupError, also without the controller.
    """
    mount = _cpu_hierarchy(cgroups, path)
    try:
        list(_make_in(mount, path, passes_down=cgroups.layout is Layout.V2))
        directory = directory_in(mount, path)
        if "cpu" in cgroups.v1:
            (directory / "cpu.cfs_period_us").write_text(str(period_us))
            (directory / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (directory / "cpu.max").write_text(f"{quota_us} {period_us}")
    except OSError as error:
        raise _failure("create", path, error) from error


def enter_cpu_cgroup(cgroups: Cgroups, path: str, pid: int) -> None:
    """Move a process into a cgroup of `make_cpu_cgroup`; a process that has exited is no error.

    Raises CgroupError.
    """
    try:
        (directory_in(_cpu_hierarchy(cgroups, path), path) / "cgroup.procs").write_text(str(pid))
    except ProcessLookupError:
        return
    except OSError as error:
        raise _failure("enter", path, error) from error


def _cpu_hierarchy(cgroups: Cgroups, path: str) -> Path:
    mount = cgroups.mount_of("cpu")
    if mount is None:
        raise CgroupError(errno.ENOENT, f"cgroup {path}: the machine has no cpu controller")
    return mount


def files_below(directory: Path, name: str, flags: int = os.O_RDONLY) -> Iterator[int]:
    """Yield an open descriptor of a file in a cgroup and in each descendant, deepest first.

    Each is valid until the next. Cgroups without the file, or removed meanwhile, are left out.
    Works below PATH_MAX, since a container may nest cgroups deeper.
    """
    try:
        for visit in walk(directory, directories_only=True):
            if visit.step is not Step.LEAVE:
                continue
            try:
                opened = os.open(f"{visit.name}/{name}", flags, dir_fd=visit.directory)
            except OSError:
                continue
            try:
                yield opened
            finally:
                os.close(opened)
    except (FileNotFoundError, NotADirectoryError):
        return


def read_text(descriptor: int) -> str:
    """Return the content of an open cgroup file. Raises OSError."""
    with open(descriptor, closefd=False) as file:
        return file.read()


def _write(file: Path, content: str) -> bool:
    """Write an existing file. Returns whether the kernel accepted the value."""
    try:
        descriptor = os.open(file, os.O_WRONLY)
    except OSError:
        return False
    try:
        return _put(descriptor, content)
    finally:
        os.close(descriptor)


def _put(descriptor: int, content: str) -> bool:
    try:
        os.write(descriptor, content.encode())
    except OSError as error:
        log.debug("cgroup file refused a value", value=content, reason=error.strerror)
        return False
    return True


def process_ids(cgroups: Cgroups, path: str) -> frozenset[int]:
    """Return the ids of the processes in a cgroup and its descendants, in any hierarchy.

    Processes of foreign PID namespaces, which have no id here, are left out.
    """
    return frozenset(
        pid for directory in cgroups.directories(path) for pid in process_ids_below(directory)
    )


def process_ids_below(directory: Path, read: Callable[[int], str] = read_text) -> Iterator[int]:
    """Yield the ids of the processes in a cgroup of one hierarchy and its descendants."""
    for opened in files_below(directory, "cgroup.procs"):
        try:
            text = read(opened)
        except OSError:
            # The cgroup is gone, or is threaded: its parent lists the process.
            continue
        # PID 0 belongs to a foreign PID namespace; kill(0) would signal our own process group.
        yield from (pid for pid in map(int, text.split()) if pid > 0)


def hold_processes(
    cgroups: Cgroups,
    path: str,
    hold: Callable[[int], Process] = Process,
    look: Callable[[Cgroups, str], frozenset[int]] = process_ids,
) -> tuple[Process, ...]:
    """Open the processes of a cgroup, then check that they are still members: pids are reused."""
    processes: list[Process] = []
    try:
        for pid in sorted(look(cgroups, path))[:HELD_AT_ONCE]:
            try:
                processes.append(hold(pid))
            except ProcessLookupError:
                continue
        members = look(cgroups, path)
    except BaseException:
        for process in processes:
            process.close()
        raise
    for process in processes:
        if process.pid not in members:
            process.close()
    return tuple(process for process in processes if process.pid in members)


Hold = Callable[[Cgroups, str], tuple[Process, ...]]


def kill_processes(cgroups: Cgroups, path: str, hold: Hold = hold_processes) -> tuple[Process, ...]:
    """Send SIGKILL to the processes in a cgroup and its descendants. Returns them, for the caller
    to close.

    They are frozen meanwhile, so that none escapes by forking. With very many processes, or without
    a freezer, some remain: call it again until the result is empty. Raises CgroupError, with
    nothing killed, when this process itself is in the cgroup.
    """
    if os.getpid() in process_ids(cgroups, path):
        raise CgroupError(errno.EBUSY, f"cgroup {path} holds this process itself: not killed")
    directories = cgroups.directories(path)
    with _frozen(directories):
        processes = hold(cgroups, path)
        for directory in directories:
            _write(directory / "cgroup.kill", "1")
        for process in processes:
            process.send(signal.SIGKILL)
    return processes


def remove_cgroup(cgroups: Cgroups, path: str) -> None:
    """Remove a cgroup without processes, and its descendants; absent is no error."""
    for directory in cgroups.directories(path):
        try:
            remove_directories(directory)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _failure("remove", path, error) from error


def remove_if_empty(cgroups: Cgroups, path: str) -> None:
    """Remove a cgroup in each hierarchy where it has neither processes nor children."""
    for directory in cgroups.directories(path):
        try:
            directory.rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EBUSY, errno.ENOTEMPTY):
                raise _failure("remove", path, error) from error


def _make(cgroups: Cgroups, path: str) -> tuple[str, ...]:
    needed = set(cgroups.v1.values())
    created: dict[str, None] = {}
    for mount in cgroups.hierarchies:
        try:
            # On a hybrid, version 2 delegates nothing: a controller in use there could not be
            # mounted as version 1 any more, where runtimes look for it.
            passes_down = cgroups.layout is Layout.V2 and mount == cgroups.unified
            created |= dict.fromkeys(_make_in(mount, path, passes_down=passes_down))
        except OSError as error:
            # A hierarchy without controllers is optional, and may belong to the host's init.
            is_needed = mount in needed or cgroups.layout is Layout.V2
            if is_needed or error.errno not in _MAY_BE_CLOSED:
                raise
            log.debug("hierarchy cannot be changed", mount=mount, reason=error.strerror)
    if "cpuset" in cgroups.v1:
        _inherit_cpuset(cgroups.v1["cpuset"], path)
    return tuple(sorted(created))


def _make_in(mount: Path, path: str, *, passes_down: bool) -> Iterator[str]:
    """Create a cgroup in one hierarchy; yields the paths of those that were missing."""
    directory = mount
    for name in directory_in(mount, path).relative_to(mount).parts:
        if passes_down:
            pass_down(directory)
        directory = directory / name
        try:
            directory.mkdir()
            # Whatever the umask: users in containers read their own cgroup's files.
            directory.chmod(_CGROUP_MODE)
        except FileExistsError:
            if not directory.is_dir():
                raise
        else:
            yield f"/{directory.relative_to(mount)}"


def _inherit_cpuset(mount: Path, path: str) -> None:
    """Copy each parent's cpuset: a new one is empty, and no process may enter an empty one."""
    directory = mount
    for name in directory_in(mount, path).relative_to(mount).parts:
        above, directory = directory, directory / name
        for file in _CPUSET_FILES:
            if not (directory / file).read_text().strip():
                (directory / file).write_text((above / file).read_text().strip())


def pass_down(directory: Path, write: Callable[[Path, str], bool] = _write) -> None:
    """Delegate a cgroup's controllers to its children."""
    control = directory / "cgroup.subtree_control"
    missing = set((directory / "cgroup.controllers").read_text().split())
    missing -= set(control.read_text().split())
    if not missing:
        return
    try:
        control.write_text(" ".join(f"+{name}" for name in sorted(missing)))
    except OSError as error:
        refused = [name for name in sorted(missing) if not write(control, f"+{name}")]
        if len(refused) == len(missing):
            raise
        # One controller that the kernel refuses (cpu with real-time processes) must not affect the
        # others.
        log.warning(
            "controllers not passed down", cgroup=directory, controllers=refused, error=error
        )


@contextmanager
def _frozen(directories: Iterable[Path]) -> Iterator[None]:
    stopped = [
        (directory, file, go_on)
        for directory in directories
        for file, stop, go_on in _FREEZERS
        if _write(directory / file, stop)
    ]
    try:
        yield
    finally:
        for directory, file, go_on in stopped:
            # Thaw descendants too: a process that was frozen before cannot die on version 1.
            for opened in files_below(directory, file, os.O_WRONLY):
                _put(opened, go_on)


def _failure(verb: str, path: str, error: OSError) -> CgroupError:
    return CgroupError(
        error.errno, f"failed to {verb} cgroup {path}: {error.strerror} ({error.filename})"
    )
