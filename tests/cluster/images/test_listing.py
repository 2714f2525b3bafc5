"""Images of an engine: listed, removed and loaded by calls to one behind a real socket."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.cluster.images.listing import ImageError, ListedImage, list_images, remove_image
from moorage.cluster.images.loading import LoadError, load_archive
from moorage.wire.cri import pb
from tests.cli.moor import FakeEngine, serving

IMAGES = [
    pb.Image(id="sha256:1", repo_tags=["b:1", "b:2"], repo_digests=["b@1"], size=7, pinned=True),
    pb.Image(id="sha256:2", repo_digests=["a@2"]),
    pb.Image(id="sha256:0"),
]


async def test_they_are_listed_by_their_first_name(tmp_path: Path) -> None:
    with serving(FakeEngine(images=IMAGES), tmp_path / "e.sock") as endpoint:
        images = await list_images(endpoint)
    assert images == (
        ListedImage("sha256:2", (), ("a@2",), 0, False),
        ListedImage("sha256:1", ("b:1", "b:2"), ("b@1",), 7, True),
        ListedImage("sha256:0", (), (), 0, False),
    )


async def test_one_is_removed_with_all_its_names(tmp_path: Path) -> None:
    engine = FakeEngine(images=IMAGES)
    with serving(engine, tmp_path / "e.sock") as endpoint:
        assert await remove_image(endpoint, "b:2") == ("b:1", "b:2")
        assert await remove_image(endpoint, "sha256:0") == ("sha256:0",)
        with pytest.raises(ImageError, match="there is no image c; `moor image list` lists them"):
            await remove_image(endpoint, "c")
    assert engine.removed == ["b:2", "sha256:0"]


async def test_an_archive_is_loaded_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeEngine(loads=["a:1"])
    monkeypatch.chdir(tmp_path)
    with serving(engine, tmp_path / "e.sock") as endpoint:
        assert await load_archive(endpoint, Path("x.tar")) == ("a:1",)
        assert engine.loaded == [f"{tmp_path}/x.tar"]
        engine.loads = []
        with pytest.raises(LoadError) as failed:
            await load_archive(endpoint, Path("x.tar"))
        assert str(failed.value) == "no archive of images"
        engine.refusal = "x.tar has neither index.json nor manifest.json"
        with pytest.raises(
            LoadError, match=r"manifest\.json; .* imported with `moor image import`"
        ):
            await load_archive(endpoint, Path("x.tar"))


async def test_unreachable_engine_is_an_error(tmp_path: Path) -> None:
    endpoint = f"unix://{tmp_path}/none.sock"
    with pytest.raises(ImageError, match="images cannot be listed: "):
        await list_images(endpoint)
    with pytest.raises(ImageError, match="image x cannot be removed: "):
        await remove_image(endpoint, "x")
    with pytest.raises(LoadError):
        await load_archive(endpoint, tmp_path)
