from __future__ import annotations

import os
from pathlib import Path

import pytest

from moorage.linux.process_io import written_bytes


def test_what_a_process_writes_is_counted() -> None:
    before = written_bytes(os.getpid())
    assert before is not None
    reading, writing = os.pipe()
    os.write(writing, b"x" * 1000)
    os.close(reading)
    os.close(writing)
    after = written_bytes(os.getpid())
    assert after is not None
    assert after - before >= 1000


def test_what_a_process_has_written_is_in_its_own_line(tmp_path: Path) -> None:
    for pid, text in ((7, "rchar: 5\nwchar: 12\nwrite_bytes: 3\n"), (8, "rchar: 5\n")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "io").write_text(text)
    assert (written_bytes(7, tmp_path), written_bytes(8, tmp_path)) == (12, None)


def test_a_process_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(OSError, match="No such file"):
        written_bytes(2**22 + 1)
