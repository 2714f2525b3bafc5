"""Errors of the kernel arrive as OSError; the calls themselves are tested where they are used."""

from __future__ import annotations

import ctypes
import errno
from typing import Any

import pytest

from moorage.linux import libc


def test_flushing_what_is_not_open_is_an_error() -> None:
    with pytest.raises(OSError, match="Bad file descriptor") as failed:
        libc.syncfs(-1)
    assert failed.value.errno == errno.EBADF


def test_numbers_are_passed_in_the_width_of_a_register(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[Any] = []

    class FakeLibrary:
        def syscall(self, *arguments: Any) -> int:
            passed.extend(arguments)
            return 3

    monkeypatch.setattr(libc, "_libc", FakeLibrary())
    assert libc.syscall(442, "path", -1, b"path", 1 << 40) == 3
    number, descriptor, text, flags = passed
    assert [argument.value for argument in (number, descriptor, flags)] == [442, -1, 1 << 40]
    assert {type(argument) for argument in (number, descriptor, flags)} == {ctypes.c_long}
    assert text == b"path"
