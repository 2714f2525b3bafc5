"""Versions of engines, runtimes and tools, parsed from their output.

Formats differ, but all print the dotted number before others. Distribution suffixes stay in the
displayed text and are ignored in comparisons.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Neither `io.containerd.kata.v2` nor `libbpf1` is a version: it must not adjoin a word.
_VERSION = re.compile(r"(?<![\w.])v?((\d+(?:\.\d+)+)[\w+~-]*(?:\.[\w+~-]+)*)")


@dataclass(frozen=True, slots=True)
class Version:
    """A version: its numbers for comparison, its text as printed."""

    numbers: tuple[int, ...]
    text: str

    @property
    def major(self) -> int:
        return self.numbers[0]

    def is_before(self, numbers: tuple[int, ...]) -> bool:
        """Return whether this is older than the version with those numbers; missing ones count as
        0.
        """
        width = max(len(numbers), len(self.numbers))
        return _padded(self.numbers, width) < _padded(numbers, width)

    def __str__(self) -> str:
        return self.text


def parse_version(printed: str) -> Version | None:
    """Return the version in a program's output, None without one."""
    match = _VERSION.search(printed)
    if match is None:
        return None
    return Version(tuple(map(int, match.group(2).split("."))), match.group(1))


def _padded(numbers: tuple[int, ...], width: int) -> tuple[int, ...]:
    return numbers + (0,) * (width - len(numbers))
