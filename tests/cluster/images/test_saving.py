"""The images made of this machine's programs are saved without an engine, byte for byte."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from moorage.cluster.images import BUSYBOX, PAUSE
from moorage.cluster.images.saving import SaveError, save_archive
from moorage.cluster.layout import Layout


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    if shutil.which("busybox") is None:
        pytest.skip("busybox is not installed")
    return Layout(tmp_path / "data")


def names_in(path: Path) -> list[str]:
    with tarfile.open(path) as archive:
        index = json.load(archive.extractfile("index.json"))  # type: ignore[arg-type]
    return [
        manifest["annotations"]["org.opencontainers.image.ref.name"]
        for manifest in index["manifests"]
    ]


async def test_by_name_and_the_same_each_time(layout: Layout, tmp_path: Path) -> None:
    one, two = tmp_path / "one.tar", tmp_path / "two.tar"
    saved = await save_archive(layout, "", [BUSYBOX, PAUSE], one, overwrites=False)
    assert [(image.name, image.is_exact) for image in saved] == [(BUSYBOX, True), (PAUSE, True)]
    assert names_in(one) == [BUSYBOX, PAUSE]
    await save_archive(layout, "", [BUSYBOX, PAUSE, BUSYBOX], two, overwrites=False)
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (
            "moorage.local/none:1",
            f"not one of those built .*{BUSYBOX}",
        ),
        ("busybox", "own engine while it runs"),
        ("No Name", "invalid reference format"),
    ],
)
async def test_others_are_refused_and_nothing_is_written(
    layout: Layout, tmp_path: Path, name: str, why: str
) -> None:
    with pytest.raises(SaveError, match=why):
        await save_archive(layout, "", [BUSYBOX, name], tmp_path / "out.tar", overwrites=False)
    assert _names(tmp_path) == []


async def test_a_file_that_exists_is_replaced_only_when_asked_to(
    layout: Layout, tmp_path: Path
) -> None:
    target = tmp_path / "out.tar"
    target.write_text("mine")
    with pytest.raises(SaveError, match=r"out\.tar exists: .*--force"):
        await save_archive(layout, "", [BUSYBOX], target, overwrites=False)
    assert target.read_text() == "mine"
    with pytest.raises(SaveError, match="not one of those"):
        await save_archive(layout, "", ["x"], target, overwrites=True)
    assert target.read_text() == "mine"
    await save_archive(layout, "", [BUSYBOX], target, overwrites=True)
    assert names_in(target) == [BUSYBOX]


async def test_unreachable_engine_is_an_error(layout: Layout, tmp_path: Path) -> None:
    layout.root.mkdir()
    with pytest.raises(SaveError):
        await save_archive(
            layout, f"unix://{tmp_path}/none.sock", [BUSYBOX], tmp_path / "o.tar", overwrites=False
        )
    assert _names(layout.images) == []


def _names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]
