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

from moorage.api.logs import Log
from moorage.linux.libc import dont_need, malloc_trim

_SMAPS = Path("/proc/self/smaps")
_HEAD = re.compile(r"(?P<start>[0-9a-f]+)-(?P<end>[0-9a-f]+) r-[x-]p [0-9a-f]+ \S+ (?P<inode>\d+) ")
_CHANGED = re.compile(r"(?:Anonymous|Swap): +(\d+) kB")
"""Pages that are not as in the file: in memory, or in swap, where `Anonymous` does not count them.

Source: proc(5); the kernel's smaps_pte_entry."""

log = Log(__name__)


def give_back(smaps: Path = _SMAPS) -> None:
    """Give back what is not used now. Blocks for some milliseconds. Does not raise.

    Where the kernel does not show or give back mappings, they stay.
    """
    gc.collect()
    malloc_trim()
    try:
        for start, length in program_mappings(smaps.read_text()):
            dont_need(start, length)
    except OSError as error:
        log.debug("pages of programs stay in memory", reason=error)


def program_mappings(smaps: str) -> Iterator[tuple[int, int]]:
    """Yield address and length of each read-only mapping of a file that is as in the file.

    Others have pages that no file has: relocations, breakpoints, data.
    """
    mapping: tuple[int, int] | None = None
    for line in smaps.splitlines():
        if head := _HEAD.match(line):
            start, end = int(head["start"], 16), int(head["end"], 16)
            mapping = (start, end - start) if head["inode"] != "0" else None
        elif mapping is not None and (changed := _CHANGED.match(line)):
            if changed[1] != "0":
                mapping = None
            elif line.startswith("Swap:"):
                yield mapping
                mapping = None
