"""Errors of the kernel arrive as OSError; the calls themselves are tested where they are used."""

from __future__ import annotations

import errno

import pytest

from moorage.linux import libc


def test_flushing_what_is_not_open_is_an_error() -> None:
    with pytest.raises(OSError, match="Bad file descriptor") as failed:
        libc.syncfs(-1)
    assert failed.value.errno == errno.EBADF
