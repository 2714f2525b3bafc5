from __future__ import annotations

import asyncio
import os
import platform
from pathlib import Path

import pytest

from moorage.cluster.host import gather
from moorage.cluster.host.facts import _kernel, _system


def test_a_data_directory_that_is_not_there_yet_is_on_its_parents_disk(tmp_path: Path) -> None:
    host = asyncio.run(gather(tmp_path / "a" / "b c"))
    assert host.disk.directory == tmp_path
    assert host.disk.total_bytes >= host.disk.free_bytes > 0
    assert host.is_root == (os.geteuid() == 0)
    assert (host.disk.overlay is None) == (not host.is_root)
    assert host.memory_bytes > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("release", "version"),
    [("6.12.9-amd64", (6, 12)), ("5.15.167.4-microsoft-standard-WSL2", (5, 15)), ("odd", (0, 0))],
)
def test_kernel_releases(
    monkeypatch: pytest.MonkeyPatch, release: str, version: tuple[int, int]
) -> None:
    monkeypatch.setattr(platform, "release", lambda: release)
    assert _kernel().version == version


@pytest.mark.parametrize(
    ("told", "name", "is_debian_like"),
    [
        ({"ID": "debian", "NAME": "Debian", "PRETTY_NAME": "Debian 13"}, "Debian 13", True),
        ({"ID": "mint", "ID_LIKE": "ubuntu debian", "NAME": "Mint"}, "Mint", True),
        ({"ID": "alpine", "NAME": "Alpine Linux"}, "Alpine Linux", False),
        (None, platform.system(), False),
    ],
)
def test_systems(
    monkeypatch: pytest.MonkeyPatch, told: dict[str, str] | None, name: str, is_debian_like: bool
) -> None:
    def release() -> dict[str, str]:
        if told is None:
            raise OSError("no os-release")
        return told

    monkeypatch.setattr(platform, "freedesktop_os_release", release)
    found = _system()
    assert (found.name, found.is_debian_like) == (name, is_debian_like)
