"""ELF headers: real ones, made ones, and ones written to break the reader."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.linux.program import Platform, Program, UnfitProgramError, read_program
from tests.cluster.images.programs import AMD64, ARM64, I386, PT_INTERP, S390X, elf


def read(tmp_path: Path, content: bytes) -> Program:
    path = tmp_path / "program"
    path.write_bytes(content)
    return read_program(path, "busybox-static")


@pytest.mark.parametrize(
    ("content", "platform"),
    [
        (elf(AMD64), Platform("amd64")),
        (elf(ARM64), Platform("arm64", "v8")),
        (elf(S390X, order=">"), Platform("s390x")),
        (elf(I386, bits=32), Platform("386")),
        (elf(AMD64, kinds=()), Platform("amd64")),
    ],
)
def test_static_programs(tmp_path: Path, content: bytes, platform: Platform) -> None:
    assert read(tmp_path, content) == Program(content, platform)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (elf(kinds=(1, PT_INTERP, 1)), "needs libraries"),
        (elf(I386, bits=32, kinds=(PT_INTERP,)), "needs libraries"),
        (elf(9999), "not an executable of a supported machine"),
        (elf(AMD64, order=">"), "not an executable of a supported machine"),
        (b"", "not an executable"),
        (b"\x7fELF", "not an executable"),
        (b"#!/bin/sh\necho\n", "not an executable"),
        (elf()[:40], "not an executable"),
        (elf(kinds=(1, 1))[:-40], "not an executable"),
        (elf()[:5] + b"\x07" + elf()[6:], "not an executable"),
        # The table is said to be behind the end of the file, of memory, of numbers.
        (elf()[:32] + struct.pack("<Q", 10**6) + elf()[40:], "not an executable"),
        (elf()[:32] + struct.pack("<Q", 2**63) + elf()[40:], "not an executable"),
        (elf()[:32] + struct.pack("<Q", 2**64 - 1) + elf()[40:], "not an executable"),
    ],
)
def test_unfit_programs(tmp_path: Path, content: bytes, why: str) -> None:
    with pytest.raises(UnfitProgramError, match=why) as caught:
        read(tmp_path, content)
    assert "apt-get install busybox-static" in str(caught.value)


def test_the_interpreter_of_these_tests_needs_libraries_or_none() -> None:
    path = Path(sys.executable).resolve()
    try:
        assert read_program(path, "python3").platform.architecture
    except UnfitProgramError as error:
        assert "needs libraries" in str(error)  # noqa: PT017 - either is right


@pytest.mark.parametrize("name", ["absent", "."])
def test_unreadable_program_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnfitProgramError, match="cannot be read"):
        read_program(tmp_path / name, "x")


@given(st.binary(max_size=200), st.integers(0, 63), st.binary(min_size=1, max_size=16))
def test_no_bytes_break_the_reader(
    tmp_path_factory: pytest.TempPathFactory, tail: bytes, place: int, change: bytes
) -> None:
    directory = tmp_path_factory.getbasetemp()
    whole = elf() + tail
    for content in (b"\x7fELF" + tail, whole[:place] + change + whole[place + len(change) :]):
        try:
            assert read(directory, content).platform
        except UnfitProgramError:
            continue


@pytest.mark.parametrize(
    ("machine", "order", "platform"),
    [
        (62, "<", Platform("amd64")), (183, "<", Platform("arm64", "v8")),
        (3, "<", Platform("386")), (40, "<", Platform("arm", "v7")),
        (243, "<", Platform("riscv64")), (21, "<", Platform("ppc64le")),
        (22, ">", Platform("s390x")), (258, "<", Platform("loong64")),
    ],
)  # fmt: skip
def test_each_machine_is_a_platform(
    tmp_path: Path, machine: int, order: str, platform: Platform
) -> None:
    assert read(tmp_path, elf(machine, order=order)).platform == platform
    other = {"<": ">", ">": "<"}[order]
    with pytest.raises(UnfitProgramError, match="is not an executable of a supported machine"):
        read(tmp_path, elf(machine, order=other))


def test_a_platform_as_an_image_says_it() -> None:
    assert Platform("arm", "v7").to_object() == {
        "architecture": "arm", "os": "linux", "variant": "v7"
    }  # fmt: skip
    assert Platform("amd64").to_object() == {"architecture": "amd64", "os": "linux"}
