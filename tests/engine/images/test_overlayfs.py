"""overlayfs snapshotter: idmapped mounts of lower directories."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from moorage.engine.images.snapshotter import mapped_layers
from moorage.linux.idmap import IdMappings, IdRange

MAPPINGS = IdMappings((IdRange(0, 100000, 65536),), (IdRange(0, 100000, 65536),))


class Mounts(dict[Path, Path]):
    """The present idmapped mounts: mount point → source."""

    def mount(self, source: Path, point: Path, namespace: int) -> None:
        assert namespace == 7
        self[point] = source

    def layers(
        self, lowers: Sequence[Path], mappings: IdMappings | None, scratch: Path
    ) -> AbstractContextManager[list[Path]]:
        return mapped_layers(
            lowers, mappings, scratch, lambda _: nullcontext(7), self.mount, self.pop
        )


@pytest.fixture
def mounted() -> Mounts:
    return Mounts()


def test_layers_of_one_directory_share_an_idmapped_mount(tmp_path: Path, mounted: Mounts) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    lowers = [Path("/layers/a/tree"), Path("/layers/b/tree"), Path("/empty/c/tree")]
    with mounted.layers(lowers, MAPPINGS, scratch) as shown:
        assert sorted(mounted.values()) == [Path("/empty"), Path("/layers")]
        points = {source: point for point, source in mounted.items()}
        assert shown == [
            points[Path("/layers")] / "a/tree",
            points[Path("/layers")] / "b/tree",
            points[Path("/empty")] / "c/tree",
        ]
    assert mounted == {}
    assert list(scratch.iterdir()) == []


def test_layers_without_mappings_are_used_as_they_are(tmp_path: Path, mounted: Mounts) -> None:
    with mounted.layers([Path("/layers/a/tree")], None, tmp_path) as shown:
        assert shown == [Path("/layers/a/tree")]
        assert mounted == {}
