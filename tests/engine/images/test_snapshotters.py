"""One suite that each snapshotter passes: layers shown as one tree, by real mounts."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage.engine.images import snapshotter as native
from moorage.engine.images.image import Image
from moorage.engine.images.snapshotter import options
from moorage.engine.images.store import NATIVE, OVERLAYFS, ImagePaths, ImageStore
from moorage.linux import descent
from moorage.linux.idmap import IdMappings, IdRange
from moorage.linux.mounts import is_mount_point
from tests.engine.images.builds import Entry, directory, hard_link, layer, link, oci_archive

USERS = IdMappings((IdRange(0, 100_000, 65_536),), (IdRange(0, 200_000, 65_536),))


@pytest.fixture(params=[OVERLAYFS, NATIVE])
async def images(request: pytest.FixtureRequest, paths: ImagePaths) -> AsyncIterator[ImageStore]:
    async with ImageStore(paths, snapshotter=request.param) as store:
        yield store


async def loaded(images: ImageStore, place: Path, *layers: bytes) -> Image:
    (image,) = await images.load(oci_archive(place / "a.tar", ["localhost/a:1"], layers))
    return image


async def test_upper_layers_hide_and_change_what_is_below(images: ImageStore, place: Path) -> None:
    below = layer(
        directory("etc", 0o750, owner=(5, 6)), Entry("etc/kept", b"1"), Entry("etc/gone", b"2"),
        directory("old"), Entry("old/file", b"3"), directory("remade"), Entry("remade/file", b"4"),
        Entry("changed", b"5"), directory("tree"), Entry("tree/leaf", b"6"),
    )  # fmt: skip
    above = layer(
        Entry("etc/.wh.gone"), directory("old"), Entry("old/.wh..wh..opq"), Entry("old/new", b"7"),
        Entry(".wh.remade"), directory("remade"), Entry("changed", b"8"), Entry(".wh.tree"),
        Entry("tree", b"9"), directory("etc", 0o711),
    )  # fmt: skip
    image = await loaded(images, place, below, above)
    root = place / "root"
    await images.mount_rootfs("c1", image, root)
    shown = {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }
    assert shown == {"etc/kept": b"1", "old/new": b"7", "changed": b"8", "tree": b"9"}
    assert stat.S_IMODE((root / "etc").stat().st_mode) == 0o711
    assert list((root / "remade").iterdir()) == []


async def test_containers_write_for_themselves(images: ImageStore, place: Path) -> None:
    image = await loaded(images, place, layer(Entry("file", b"image"), link("way", "file")))
    one, two = place / "one", place / "two"
    await images.mount_rootfs("c1", image, one)
    await images.mount_rootfs("c2", image, two)
    (one / "file").write_bytes(b"changed")
    (one / "new").write_bytes(bytes(100_000))
    assert (two / "file").read_bytes() == b"image"
    assert sorted(os.listdir(two)) == ["file", "way"]
    taken, inodes = await images.writable_usage("c1")
    assert taken >= 100_000
    assert inodes >= 3
    await images.unmount_rootfs("c1", one)
    assert list(one.iterdir()) == []
    await images.mount_rootfs("c1", image, one)
    assert (one / "file").read_bytes() == b"changed"


async def test_declared_volumes_are_copies_that_count_and_go_with_their_container(
    images: ImageStore, place: Path
) -> None:
    image = await loaded(
        images, place,
        layer(directory("data", 0o1770, owner=(1, 2)), Entry("data/file", b"old")),
        layer(
            directory("data", 0o1770, owner=(1, 2)), Entry("data/file", b"new", owner=(3, 4)),
            Entry("data/large", os.urandom(1 << 20)),
        ),
    )  # fmt: skip
    root = place / "root"
    await images.mount_rootfs("c1", image, root, id_mappings=USERS)
    before, _ = await images.writable_usage("c1")
    contents = [root / "data", root / "not-there"]
    filled, empty = await images.create_volumes("c1", contents, id_mappings=USERS)
    assert (filled / "file").read_bytes() == b"new"
    owners = [(path.stat().st_uid, path.stat().st_gid) for path in (filled, filled / "file", empty)]
    assert owners == [(100_001, 200_002), (100_003, 200_004), (100_000, 200_000)]
    assert [stat.S_IMODE(path.stat().st_mode) for path in (filled, empty)] == [0o1770, 0o755]
    after, _ = await images.writable_usage("c1")
    assert after - before >= 1 << 20
    assert (await images.usage()).containers.used_bytes == after
    await images.unmount_rootfs("c1", root)
    await images.remove_rootfs("c1")
    assert not filled.parent.exists()


async def test_volumes_below_each_other_take_the_images_size_once(
    images: ImageStore, place: Path
) -> None:
    depth, size = 8, 1 << 20
    names = ["/".join(["d"] * count) for count in range(1, depth + 1)]
    content = [directory(name) for name in names]
    image = await loaded(
        images, place, layer(*content, Entry(f"{names[-1]}/large", os.urandom(size)))
    )
    root = place / "root"
    await images.mount_rootfs("c1", image, root)
    before, _ = await images.writable_usage("c1")
    volumes = await images.create_volumes("c1", [root / name for name in names])
    after, _ = await images.writable_usage("c1")
    assert size <= after - before < 2 * size
    assert os.listdir(volumes[-1]) == ["large"]
    assert [os.listdir(volume) for volume in volumes[:-1]] == [["d"]] * (depth - 1)
    await images.unmount_rootfs("c1", root)
    await images.remove_rootfs("c1")


async def test_mounting_twice_mounts_once(images: ImageStore, place: Path) -> None:
    image = await loaded(images, place, layer(Entry("file")))
    for _ in range(2):
        await images.mount_rootfs("c1", image, place / "root")
    await images.unmount_rootfs("c1", place / "root")
    assert not is_mount_point(place / "root")
    await images.unmount_rootfs("c1", place / "root")
    await images.remove_rootfs("c1")
    await images.remove_rootfs("c1")
    assert list((place / "data/containers").iterdir()) == []


async def test_hard_links_attributes_and_special_files_show(
    images: ImageStore, place: Path
) -> None:
    content = layer(
        directory("./", 0o711, owner=(8, 9)), Entry("a", b"x", mode=0o4751, owner=(7, 8)),
        hard_link("b", "a"), Entry("null", kind=b"3", device=(1, 3)),
        Entry("noted", xattrs={"user.note": "n"}),
    )  # fmt: skip
    image = await loaded(images, place, content)
    root = place / "root"
    await images.mount_rootfs("c1", image, root)
    assert (root / "a").stat().st_ino == (root / "b").stat().st_ino
    assert stat.S_IMODE((root / "a").stat().st_mode) == 0o4751
    assert (root / "a").stat().st_mtime == 1_000_000_000
    assert (root / "null").stat().st_rdev == os.makedev(1, 3)
    assert os.getxattr(root / "noted", "user.note") == b"n"
    assert (root.stat().st_uid, root.stat().st_gid) == (8, 9)
    assert stat.S_IMODE(root.stat().st_mode) == 0o711


async def test_many_layers_are_one_tree(
    request: pytest.FixtureRequest, images: ImageStore, place: Path
) -> None:
    # The most that one overlay takes; copies have no such limit, and take as long as there are.
    count = 127 if request.node.callspec.params["images"] == OVERLAYFS else 20
    layers = [
        layer(Entry(f"file{number}", b"x"), Entry("last", b"%d" % number))
        for number in range(count)
    ]
    image = await loaded(images, place, *layers)
    root = place / "root"
    await images.mount_rootfs("c1", image, root)
    assert len(list(root.iterdir())) == count + 1
    assert (root / "last").read_bytes() == b"%d" % (count - 1)
    (root / "new").write_bytes(b"y")
    await images.mount_image(image, place / "volume")
    assert (place / "volume/last").read_bytes() == b"%d" % (count - 1)


async def test_a_layer_that_comes_twice_says_all_again(images: ImageStore, place: Path) -> None:
    base = layer(directory("d"), Entry("d/base"), Entry("base"))
    twice = layer(directory("d"), Entry("d/twice", b"1"), Entry(".wh.base"))
    between = layer(Entry(".wh.d"), Entry("base"), Entry("twice"))
    image = await loaded(images, place, base, twice, between, twice)
    root = place / "root"
    await images.mount_rootfs("c1", image, root)
    assert sorted(str(path.relative_to(root)) for path in root.rglob("*")) == [
        "d",
        "d/twice",
        "twice",
    ]


async def test_an_image_without_layers_is_an_empty_root(images: ImageStore, place: Path) -> None:
    image = await loaded(images, place)
    await images.mount_rootfs("c1", image, place / "root")
    assert list((place / "root").iterdir()) == []
    (place / "root/new").touch()


async def test_owners_are_those_of_the_user_namespace(images: ImageStore, place: Path) -> None:
    content = layer(Entry("root"), Entry("user", b"x", owner=(1000, 1001)), directory("etc"))
    image = await loaded(images, place, content)
    root = place / "root"
    await images.mount_rootfs("c1", image, root, id_mappings=USERS)
    owners = {name: ((root / name).stat().st_uid, (root / name).stat().st_gid)
              for name in ("root", "user", "etc", ".")}  # fmt: skip
    assert owners == {
        "root": (100_000, 200_000),
        "user": (101_000, 201_001),
        "etc": (100_000, 200_000),
        ".": (100_000, 200_000),
    }
    (root / "user").write_bytes(b"changed")
    assert (root / "user").stat().st_uid == 101_000
    assert list((place / "run/stages").iterdir()) == []
    await images.mount_rootfs("c2", image, place / "plain")
    assert (place / "plain/user").stat().st_uid == 1000


async def test_volumes_are_read_only(images: ImageStore, place: Path) -> None:
    image = await loaded(images, place, layer(directory("data"), Entry("data/file", b"1")))
    await images.mount_image(image, place / "volume")
    assert (place / "volume/data/file").read_bytes() == b"1"
    with pytest.raises(OSError, match="Read-only"):
        (place / "volume/new").touch()
    await images.unmount_image(place / "volume")
    assert list((place / "data/volumes").iterdir()) == []


def test_overlay_options_list_lower_upper_and_work_directories() -> None:
    assert options(["a", "b"], ["u", "w"]) == "lowerdir=a:b,upperdir=u,workdir=w"
    assert options(["a", "b"], []) == "lowerdir=a:b"


async def test_a_directory_with_a_colon_and_a_comma_holds_a_store(place: Path) -> None:
    odd = place / "a:b,c\\d e"
    async with ImageStore(ImagePaths(odd / "data", place / "run"), snapshotter=OVERLAYFS) as images:
        image = await loaded(images, place, layer(Entry("x", b"1"), directory("d")))
        await images.mount_rootfs("c1", image, odd / "root")
        assert (odd / "root/x").read_bytes() == b"1"
        (odd / "root/y").touch()


async def test_where_overlays_are_refused_roots_are_copies(place: Path) -> None:
    """A data directory that is on an overlay already, as inside a container."""
    async with ImageStore(ImagePaths(place / "o/data", place / "o/run")) as outer:
        image = await loaded(outer, place, layer(Entry("x", b"1")))
        await outer.mount_rootfs("c1", image, place / "host")
        data = place / "host/data"
        async with ImageStore(ImagePaths(data, place / "run")) as inner:
            assert inner.snapshotter == NATIVE
            below = layer(Entry("gone"), directory("d"), Entry("d/gone"))
            above = layer(Entry(".wh.gone"), Entry("d/.wh..wh..opq"), Entry("new", b"2"))
            image = await loaded(inner, place, below, above)
            await inner.mount_rootfs("c1", image, place / "root")
            names = sorted(
                str(path.relative_to(place / "root")) for path in (place / "root").rglob("*")
            )
            assert names == ["d", "new"]
            await inner.unmount_rootfs("c1", place / "root")
        shutil.rmtree(data)


async def test_another_name_of_a_symlink_is_that_symlink(images: ImageStore, place: Path) -> None:
    content = layer(Entry("file", b"x"), link("way", "file"), hard_link("again", "way"))
    image = await loaded(images, place, content)
    root = place / "root"
    await images.mount_rootfs("c1", image, root)
    assert os.readlink(root / "again") == "file"
    assert (root / "again").lstat().st_ino == (root / "way").lstat().st_ino


@pytest.mark.parametrize("above", ["absent", "absent/deeper", "file", "way", "way/below"])
def test_a_copy_hides_nothing_below_what_is_no_directory(place: Path, above: str) -> None:
    root, outside = place / "root", place / "outside"
    (outside / "below").mkdir(parents=True)
    (outside / "below/kept").touch()
    (outside / "kept").touch()
    root.mkdir()
    (root / "file").touch()
    (root / "way").symlink_to(outside)
    native.hide(root, whiteouts=[f"{above}/kept"], opaques=[above])
    assert sorted(os.listdir(root)) == ["file", "way"]
    assert sorted(os.listdir(outside)) == ["below", "kept"]
    assert (outside / "below/kept").exists()


@pytest.mark.parametrize(
    ("number", "is_absent"),
    [(errno.ENOENT, True), (errno.ENOTDIR, True), (errno.ELOOP, True), (errno.EIO, False),
     (errno.EXDEV, False), (errno.EACCES, False)],
)  # fmt: skip
@pytest.mark.parametrize(("whiteouts", "opaques"), [(["above/x"], []), ([], ["above"])])
def test_a_copy_fails_where_a_directory_exists_and_cannot_be_entered(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    is_absent: bool,
    whiteouts: list[str],
    opaques: list[str],
) -> None:
    def answer(*_arguments: object) -> int:
        raise OSError(number, os.strerror(number))

    # Kernels differ in what they answer for a link.
    monkeypatch.setattr(descent, "openat2", answer)
    if is_absent:
        native.hide(place, whiteouts, opaques)
        assert list(place.iterdir()) == []
        return
    with pytest.raises(OSError, match=os.strerror(number)):
        native.hide(place, whiteouts, opaques)
