"""Static programs of the host, which can be the content of an image.

An image made from one has no libraries, so a program that needs a dynamic linker would not start.
The image has the program's architecture. Source: elf(5).
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path

# Versions of engines, runtimes and tools, parsed from their output.
#
# Formats differ, but all print the dotted number before others. Distribution suffixes stay in the
# displayed text and are ignored in comparisons.

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


_MAGIC = b"\x7fELF"
_PT_INTERP = 3
# e_ident[EI_CLASS] and e_ident[EI_DATA].
_CLASS_64 = 2
_ENDIANNESS = {1: "<", 2: ">"}


@dataclass(frozen=True, slots=True)
class Platform:
    """An OCI platform. Source: image-spec, "Image Index"."""

    architecture: str
    variant: str = ""

    def to_object(self) -> dict[str, str]:
        fields = {"architecture": self.architecture, "os": "linux", "variant": self.variant}
        return {key: value for key, value in fields.items() if value}


# (e_machine, byte order) → platform.
_PLATFORMS = {
    (62, "<"): Platform("amd64"),
    (183, "<"): Platform("arm64", "v8"),
    (3, "<"): Platform("386"),
    (40, "<"): Platform("arm", "v7"),
    (243, "<"): Platform("riscv64"),
    (21, "<"): Platform("ppc64le"),
    (22, ">"): Platform("s390x"),
    (258, "<"): Platform("loong64"),
}


class UnfitProgramError(Exception):
    """A program cannot run alone in an image; the text says what to install."""

    def __init__(self, path: Path, why: str, package: str) -> None:
        super().__init__(f"{path} {why}; a static one is needed: apt-get install {package}")


@dataclass(frozen=True, slots=True)
class Program:
    """A static program: its content and platform."""

    content: bytes
    platform: Platform


def read_program(path: Path, package: str) -> Program:
    """Read a program; `package` is the one that has a static build of it.

    Raises UnfitProgramError for a file that is absent, not ELF, dynamic, or of an unknown
    architecture.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UnfitProgramError(path, f"cannot be read ({error.strerror})", package) from error
    try:
        platform, is_dynamic = _read_header(content)
    except (struct.error, KeyError, IndexError):
        raise UnfitProgramError(
            path, "is not an executable of a supported machine", package
        ) from None
    if is_dynamic:
        raise UnfitProgramError(path, "needs libraries", package)
    return Program(content, platform)


def _read_header(content: bytes) -> tuple[Platform, bool]:
    if not content.startswith(_MAGIC):
        raise KeyError(content[:4])
    order = _ENDIANNESS[content[5]]
    (machine,) = struct.unpack_from(f"{order}H", content, 18)
    if content[4] == _CLASS_64:
        (table,) = struct.unpack_from(f"{order}Q", content, 32)
        size, count = struct.unpack_from(f"{order}HH", content, 54)
    else:
        (table,) = struct.unpack_from(f"{order}I", content, 28)
        size, count = struct.unpack_from(f"{order}HH", content, 42)
    if table + size * count > len(content):
        raise IndexError(table)
    kinds = (struct.unpack_from(f"{order}I", content, table + size * i)[0] for i in range(count))
    return _PLATFORMS[machine, order], _PT_INTERP in kinds
