"""Network device statistics of a network namespace, without a process in it.

A thread enters one namespace after the other and reads there. It ends afterwards, so that nothing
else runs in a foreign namespace. Source: setns(2); proc_pid_net(5), "/proc/pid/net/dev".
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from moorage.api.logs import Log
from moorage.linux import libc

log = Log(__name__)

_COLUMNS = 16
# First columns of bytes, packets, errors and drops, received and sent.
_RECEIVED = 0
_SENT = 8


@dataclass(frozen=True, slots=True)
class Traffic:
    """One direction of a device."""

    bytes: int
    packets: int
    errors: int
    dropped: int


@dataclass(frozen=True, slots=True)
class NetworkDevice:
    name: str
    received: Traffic
    sent: Traffic


def parse_network_devices(text: str) -> tuple[NetworkDevice, ...]:
    """Return the devices in the text of /proc/PID/net/dev, without the loopback."""
    devices = []
    for line in text.split("\n"):
        before, _, after = line.rpartition(":")
        name, words = before.strip(), after.split()
        if name in ("", "lo") or len(words) < _COLUMNS or not all(map(str.isdecimal, words)):
            continue
        counts = [int(word) for word in words]
        received = Traffic(*counts[_RECEIVED : _RECEIVED + 4])
        devices.append(NetworkDevice(name, received, Traffic(*counts[_SENT : _SENT + 4])))
    return tuple(devices)


def read_network_devices(namespaces: Iterable[Path]) -> dict[Path, tuple[NetworkDevice, ...]]:
    """Return the devices of each network namespace, given by the file that pins it. Blocks.

    A namespace that cannot be entered is left out: it is gone, or CAP_SYS_ADMIN is missing.
    """
    devices: dict[Path, tuple[NetworkDevice, ...]] = {}

    def visit() -> None:
        for file in namespaces:
            try:
                devices[file] = parse_network_devices(_read_inside(file))
            except OSError as error:
                log.debug("network namespace not entered", path=file, reason=error.strerror)

    thread = threading.Thread(target=visit, name="network devices")
    thread.start()
    thread.join()
    return devices


def _read_inside(namespace: Path) -> str:
    descriptor = os.open(namespace, os.O_RDONLY)
    try:
        libc.setns(descriptor, libc.CLONE_NEWNET)
    finally:
        os.close(descriptor)
    return Path("/proc/thread-self/net/dev").read_text()
