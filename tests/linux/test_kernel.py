from __future__ import annotations

from pathlib import Path

import pytest

from moorage.linux import host as kernel
from moorage.linux.host import can_open_kvm, kernel_version, max_pids
from tests.descriptors import open_descriptors


@pytest.mark.parametrize(
    ("release", "expected"),
    [("6.18.5", (6, 18)), ("5.10.0-28-amd64", (5, 10)), ("4.4", (4, 4)), ("next", (0, 0))],
)
def test_kernels(release: str, expected: tuple[int, int]) -> None:
    assert kernel_version(release) == expected


def test_machines_can_be_started_where_the_device_may_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert str(kernel._KVM) == "/dev/kvm"
    monkeypatch.setattr(kernel, "_KVM", tmp_path / "kvm")
    assert not can_open_kvm()
    (tmp_path / "kvm").touch()
    before = open_descriptors()
    assert can_open_kvm()
    assert open_descriptors() == before


@pytest.mark.parametrize(("limits", "wanted"), [(("7\n", "9\n"), 7), (("9", "8"), 8)])
def test_the_lower_limit_of_processes_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: tuple[str, str], wanted: int
) -> None:
    assert [str(limit) for limit in kernel._TASK_LIMITS] == [
        "/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"
    ]  # fmt: skip
    files = [tmp_path / "a", tmp_path / "b"]
    for file, text in zip(files, limits, strict=True):
        file.write_text(text)
    monkeypatch.setattr(kernel, "_TASK_LIMITS", files)
    assert max_pids() == wanted
