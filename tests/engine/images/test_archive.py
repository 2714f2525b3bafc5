"""Archives: ours, docker's, packed ones, and what is none."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from moorage.cluster.images import Image as BuiltImage
from moorage.cluster.images import write_archive
from moorage.engine.errors import FailedError
from moorage.engine.images.store import ImageStore
from moorage.linux.program import Platform
from tests.engine.images.builds import Entry, digest, docker_archive, layer, oci_archive

DIGEST = b"sha256:" + b"a" * 64
ONE, TWO = layer(Entry("one", b"1")), layer(Entry("two", b"2"))


async def test_all_images_of_our_own_archives_are_loaded(images: ImageStore, place: Path) -> None:
    built = [
        BuiltImage(name=f"registry.example/app:{tag}", platform=Platform("amd64"), layers=layers,
                   entrypoint=("/app",), environment={"A": "b"})
        for tag, layers in (("1", (ONE,)), ("2", (ONE, TWO)))
    ]  # fmt: skip
    (place / "a.tar").write_bytes(write_archive(built))
    loaded = await images.load(place / "a.tar")
    assert [image.id for image in loaded] == [image.id for image in built]
    assert [image.tags for image in loaded] == [(image.name,) for image in built]
    assert loaded[1].configuration.env == ("A=b",)
    assert loaded[1].layers == (digest(ONE), digest(TWO))
    assert images.find("registry.example/app:2") == loaded[1]


async def test_one_image_under_two_names_is_one_image(images: ImageStore, place: Path) -> None:
    archive = oci_archive(place / "a.tar", ["localhost/a:1", "localhost/b:1"], [ONE])
    await images.load(archive)
    (image,) = images.all()
    assert image.tags == ("localhost/a:1", "localhost/b:1")
    assert await images.load_names(archive) == ("localhost/a:1", "localhost/b:1")


async def test_what_docker_saved_is_loaded(images: ImageStore, place: Path) -> None:
    archive = docker_archive(place / "a.tar", ["app:1", "app:1", "team/app:2"], [ONE, TWO, ONE])
    (image,) = await images.load(archive)
    assert image.tags == ("docker.io/library/app:1", "docker.io/team/app:2")
    assert image.digests == ()
    assert image.layers == (digest(ONE), digest(TWO), digest(ONE))
    await images.mount_rootfs("c1", image, place / "root")
    assert sorted(path.name for path in (place / "root").iterdir()) == ["one", "two"]


async def test_a_packed_archive_is_loaded(images: ImageStore, place: Path) -> None:
    archive = oci_archive(place / "a.tar", ["localhost/a:1"], [ONE])
    (place / "a.tgz").write_bytes(gzip.compress(archive.read_bytes()))
    (image,) = await images.load(place / "a.tgz")
    assert image.layers == (digest(ONE),)
    assert list((place / "data/ingest").iterdir()) == []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "cannot be read|neither"),
        (b"no archive at all" * 100, "cannot be read"),
        (b"\x1f\x8bno gzip", "cannot be decompressed"),
        (layer(Entry("file", b"x")), "neither index.json nor manifest.json"),
        (layer(Entry("index.json", b"{}")), "cannot be read"),
        (layer(Entry("manifest.json", b'[{"Config":"c","Layers":[]}]')), "c is missing"),
        (
            layer(Entry("index.json", b'{"manifests":[{"digest":"%s","size":1}]}' % DIGEST)),
            "is missing",
        ),
    ],
)  # fmt: skip
async def test_invalid_archive_is_rejected(
    images: ImageStore, place: Path, content: bytes, why: str
) -> None:
    (place / "a.tar").write_bytes(content)
    with pytest.raises(FailedError, match=why) as caught:
        await images.load(place / "a.tar")
    assert "a.tar" in str(caught.value)
    assert list((place / "data/ingest").iterdir()) == []


async def test_an_archive_that_is_not_there_is_named(images: ImageStore, place: Path) -> None:
    with pytest.raises(FailedError, match=r"absent\.tar"):
        await images.load(place / "absent.tar")
