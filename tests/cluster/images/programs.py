"""ELF files of a few bytes: a header and a program header table, nothing to run."""

from __future__ import annotations

import struct

AMD64, ARM64, S390X, I386 = 62, 183, 22, 3
_PT_LOAD, PT_INTERP = 1, 3


def elf(
    machine: int = AMD64, *, bits: int = 64, order: str = "<", kinds: tuple[int, ...] = (_PT_LOAD,)
) -> bytes:
    """An ELF file whose program headers are of those kinds."""
    ident = b"\x7fELF" + bytes((2 if bits == 64 else 1, 1 if order == "<" else 2, 1)) + bytes(9)
    is_64 = bits == 64
    size, entry = (64, 56) if is_64 else (52, 32)
    word = "Q" if is_64 else "I"
    rest = struct.pack(
        f"{order}HHI{word}{word}{word}IHHHHHH",
        2, machine, 1, 0, size, 0, 0, size, entry, len(kinds), 0, 0, 0,
    )  # fmt: skip
    table = b"".join(struct.pack(f"{order}I", kind).ljust(entry, b"\0") for kind in kinds)
    return ident + rest + table
