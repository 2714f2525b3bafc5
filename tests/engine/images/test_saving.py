"""Images saved to an archive come back with the same files, or byte for byte."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest

from moorage.engine.errors import FailedError, NotFoundError
from moorage.engine.images.saving import paths_below
from moorage.engine.images.store import ImagePaths, ImageStore
from tests.engine.images.builds import Entry, digest, directory, hard_link, layer, link, oci_archive

LOWER = layer(
    directory("./", 0o711),
    directory("etc", 0o750, owner=(3, 4), mtime=1_100_000_000),
    Entry("etc/gone", b"x"),
    Entry("etc/gone-directory/inside", b"x"),
    Entry("bin/su", b"program", mode=0o4755, owner=(1, 2), xattrs={"user.note": "höhe"}),
    hard_link("bin/su2", "bin/su"),
    link("bin/sh", "/bin/su"),
    Entry("pipe", kind=tarfile.FIFOTYPE, mode=0o600),
    Entry("null", kind=tarfile.CHRTYPE, device=(1, 3), mode=0o666),
    Entry("late", b"x", mtime=1_000_000_000.25),
    Entry("odd \udcff name", b"x"),
)
UPPER = layer(
    Entry("etc/.wh.gone", b""),
    directory("etc/gone-directory"),
    Entry("etc/gone-directory/.wh..wh..opq", b""),
    Entry("etc/gone-directory/new", b"y"),
)


def described(tree: Path) -> dict[str, tuple[Any, ...]]:
    """What a tree holds: kinds, owners, modes, times, contents, links, attributes."""
    result: dict[str, tuple[Any, ...]] = {}
    inodes: dict[int, str] = {}
    for path in (tree, *sorted(tree.rglob("*"))):
        status = path.lstat()
        name = str(path.relative_to(tree))
        kind = stat.S_IFMT(status.st_mode)
        content: object = None
        if stat.S_ISREG(kind):
            content = path.read_bytes()
        elif stat.S_ISLNK(kind):
            content = os.readlink(path)
        attributes = {
            attribute: os.getxattr(path, attribute, follow_symlinks=False)
            for attribute in os.listxattr(path, follow_symlinks=False)
        }
        # Marks of what is hidden have the time of their unpacking.
        is_mark = stat.S_ISCHR(kind) and status.st_rdev == 0
        time_us = 0 if is_mark or name == "." else round(status.st_mtime_ns / 1000)
        twin = inodes.setdefault(status.st_ino, name)
        result[name] = (
            status.st_mode, status.st_uid, status.st_gid, status.st_rdev, time_us, content,
            twin, attributes,
        )  # fmt: skip
    return result


def trees(data: Path) -> list[dict[str, tuple[Any, ...]]]:
    layers = sorted((data / "layers").iterdir(), key=lambda path: len(described(path / "tree")))
    return [described(layer / "tree") for layer in layers]


async def test_files_come_back_as_they_were(images: ImageStore, place: Path) -> None:
    archive = oci_archive(place / "in.tar", ["localhost/a:1"], [LOWER, UPPER], {"Cmd": ["sh"]})
    await images.load(archive)
    (saved,) = await images.save(["localhost/a:1"], place / "out.tar")
    assert saved.name == "localhost/a:1"
    assert not saved.is_exact
    other = ImagePaths(place / "other", place / "other-run")
    async with ImageStore(other) as second:
        (loaded,) = await second.load(place / "out.tar")
        assert loaded.name == "localhost/a:1"
        assert loaded.id == saved.id
        assert loaded.configuration.command == ("sh",)
        assert trees(other.data) == trees(place / "data")
        # What was packed by this rule before is packed alike: the id stays from now on.
        (again,) = await second.save(["localhost/a:1"], place / "again.tar")
    assert again.is_exact
    assert (place / "again.tar").read_bytes() == (place / "out.tar").read_bytes()


async def test_layers_whose_bytes_are_known_keep_the_id(images: ImageStore, place: Path) -> None:
    (loaded,) = await images.load(oci_archive(place / "in.tar", ["localhost/a:1"], [LOWER]))
    known = place / "known"
    known.mkdir()
    (known / digest(LOWER).removeprefix("sha256:")).write_bytes(LOWER)
    (saved,) = await images.save([loaded.id], place / "out.tar", known)
    assert (saved.name, saved.id, saved.is_exact) == ("localhost/a:1", loaded.id, True)


async def test_known_bytes_that_are_not_the_layers_are_not_used(
    images: ImageStore, place: Path
) -> None:
    await images.load(oci_archive(place / "in.tar", ["localhost/a:1"], [LOWER]))
    known = place / "known"
    known.mkdir()
    (known / digest(LOWER).removeprefix("sha256:")).write_bytes(UPPER)
    (saved,) = await images.save(["localhost/a:1"], place / "out.tar", known)
    (plain,) = await images.save(["localhost/a:1"], place / "plain.tar")
    assert saved == plain
    assert (place / "out.tar").read_bytes() == (place / "plain.tar").read_bytes()


async def test_several_images_and_names_in_one_archive(images: ImageStore, place: Path) -> None:
    await images.load(oci_archive(place / "a.tar", ["localhost/a:1", "localhost/a:2"], [LOWER]))
    await images.load(oci_archive(place / "b.tar", ["localhost/b:1"], [LOWER, UPPER]))
    names = ["localhost/a:1", "localhost/a:2", "localhost/b:1"]
    saved = await images.save(names, place / "out.tar")
    assert [image.name for image in saved] == names
    with tarfile.open(place / "out.tar") as archive:
        index = json.load(archive.extractfile("index.json"))  # type: ignore[arg-type]
    listed = [
        manifest["annotations"]["io.containerd.image.name"] for manifest in index["manifests"]
    ]
    assert listed == names


async def test_failed_save_leaves_nothing(images: ImageStore, place: Path) -> None:
    await images.load(oci_archive(place / "in.tar", ["localhost/a:1"], [LOWER]))
    with pytest.raises(NotFoundError, match="localhost/none:1"):
        await images.save(["localhost/a:1", "localhost/none:1"], place / "out.tar")
    (place / "there.tar").write_text("mine")
    with pytest.raises(FailedError, match="File exists"):
        await images.save(["localhost/a:1"], place / "there.tar")
    with pytest.raises(FailedError, match="No such file or directory"):
        await images.save(["localhost/a:1"], place / "none" / "out.tar")
    record = next((place / "data/layers").iterdir()) / "layer.json"
    shutil.move(record, place / "layer.json")
    with pytest.raises(FailedError):
        await images.save(["localhost/a:1"], place / "out.tar")
    shutil.move(place / "layer.json", record)
    assert (place / "there.tar").read_text() == "mine"
    assert _files(place) == ["in.tar", "there.tar"]


def _files(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir() if path.is_file())


def test_a_saved_layer_is_in_order_of_names_whatever_the_disk_says(tmp_path: Path) -> None:
    """So that the same image gives the same archive on every machine."""
    for name in ("b/y", "b/x/deep", "a", "c/z", "b.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to("b")
    assert list(paths_below(tmp_path)) == [
        "a", "b", "b/x", "b/x/deep", "b/y", "b.txt", "c", "c/z", "link"
    ]  # fmt: skip
