"""Pinned namespaces: created in a thread and held by bind mounts on files, without a process.

User namespaces can only be created by a single-threaded process, so a short-lived child creates
those.

    directory/net  directory/ipc  directory/uts  [directory/user]

Source: namespaces(7), unshare(2), mount(2), netdevice(7).
"""

from __future__ import annotations

import fcntl
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path

from moorage.linux import libc
from moorage.linux.arp import announce
from moorage.linux.idmap import IdMappings, held_user_namespace
from moorage.linux.mounts import unmount
from moorage.linux.namespaces import enter

NET, IPC, UTS, USER = "net", "ipc", "uts", "user"
_FLAGS = {
    NET: libc.CLONE_NEWNET,
    IPC: libc.CLONE_NEWIPC,
    UTS: libc.CLONE_NEWUTS,
    USER: libc.CLONE_NEWUSER,
}
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_IFF_UP = 1


class NamespaceError(OSError):
    """The kernel refused to create or change a namespace; the text names the step."""


def create(
    directory: Path,
    kinds: Sequence[str],
    *,
    hostname: str = "",
    sysctls: Mapping[Path, str] = {},
    mappings: IdMappings | None = None,
) -> None:
    """Create namespaces and pin them in a directory; sets loopback up, hostname and sysctls.

    With mappings they belong to a new user namespace, which is pinned too. `sysctls` maps files
    below /proc/sys to values. Takes about a millisecond. Raises NamespaceError; nothing is pinned
    then.
    """
    directory.mkdir(parents=True, exist_ok=True)

    def work() -> None:
        _unshare(kinds)
        if NET in kinds:
            _raise_loopback()
        if UTS in kinds and hostname:
            _name_host(hostname)
        _write_sysctls(sysctls)
        for kind in kinds:
            _pin(directory / kind, f"/proc/thread-self/ns/{kind}")

    try:
        if mappings is None:
            _in_thread(work)
        else:
            _make_in_user_namespace(directory, kinds, mappings)
            configure(directory, kinds, hostname, sysctls)
    except BaseException:
        release(directory)
        raise


def configure(
    directory: Path, kinds: Sequence[str], hostname: str, sysctls: Mapping[Path, str]
) -> None:
    """Set hostname and sysctls of pinned namespaces of these kinds. Raises NamespaceError."""

    def work() -> None:
        for kind in kinds:
            enter(directory / kind, _FLAGS[kind])
        if NET in kinds:
            _raise_loopback()
        if UTS in kinds and hostname:
            _name_host(hostname)
        _write_sysctls(sysctls)

    _in_thread(work)


def announce_addresses(directory: Path, interface: str, addresses: Sequence[IPv4Address]) -> None:
    """Announce addresses of an interface of the pinned network namespace. Raises OSError."""

    def work() -> None:
        enter(directory / NET, _FLAGS[NET])
        announce(interface, addresses)

    _in_thread(work)


def move(directory: Path, target: Path) -> None:
    """Rename a directory with its pinned namespaces. Raises OSError."""
    directory.rename(target)


def release(directory: Path) -> None:
    """Unpin the namespaces in a directory and remove it; absent is no error. Raises OSError."""
    if not directory.is_dir():
        return
    for pinned in directory.iterdir():
        try:
            unmount(pinned)
        except OSError as error:
            # Never mounted: its creation was interrupted.
            if error.errno not in (22, 2):
                raise
        pinned.unlink(missing_ok=True)
    directory.rmdir()


def is_pinned(file: Path) -> bool:
    """Return whether a namespace is pinned on a file: its device differs from its directory's."""
    try:
        return file.stat().st_dev != file.parent.stat().st_dev
    except FileNotFoundError:
        return False


def _make_in_user_namespace(directory: Path, kinds: Sequence[str], mappings: IdMappings) -> None:
    with held_user_namespace(mappings, kinds) as holder:
        for kind in (USER, *kinds):
            _pin(directory / kind, str(holder / "ns" / kind))


def _in_thread(work: Callable[[], None]) -> None:
    """Run `work` in a thread of its own, whose namespaces end with it. Raises what it raises."""
    failure: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:  # handed to the caller below
            failure.append(error)

    thread = threading.Thread(target=guarded, name="namespaces")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]


def _unshare(kinds: Sequence[str]) -> None:
    flags = 0
    for kind in kinds:
        flags |= _FLAGS[kind]
    with _failing_as(f"creating the namespaces {', '.join(kinds)}"):
        libc.unshare(flags)


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(control, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def _name_host(hostname: str) -> None:
    with _failing_as(f"setting the hostname {hostname}"):
        socket.sethostname(hostname)


def _write_sysctls(sysctls: Mapping[Path, str]) -> None:
    for file, value in sysctls.items():
        try:
            file.write_text(value)
        except OSError as error:
            raise NamespaceError(error.errno, f"sysctl {file}={value}: {error.strerror}") from error


def _pin(file: Path, source: str) -> None:
    file.touch()
    with _failing_as(f"pinning {source} on {file}"):
        libc.mount(source, file, flags=libc.MS_BIND)


@contextmanager
def _failing_as(step: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NamespaceError(error.errno, f"{step}: {error.strerror}") from error
