"""overlayfs snapshotter: idmapped mounts of lower directories."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moorage.engine.images import snapshotter as overlayfs
from moorage.linux.idmap import IdMappings, IdRange

MAPPINGS = IdMappings((IdRange(0, 100000, 65536),), (IdRange(0, 100000, 65536),))


@pytest.fixture
def mounted(monkeypatch: pytest.MonkeyPatch) -> dict[Path, Path]:
    """The present idmapped mounts: mount point → source."""
    mounts: dict[Path, Path] = {}

    @contextmanager
    def fake_namespace(_: IdMappings) -> Iterator[int]:
        yield 7

    def mount_idmapped(source: Path, point: Path, namespace: int) -> None:
        assert namespace == 7
        mounts[point] = source

    monkeypatch.setattr(overlayfs, "user_namespace", fake_namespace)
    monkeypatch.setattr(overlayfs, "mount_idmapped", mount_idmapped)
    monkeypatch.setattr(overlayfs, "unmount", mounts.pop)
    return mounts


def test_layers_of_one_directory_share_an_idmapped_mount(
    tmp_path: Path, mounted: dict[Path, Path]
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    lowers = [Path("/layers/a/tree"), Path("/layers/b/tree"), Path("/empty/c/tree")]
    with overlayfs.mapped_layers(lowers, MAPPINGS, scratch) as shown:
        assert sorted(mounted.values()) == [Path("/empty"), Path("/layers")]
        points = {source: point for point, source in mounted.items()}
        assert shown == [
            points[Path("/layers")] / "a/tree",
            points[Path("/layers")] / "b/tree",
            points[Path("/empty")] / "c/tree",
        ]
    assert mounted == {}
    assert list(scratch.iterdir()) == []


def test_layers_without_mappings_are_used_as_they_are(
    tmp_path: Path, mounted: dict[Path, Path]
) -> None:
    with overlayfs.mapped_layers([Path("/layers/a/tree")], None, tmp_path) as shown:
        assert shown == [Path("/layers/a/tree")]
        assert mounted == {}
