"""Idle memory: only pages that are as in their file are given back, and the program goes on."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from moorage.linux.idle_memory import give_back, program_mappings

_PROGRAM = """
import re, ssl
from moorage.linux.idle_memory import give_back
def resident():
    return int(re.search(r"RssFile:\\s+(\\d+)", open("/proc/self/status").read())[1])
before = resident()
give_back()
after = resident()
ssl.create_default_context()
print(before, after)
"""


@pytest.mark.parametrize(
    ("permissions", "inode", "anonymous_kib", "swapped_kib", "is_meant"),
    [
        ("r-xp", 11, 0, 0, True),
        ("r-xp", 11, 4, 0, False),
        ("r--p", 11, 0, 0, True),
        ("r--p", 11, 4, 0, False),
        # Relocations that the kernel has moved to swap.
        ("r--p", 11, 0, 4, False),
        ("rw-p", 11, 0, 0, False),
        ("rwxp", 11, 0, 0, False),
        ("r-xs", 11, 0, 0, False),
        ("r-xp", 0, 0, 0, False),
    ],
)
def test_only_programs_as_in_their_file_are_meant(
    permissions: str, inode: int, anonymous_kib: int, swapped_kib: int, is_meant: bool
) -> None:
    smaps = f"""\
55d0c0001000-55d0c0003000 {permissions} 00001000 fe:00 {inode}     /usr/lib/a library.so
Size:                  8 kB
Rss:                   8 kB
Private_Dirty:         0 kB
Anonymous:             {anonymous_kib} kB
Swap:                  {swapped_kib} kB
SwapPss:               0 kB
VmFlags: rd ex mr mw me
7f0000000000-7f0000001000 rw-p 00000000 00:00 0                          [heap]
Anonymous:             0 kB
Swap:                  0 kB
"""
    expected = [(0x55D0C0001000, 0x2000)] if is_meant else []
    assert list(program_mappings(smaps)) == expected


def test_a_program_goes_on_with_fewer_pages() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True
    )
    match = re.fullmatch(r"(\d+) (\d+)\n", ran.stdout)
    assert match
    assert int(match[2]) < int(match[1])


def test_a_kernel_that_shows_no_mappings_ends_no_program(tmp_path: Path) -> None:
    give_back(tmp_path / "absent")


def test_a_mapping_that_has_gone_ends_no_program(tmp_path: Path) -> None:
    smaps = tmp_path / "smaps"
    smaps.write_text("1000-2000 r-xp 00000000 fe:00 11  /gone.so\nAnonymous: 0 kB\nSwap: 0 kB\n")
    give_back(smaps)
