"""Idle memory of this process: pages that its start or a finished task needed, given back.

    heap      pages that hold nothing any more (malloc_trim)
    programs  read-only pages that are as in their file, and come back from there when they are
              used next: loading an extension module of 13 MB maps most of it

An agent runs on each node, so what it holds at rest counts once for each. Source: madvise(2),
MADV_DONTNEED of private file mappings; proc(5), smaps.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from pathlib import Path

from moorage.linux.libc import dont_need, malloc_trim

_SMAPS = Path("/proc/self/smaps")
_HEAD = re.compile(r"(?P<start>[0-9a-f]+)-(?P<end>[0-9a-f]+) r-[x-]p [0-9a-f]+ \S+ (?P<inode>\d+) ")
_ANONYMOUS = re.compile(r"Anonymous: +(\d+) kB")


def give_back() -> None:
    """Give back what is not used now. Blocks for some milliseconds.

    Raises OSError if /proc cannot be read.
    """
    gc.collect()
    malloc_trim()
    for start, length in program_mappings(_SMAPS.read_text()):
        dont_need(start, length)


def program_mappings(smaps: str) -> Iterator[tuple[int, int]]:
    """Yield address and length of each read-only mapping of a file that is as in the file.

    Others have pages that no file has: relocations, breakpoints, data.
    """
    mapping: tuple[int, int] | None = None
    for line in smaps.splitlines():
        if head := _HEAD.match(line):
            start, end = int(head["start"], 16), int(head["end"], 16)
            mapping = (start, end - start) if head["inode"] != "0" else None
        elif mapping is not None and (changed := _ANONYMOUS.match(line)):
            if changed[1] == "0":
                yield mapping
            mapping = None
