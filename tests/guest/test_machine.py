"""The guests' command lines, and when KVM is used. Needs no guest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guest import user_mode
from tests.guest.machine import unusable
from tests.guest.qemu import CPUS, MEMORY_MIB, command, has_kvm


@pytest.mark.parametrize(
    ("flags", "has_device", "uses_kvm"),
    [
        ("fpu vmx sse", True, True),
        ("fpu svm sse", True, True),
        ("fpu vmx", False, False),
        # A KVM that emulates an unmodified kernel, and a word that only begins like the flag.
        ("fpu hypervisor", True, False),
        ("fpu svm_lock", True, False),
    ],
)
def test_kvm_is_used_with_the_processors_virtualisation(
    flags: str, has_device: bool, uses_kvm: bool
) -> None:
    text = f"model name\t: svm vmx\nflags\t\t: {flags}\n"
    assert has_kvm(text, has_device=has_device) == uses_kvm


@pytest.mark.parametrize("uses_kvm", [False, True])
def test_the_guest_is_small_and_reaches_no_network(uses_kvm: bool) -> None:
    argv = command(Path("/g"), 1234, uses_kvm=uses_kvm)
    assert "user,model=virtio-net-pci,restrict=on,hostfwd=tcp:127.0.0.1:1234-:22" in argv
    assert (argv[argv.index("-m") + 1], argv[argv.index("-smp") + 1]) == (
        str(MEMORY_MIB),
        str(CPUS),
    )
    assert any("snapshot=on" in word for word in argv)
    assert ("kvm" in argv) == uses_kvm


def test_a_user_mode_guest_changes_no_disk() -> None:
    argv = user_mode.command(Path("/g"), Path("/p"), Path("/p/files"))
    # A file of changes before the disk makes the disk one that is only read.
    assert "ubd0=/p/changes,/g/disk.img" in argv
    assert "ubd1r=/p/files" in argv


@pytest.mark.parametrize("files", [None, Path("/p/files")])
def test_files_are_a_second_disk_that_is_only_read(files: Path | None) -> None:
    argv = command(Path("/g"), 1, files, uses_kvm=False)
    drives = [word for word in argv if word.startswith("file=")]
    assert len(drives) == (1 if files is None else 2)
    assert files is None or "readonly=on" in drives[1]


def test_a_directory_without_a_guest_says_what_to_do(tmp_path: Path) -> None:
    assert unusable(tmp_path).endswith("holds no prepared guest: make guest")
    (tmp_path / "prepared").write_text("of an older lock")
    assert "was prepared from other packages" in unusable(tmp_path)
