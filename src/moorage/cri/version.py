"""Versions as engines, runtimes and tools print them.

Each program has its own way to say it, yet all print the number with dots, first among such words.
Distributions append their own marks, which stay in the text that people see and are left out of
what is compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Neither `io.containerd.kata.v2` nor `libbpf1` is a version: no word may run into it.
_VERSION = re.compile(r"(?<![\w.])v?((\d+(?:\.\d+)+)[\w+~-]*(?:\.[\w+~-]+)*)")


@dataclass(frozen=True, slots=True)
class Version:
    """A version: its numbers for comparing, its text as the program wrote it."""

    numbers: tuple[int, ...]
    text: str

    @property
    def major(self) -> int:
        return self.numbers[0]

    def is_before(self, numbers: tuple[int, ...]) -> bool:
        """Whether this is older than the version with those numbers; missing ones count as 0."""
        width = max(len(numbers), len(self.numbers))
        return _padded(self.numbers, width) < _padded(numbers, width)

    def __str__(self) -> str:
        return self.text


def parse_version(printed: str) -> Version | None:
    """The version in what a program prints when asked for it, None when there is none."""
    found = _VERSION.search(printed)
    if found is None:
        return None
    return Version(tuple(map(int, found.group(2).split("."))), found.group(1))


def _padded(numbers: tuple[int, ...], width: int) -> tuple[int, ...]:
    return numbers + (0,) * (width - len(numbers))
