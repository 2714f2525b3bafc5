"""What mounts keep, what a crash leaves, and parts of images as volumes."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from moorage.engine.errors import FailedError, NotFoundError
from moorage.engine.images.image import Image
from moorage.engine.images.store import ImagePaths, ImageStore
from moorage.linux.idmap import IdMappings, IdRange
from moorage.linux.mounts import bind, is_mount_point
from moorage.linux.reaper import Reaper
from tests.engine.images.builds import Entry, digest, directory, layer, link, oci_archive
from tests.engine.images.conftest import Registry

ONE, TWO = layer(Entry("one", b"1")), layer(Entry("two", b"2"))


async def loaded(images: ImageStore, place: Path, name: str, *layers: bytes) -> Image:
    (image,) = await images.load(oci_archive(place / "a.tar", [name], layers))
    return image


def layers_on(place: Path) -> set[str]:
    return {f"sha256:{name}" for name in os.listdir(place / "data/layers")}


async def test_layers_stay_while_a_container_uses_them(images: ImageStore, place: Path) -> None:
    image = await loaded(images, place, "localhost/a:1", ONE, TWO)
    await images.mount_rootfs("c1", image, place / "root")
    await images.remove("localhost/a:1")
    assert images.all() == ()
    assert (place / "root/one").read_bytes() == b"1"
    assert layers_on(place) == {digest(ONE), digest(TWO)}
    await images.unmount_rootfs("c1", place / "root")
    assert layers_on(place) == {digest(ONE), digest(TWO)}
    await images.remove_rootfs("c1")
    assert layers_on(place) == set()
    with pytest.raises(NotFoundError, match="container c1"):
        await images.writable_usage("c1")


async def test_layers_stay_while_a_volume_shows_them(images: ImageStore, place: Path) -> None:
    image = await loaded(images, place, "localhost/a:1", ONE)
    await images.mount_image(image, place / "volume")
    await images.mount_image(image, place / "volume")
    await images.remove(image.id)
    assert (place / "volume/one").read_bytes() == b"1"
    await images.unmount_image(place / "volume")
    assert layers_on(place) == set()
    await images.unmount_image(place / "volume")


async def test_a_new_life_finds_images_mounts_and_what_keeps_layers(
    paths: ImagePaths, place: Path
) -> None:
    async with ImageStore(paths) as images:
        kept = await loaded(images, place, "localhost/kept:1", ONE)
        gone = await loaded(images, place, "localhost/gone:1", TWO)
        await images.mount_rootfs("c1", gone, place / "root1")
        await images.mount_rootfs("c2", kept, place / "root2")
        await images.mount_image(gone, place / "volume")
        await images.remove(gone.id)
    async with ImageStore(paths) as images:
        assert images.all() == (kept,)
        assert layers_on(place) == {digest(ONE), digest(TWO)}
        await images.mount_rootfs("c1", gone, place / "root1")
        await images.recover({"c1"})
        assert not is_mount_point(place / "root2")
        assert os.listdir(place / "data/containers") == ["c1"]
        assert (place / "root1/two").exists()
        await images.recover(())
        assert layers_on(place) == {digest(ONE), digest(TWO)}
        await images.unmount_image(place / "volume")
        assert layers_on(place) == {digest(ONE)}


async def test_what_was_half_made_goes_at_the_start(paths: ImagePaths, place: Path) -> None:
    async with ImageStore(paths) as images:
        image = await loaded(images, place, "localhost/a:1", ONE)
    half = {
        "data/layers/.new-0123": "tree/file",
        "data/layers/.old-0123": "tree/file",
        "data/ingest/0123": "blobs/sha256/x",
        "data/containers/.old-0123": "upper/x",
        "data/containers/c9": "upper/x",
        "data/volumes/0123": "empty/x",
        "data/configurations": "f" * 64,
    }
    for name, file in half.items():
        left = place / name / file
        left.parent.mkdir(parents=True, exist_ok=True)
        left.touch()
    (place / "run/0123.auth.json").touch()
    async with ImageStore(paths) as images:
        assert images.all() == (image,)
        for name in ("layers/.new-0123", "layers/.old-0123", "ingest/0123", "containers/.old-0123",
                     "containers/c9", "volumes/0123", f"configurations/{'f' * 64}"):  # fmt: skip
            assert not (place / "data" / name).exists(), name
        assert not (place / "run/0123.auth.json").exists()


async def test_disk_is_accounted_for(images: ImageStore, place: Path) -> None:
    before = await images.usage()
    assert (before.images.used_bytes, before.containers.used_bytes) == (0, 0)
    image = await loaded(images, place, "localhost/a:1", layer(Entry("f", os.urandom(200_000))))
    await images.mount_rootfs("c1", image, place / "root")
    (place / "root/written").write_bytes(bytes(300_000))
    after = await images.usage()
    assert 200_000 <= after.images.used_bytes < 300_000
    assert 300_000 <= after.containers.used_bytes < 400_000
    assert after.containers.inodes >= 2
    assert after.images.timestamp_ns > before.images.timestamp_ns
    assert image.size_bytes >= 200_000


PARTS = layer(
    directory("etc"), Entry("etc/file", b"1"), link("way", "etc"), link("out",
    "/../../../../../tmp"), link("loop", "loop"), directory("deep"), directory("deep/er"),
    Entry("deep/er/x", b"2"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("sub_path", "expected"),
    [("etc", ["file"]), ("/etc/", ["file"]), ("way", ["file"]), ("deep/er", ["x"]), ("", None)],
)
async def test_a_part_of_an_image_is_a_volume(
    images: ImageStore, place: Path, sub_path: str, expected: list[str] | None
) -> None:
    image = await loaded(images, place, "localhost/a:1", PARTS)
    await images.mount_image(image, place / "volume", sub_path=sub_path)
    assert sorted(os.listdir(place / "volume")) == (
        expected or ["deep", "etc", "loop", "out", "way"]
    )
    with pytest.raises(OSError, match="Read-only"):
        (place / "volume/new").touch()
    assert list((place / "run/stages").iterdir()) == []


async def test_a_file_of_an_image_is_a_volume(images: ImageStore, place: Path) -> None:
    image = await loaded(images, place, "localhost/a:1", PARTS)
    await images.mount_image(image, place / "volume", sub_path="etc/file")
    assert (place / "volume").read_bytes() == b"1"


@pytest.mark.parametrize("sub_path", ["absent", "etc/file/x", "loop", "out", "../../../../tmp"])
async def test_a_part_that_is_not_in_the_image_is_refused(
    images: ImageStore, place: Path, sub_path: str
) -> None:
    image = await loaded(images, place, "localhost/a:1", PARTS)
    with pytest.raises(FailedError, match=r"^ImageVolumeMountFailed.*localhost/a:1"):
        await images.mount_image(image, place / "volume", sub_path=sub_path)
    assert not is_mount_point(place / "volume")
    assert list((place / "run/stages").iterdir()) == []
    assert list((place / "data/volumes").iterdir()) == []


async def test_failed_root_mount_leaves_nothing(images: ImageStore, place: Path) -> None:
    image = await loaded(images, place, "localhost/a:1", ONE)
    (place / "file").touch()
    with pytest.raises(FailedError, match="container c1: root filesystem at"):
        await images.mount_rootfs("c1", image, place / "file/root")
    assert list((place / "data/containers").iterdir()) == []


async def test_a_mount_taken_back_can_be_cleaned_up_at_once(
    images: ImageStore, place: Path
) -> None:
    image = await loaded(images, place, "localhost/a:1", ONE)
    for number in range(20):
        target = place / f"root{number}"
        mount = asyncio.create_task(images.mount_rootfs(f"c{number}", image, target))
        await asyncio.wait((mount,), timeout=number / 10_000)
        mount.cancel()
        await asyncio.wait((mount,))
        await images.unmount_rootfs(f"c{number}", target)
        await images.remove_rootfs(f"c{number}")
        assert not is_mount_point(target)
    assert list((place / "data/containers").iterdir()) == []


async def test_images_are_pulled_and_mounted_beside_a_reaper(
    images: ImageStore, registry: Registry, place: Path
) -> None:
    mappings = IdMappings((IdRange(0, 100_000, 65_536),), (IdRange(0, 100_000, 65_536),))
    archive = oci_archive(place / "a.tar", ["localhost/a:1"], [ONE])
    async with Reaper():
        image = await images.pull(registry.push(archive, "reaped:1"))
        await images.load(archive)
        await images.mount_rootfs("c1", image, place / "root", id_mappings=mappings)
    assert (place / "root/one").stat().st_uid == 100_000


async def test_stages_left_mounted_are_cleared_and_layers_stay(
    paths: ImagePaths, place: Path
) -> None:
    """Killed between the mount of a moment and its unmount."""
    async with ImageStore(paths) as images:
        image = await loaded(images, place, "localhost/a:1", ONE)
        stages = place / "run/stages"
        (stages / "idmap-x/0").mkdir(parents=True)
        bind(place / "data/layers", stages / "idmap-x/0")
        (stages / "volume").mkdir()
        await images.mount_image(image, stages / "volume")
    async with ImageStore(paths) as images:
        assert list(stages.iterdir()) == []
        await images.mount_rootfs("c1", image, place / "root")
        assert (place / "root/one").read_bytes() == b"1"
