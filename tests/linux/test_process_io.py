from __future__ import annotations

import os

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


def test_a_process_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(OSError, match="No such file"):
        written_bytes(2**22 + 1)
