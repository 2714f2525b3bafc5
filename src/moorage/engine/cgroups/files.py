"""Parsers of cgroup files.

Pure, except `read`. Malformed content is ignored: files differ between kernels, and one missing
figure must not affect the others. Source: kernel cgroup-v2 document, "Interface Files"; cgroup-v1
blkio document; Documentation/accounting/psi.rst.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

_MOST_BYTES = 1 << 18
# Version 1 writes "no limit" as the largest number of pages, in bytes.
_UNLIMITED = 1 << 62
_NS_PER_US = 1000


@dataclass(frozen=True, slots=True)
class Stall:
    """Stall time of tasks: the total in nanoseconds, recent averages in per cent."""

    total_ns: int
    average_10: float
    average_60: float
    average_300: float


@dataclass(frozen=True, slots=True)
class Pressure:
    """Pressure of one resource: `some` tasks stalled at a time, or all of them (`full`)."""

    some: Stall
    full: Stall


@dataclass(frozen=True, slots=True)
class DeviceUsage:
    """I/O of a block device: bytes and operations."""

    major: int
    minor: int
    read_bytes: int = 0
    written_bytes: int = 0
    reads: int = 0
    writes: int = 0


def read(file: str) -> str:
    """Return a file's text; empty when it does not exist, or is removed while it is read."""
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return os.read(descriptor, _MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def number(text: str) -> int | None:
    """Return the only number of a file; None for `max` and version 1's equivalent."""
    word = text.strip()
    if not (word.isascii() and word.isdecimal()):
        return None
    value = int(word)
    return value if value < _UNLIMITED else None


def numbers(text: str) -> dict[str, int | None]:
    """Return the numbers of a file with a key and a number on each line."""
    values: dict[str, int | None] = {}
    for line in text.split("\n"):
        key, _, value = line.partition(" ")
        if key:
            values[key] = number(value)
    return values


def pressure(text: str) -> Pressure | None:
    """Return the two lines of a pressure file; `full` is zero on kernels that do not measure it."""
    stalls = dict(filter(None, map(_stall, text.split("\n"))))
    if "some" not in stalls:
        return None
    return Pressure(stalls["some"], stalls.get("full", Stall(0, 0.0, 0.0, 0.0)))


def devices_v2(text: str) -> tuple[DeviceUsage, ...]:
    """Return the devices in `io.stat`: `8:0 rbytes=1 wbytes=2 rios=3 wios=4 …`."""
    devices = []
    for name, words in _by_device(text):
        values = {key: number(value) or 0 for key, _, value in (w.partition("=") for w in words)}
        counts = (values.get(key, 0) for key in ("rbytes", "wbytes", "rios", "wios"))
        devices.append(DeviceUsage(*name, *counts))
    return tuple(devices)


def devices_v1(bytes_text: str, operations_text: str) -> tuple[DeviceUsage, ...]:
    """Return the devices in blkio's `io_service_bytes` and `io_serviced`: `8:0 Read 123`."""
    counters: dict[tuple[int, int], dict[str, int]] = {}
    for kind, text in (("bytes", bytes_text), ("count", operations_text)):
        for name, words in _by_device(text):
            if len(words) == 2:
                counters.setdefault(name, {})[f"{words[0]} {kind}"] = number(words[1]) or 0
    keys = ("Read bytes", "Write bytes", "Read count", "Write count")
    return tuple(
        DeviceUsage(*name, *(values.get(key, 0) for key in keys))
        for name, values in counters.items()
    )


def _by_device(text: str) -> Iterator[tuple[tuple[int, int], list[str]]]:
    for line in text.split("\n"):
        name, *words = line.split() or [""]
        major, _, minor = name.partition(":")
        first, second = number(major), number(minor)
        if first is not None and second is not None:
            yield (first, second), words


def _stall(line: str) -> tuple[str, Stall] | None:
    name, *words = line.split() or [""]
    values = dict(word.partition("=")[::2] for word in words)
    try:
        averages = (float(values[key]) for key in ("avg10", "avg60", "avg300"))
        return name, Stall(int(values["total"]) * _NS_PER_US, *averages)
    except (KeyError, ValueError):
        return None
