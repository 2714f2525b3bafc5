"""Numbers of system calls, against libseccomp where it is installed and knows the call."""

from __future__ import annotations

import ctypes
from ctypes.util import find_library

import pytest

from moorage.runtimes.probing.programs import script as numbers

_LIBRARY = find_library("seccomp")
_ARCHITECTURES = {"amd64": 0xC000003E, "arm64": 0xC00000B7}
"""`AUDIT_ARCH_X86_64` and `AUDIT_ARCH_AARCH64`. Source: `linux/audit.h`."""


@pytest.mark.skipif(_LIBRARY is None, reason="libseccomp is not installed")
@pytest.mark.parametrize("architecture", _ARCHITECTURES)
def test_system_calls_have_the_numbers_of_libseccomp(architecture: str) -> None:
    resolve = ctypes.CDLL(str(_LIBRARY)).seccomp_syscall_resolve_name_arch
    compared = 0
    for name in numbers.NAMES:
        expected = resolve(_ARCHITECTURES[architecture], name.encode())
        number = numbers.number_of(name, architecture)
        # Calls that are newer than the library, and those that an architecture lacks, are negative.
        if expected >= 0:
            assert (name, number) == (name, expected)
            compared += 1
    assert compared > 60


def test_what_is_not_in_the_table_has_no_number() -> None:
    with pytest.raises(KeyError):
        numbers.number_of("absent", "amd64")
    with pytest.raises(ValueError, match="not in tuple"):
        numbers.number_of("getpid", "riscv64")
