from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from moorage.linux.process_memory import resident_bytes


def test_resident_set_is_what_the_kernel_reports() -> None:
    """`VmRSS` of the same process; a fifth of difference is what it allocates in between."""
    match = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    assert resident_bytes(os.getpid()) == pytest.approx(int(match[1]) * 1024, rel=0.2)


def test_there_is_none_of_an_absent_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resident_bytes(sys.maxsize) is None

    def ended(_: Path) -> str:
        raise ProcessLookupError

    monkeypatch.setattr(Path, "read_text", ended)
    assert resident_bytes(os.getpid()) is None
