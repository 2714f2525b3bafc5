"""Layers unpacked by the real child: what they say comes out, and nothing gets out."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.engine.errors import ExhaustedError, FailedError
from moorage.engine.images import unpack
from moorage.engine.images.blob_stream import LayerError
from moorage.engine.images.manifest import ImageLimits
from moorage.engine.images.store import ImagePaths, ImageStore
from moorage.linux.mounts import mount, unmount
from tests.engine.images.builds import (
    Entry,
    digest,
    directory,
    hard_link,
    layer,
    link,
    oci_archive,
    packed,
)


async def unpacked(images: ImageStore, place: Path, *entries: Entry) -> Path:
    """The tree of a layer with these entries."""
    content = layer(*entries)
    await images.load(oci_archive(place / "image.tar", ["localhost/a:1"], [content]))
    return place / "data/layers" / digest(content).removeprefix("sha256:") / "tree"


async def test_files_keep_what_the_layer_says_of_them(images: ImageStore, place: Path) -> None:
    tree = await unpacked(
        images,
        place,
        directory("./", 0o711),
        directory("bin", 0o750, owner=(3, 4), mtime=1_100_000_000),
        Entry("bin/su", b"program", mode=0o4755, owner=(1, 2), xattrs={"user.note": "höhe"}),
        hard_link("bin/su2", "bin/su"),
        link("bin/sh", "/bin/su"),
        Entry("pipe", kind=tarfile.FIFOTYPE, mode=0o600),
        Entry("null", kind=tarfile.CHRTYPE, device=(1, 3), mode=0o666),
        Entry("disk", kind=tarfile.BLKTYPE, device=(7, 0), mode=0o660),
        Entry("made/up/on/the/way", b"x"),
    )
    program = (tree / "bin/su").stat()
    assert (tree / "bin/su").read_bytes() == b"program"
    assert (stat.S_IMODE(program.st_mode), program.st_uid, program.st_gid) == (0o4755, 1, 2)
    assert program.st_mtime == 1_000_000_000
    assert os.getxattr(tree / "bin/su", "user.note").decode() == "höhe"
    assert (tree / "bin/su2").stat().st_ino == program.st_ino
    assert os.readlink(tree / "bin/sh") == "/bin/su"
    inside = (tree / "bin").stat()
    assert (stat.S_IMODE(inside.st_mode), inside.st_uid, inside.st_mtime) == (0o750, 3, 1.1e9)
    assert stat.S_IMODE(tree.stat().st_mode) == 0o711
    assert stat.S_ISFIFO((tree / "pipe").stat().st_mode)
    assert os.major((tree / "null").stat().st_rdev) == 1
    assert stat.S_ISBLK((tree / "disk").stat().st_mode)
    assert (tree / "made/up/on/the/way").exists()


async def test_capabilities_of_files_stay(images: ImageStore, place: Path) -> None:
    # VFS_CAP_REVISION_2 with CAP_NET_RAW permitted and effective.
    value = bytes.fromhex("0100000200200000000000000000000000000000")
    text = value.decode("utf-8", "surrogateescape")
    tree = await unpacked(images, place, Entry("ping", b"x", xattrs={"security.capability": text}))
    assert os.getxattr(tree / "ping", "security.capability") == value


async def test_attributes_that_speak_to_the_host_are_left_out(
    images: ImageStore, place: Path
) -> None:
    tree = await unpacked(
        images,
        place,
        directory("a", xattrs={"trusted.overlay.redirect": "/b", "user.overlay.opaque": "y"}),
    )
    assert os.listxattr(tree / "a") == []


async def test_whiteouts_become_overlayfs_marks(images: ImageStore, place: Path) -> None:
    tree = await unpacked(
        images,
        place,
        Entry("etc/.wh.gone"),
        Entry("var/.wh..wh..opq"),
        Entry("opt/.wh.remade"),
        directory("opt/remade"),
        Entry(".wh..wh.plnk/1.2"),
        Entry(".wh..wh.aufs"),
    )
    gone = (tree / "etc/gone").stat()
    assert stat.S_ISCHR(gone.st_mode)
    assert gone.st_rdev == 0
    assert os.getxattr(tree / "var", "trusted.overlay.opaque") == b"y"
    assert os.getxattr(tree / "opt/remade", "trusted.overlay.opaque") == b"y"
    assert not (tree / ".wh..wh.aufs").exists()


async def test_a_later_entry_takes_the_place_of_an_earlier_one(
    images: ImageStore, place: Path
) -> None:
    tree = await unpacked(
        images, place, directory("a"), Entry("a/b", b"1"), Entry("a", b"2"), link("c", "a"),
        directory("c"), Entry("c/d", b"3"),
    )  # fmt: skip
    assert (tree / "a").read_bytes() == b"2"
    assert (tree / "c/d").read_bytes() == b"3"


HOSTILE = {
    "a path upwards": ([Entry("../escaped", b"x")], "points outside the layer"),
    "a path upwards further in": ([Entry("a/../../escaped", b"x")], "points outside the layer"),
    "a hard link upwards": ([hard_link("a", "../../../../etc/passwd")], "points outside the layer"),
    "a hard link to a file of the host": ([hard_link("a", "/etc/passwd")], "not in the layer"),
    "a hard link through a link": (
        [link("etc", "/etc"), hard_link("a", "etc/passwd")],
        "not in the layer",
    ),
    "a file for a directory": ([Entry("a", b"x"), Entry("a/b", b"y")], "a"),
    "a whiteout of nothing": ([Entry("a/.wh.")], "has no target name"),
    "a whiteout of the directory above": ([Entry("a/.wh...")], "has no target name"),
    "a file for the root": ([Entry("./", b"x")], "root"),
    "an unknown type": ([Entry("a", kind=b"Z")], "a"),
}


@pytest.mark.parametrize(
    ("name", "path"),
    [("a/b", "a/b"), ("/a//./b/", "a/b"), ("./", ""), ("...", "..."), ("a/..b", "a/..b")],
)
def test_paths_are_below_the_root_and_without_dots(name: str, path: str) -> None:
    assert unpack.member_path(name) == path


@pytest.mark.parametrize("name", ["..", "/..", "a/..", "a/../b", "a\0b", "\0", "a/\0/b"])
def test_paths_that_leave_the_root_or_hold_a_nul_are_refused(name: str) -> None:
    with pytest.raises(LayerError, match="points outside the layer"):
        unpack.member_path(name)


def budget(**limits: int) -> unpack.Budget:
    usual = {"size_bytes": 10_000, "entries": 9, "depth": 9, "xattr_bytes": 9, "reserve_bytes": 0}
    return unpack.Budget(**{**usual, **limits})


def test_a_budget_ends_exactly_at_its_limits() -> None:
    taken = budget(size_bytes=1000)
    taken.take(1000)
    with pytest.raises(LayerError, match="unpacks to more than 1000 bytes"):
        taken.take(1)
    counted = budget(entries=2)
    counted.entry("a")
    counted.entry("b")
    with pytest.raises(LayerError, match="more than 2 entries"):
        counted.entry("c")
    deep = budget(depth=3)
    deep.entry("a/b/c")
    with pytest.raises(LayerError, match="path a/b/c/d… is deeper than 3 names"):
        deep.entry("a/b/c/d")
    noted = budget(xattr_bytes=5)
    noted.attributes("a", 5)
    with pytest.raises(LayerError, match="a has 6 bytes of extended attributes, more than 5"):
        noted.attributes("a", 6)


def test_entries_and_attributes_count_as_bytes() -> None:
    whole = budget(size_bytes=512 + 5)
    whole.entry("a")
    whole.attributes("a", 5)
    with pytest.raises(LayerError, match="unpacks to more than 517 bytes"):
        whole.take(1)


def test_free_space_is_measured_at_first_and_at_each_16_mib(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free_bytes = [100, 100, 99]
    measured: list[str] = []

    def statvfs(path: str) -> SimpleNamespace:
        measured.append(path)
        return SimpleNamespace(f_bavail=free_bytes.pop(0), f_frsize=1)

    monkeypatch.setattr(os, "statvfs", statvfs)
    taken = budget(size_bytes=1 << 30, reserve_bytes=100)
    taken.take(1)
    taken.take((16 << 20) - 1)
    assert measured == ["/"]
    taken.take(1)
    assert measured == ["/"] * 2
    with pytest.raises(OSError, match="100 bytes must stay free") as raised:
        taken.take(16 << 20)
    assert raised.value.errno == errno.ENOSPC


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"size": 0, "uid": 0, "gid": 0}, ""),
        ({"size": -1}, "has a negative size"),
        ({"uid": 2**32 - 2, "gid": 2**32 - 2}, ""),
        ({"gid": 2**32 - 1}, "group id 4294967295 is out of range .0 to 4294967294."),
        ({"uid": -1}, "user id -1 is out of range"),
        ({"mtime": 2.0**40}, ""),
        ({"mtime": -(2.0**40)}, ""),
        ({"mtime": 2.0**40 + 1}, "invalid modification time"),
        ({"type": tarfile.CHRTYPE, "devmajor": 4095, "devminor": (1 << 20) - 1}, ""),
        ({"type": tarfile.BLKTYPE, "devmajor": 4096}, "invalid device number 4096:0"),
        ({"type": tarfile.CHRTYPE, "devminor": 1 << 20}, "invalid device number 0:1048576"),
        ({"type": tarfile.CHRTYPE, "devmajor": -1}, "invalid device number -1:0"),
        ({"type": tarfile.CHRTYPE, "devminor": -1}, "invalid device number 0:-1"),
        ({"devmajor": 4096}, ""),
    ],
)
def test_numbers_are_valid_up_to_their_limits(fields: dict[str, Any], complaint: str) -> None:
    entry = tarfile.TarInfo("odd")
    for name, value in fields.items():
        setattr(entry, name, value)
    if not complaint:
        unpack.check_numbers("odd", entry)
        return
    with pytest.raises(LayerError, match=complaint):
        unpack.check_numbers("odd", entry)


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_layers_are_refused(images: ImageStore, place: Path, name: str) -> None:
    entries, why = HOSTILE[name]
    with pytest.raises(FailedError, match=why) as caught:
        await unpacked(images, place, *entries)
    assert "localhost/a:1" in str(caught.value)
    assert images.all() == ()
    assert list((place / "data/layers").iterdir()) == []
    assert list((place / "data/ingest").iterdir()) == []


async def test_links_do_not_lead_out(images: ImageStore, place: Path) -> None:
    outside = place / "outside"
    outside.mkdir()
    tree = await unpacked(
        images,
        place,
        link("absolute", str(outside)),
        link("upwards", "../../../../../../../../../../" + str(outside)),
        directory(str(outside).lstrip("/")),
        Entry("absolute/x", b"1"),
        Entry("upwards/y", b"2"),
        Entry("/rooted", b"3"),
    )
    assert list(outside.iterdir()) == []
    assert (tree / str(outside).lstrip("/") / "x").read_bytes() == b"1"
    assert (tree / "rooted").read_bytes() == b"3"


BLOB = layer(Entry("a", os.urandom(100_000)), Entry("b", b"b"))
CORRUPT = {
    "cut short": (packed(BLOB)[:-2000], "+gzip"),
    "plain and cut short": (BLOB[:60_000], ""),
    "other content": (packed(layer(Entry("a", b"other"))), "+gzip"),
    "no gzip": (BLOB, "+gzip"),
    "no archive": (packed(b"\1" * 5000), "+gzip"),
    "nothing": (b"", "+gzip"),
    "an unknown compression": (BLOB, "+br"),
}


@pytest.mark.parametrize("name", CORRUPT)
async def test_a_blob_that_is_not_what_the_image_says_is_refused(
    images: ImageStore, place: Path, name: str
) -> None:
    content, kind = CORRUPT[name]
    archive = oci_archive(
        place / "a.tar", ["localhost/a:1"], [BLOB], packed={0: content}, kinds={0: kind}
    )
    with pytest.raises(FailedError, match=f"localhost/a:1.*{digest(content)}"):
        await images.load(archive)
    assert images.all() == ()
    assert list((place / "data/layers").iterdir()) == []


async def test_a_blob_with_another_digest_than_its_name_is_refused(
    images: ImageStore, place: Path
) -> None:
    archive = oci_archive(place / "a.tar", ["localhost/a:1"], [BLOB])
    spoilt = bytearray(archive.read_bytes())
    position = spoilt.index(BLOB) + 10_000
    spoilt[position] ^= 1
    archive.write_bytes(spoilt)
    with pytest.raises(FailedError, match="digest"):
        await images.load(archive)


@pytest.mark.parametrize(
    ("kind", "pack"),
    [
        ("", lambda content: content),
        ("+gzip", packed),
        ("+gzip", lambda content: packed(content[:9999]) + packed(content[9999:]) + bytes(512)),
    ],
    ids=["plain", "gzip", "gzip in two members and padding"],
)
async def test_every_packing_is_read(
    images: ImageStore, place: Path, kind: str, pack: object
) -> None:
    assert callable(pack)
    archive = oci_archive(
        place / "a.tar", ["localhost/a:1"], [BLOB], packed={0: pack(BLOB)}, kinds={0: kind}
    )
    (image,) = await images.load(archive)
    assert image.layers == (digest(BLOB),)


@pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not installed")
async def test_zstd_is_read_and_checked(images: ImageStore, place: Path) -> None:
    (place / "plain").write_bytes(BLOB)
    os.system(f"zstd -q {place}/plain -o {place}/packed")  # noqa: ASYNC221
    content = (place / "packed").read_bytes()
    archive = oci_archive(
        place / "a.tar", ["localhost/a:1"], [BLOB], packed={0: content}, kinds={0: "+zstd"}
    )
    (image,) = await images.load(archive)
    assert image.layers == (digest(BLOB),)
    await images.remove(image.id)
    cut = oci_archive(
        place / "b.tar", ["localhost/b:1"], [BLOB], packed={0: content[:-500]}, kinds={0: "+zstd"}
    )
    with pytest.raises(FailedError, match="localhost/b:1"):
        await images.load(cut)


async def test_a_bomb_that_fills_the_disk_leaves_nothing(place: Path) -> None:
    small = place / "small"
    small.mkdir()
    mount("none", small, "tmpfs", "size=4m")
    try:
        async with ImageStore(ImagePaths(small, place / "run")) as images:
            bomb = layer(Entry("zeros", bytes(40_000_000)))
            archive = oci_archive(
                place / "a.tar", ["localhost/a:1"], [bomb], packed={0: packed(bomb)},
                kinds={0: "+gzip"},
            )  # fmt: skip
            with pytest.raises(ExhaustedError, match=r"No space left.*free space"):
                await images.load(archive)
            assert list((small / "layers").iterdir()) == []
            (image,) = await images.load(
                oci_archive(place / "b.tar", ["localhost/b:1"], [layer(Entry("x", b"1"))])
            )
            assert image.tags == ("localhost/b:1",)
    finally:
        unmount(small)


async def test_a_header_that_wants_all_memory_is_refused(images: ImageStore, place: Path) -> None:
    header = tarfile.TarInfo("././@PaxHeader")
    header.type, header.size = tarfile.XHDTYPE, 3 << 30
    bomb = packed(header.tobuf() + bytes(64 << 20))
    plain = header.tobuf() + bytes(64 << 20)
    archive = oci_archive(
        place / "a.tar", ["localhost/a:1"], [plain], packed={0: bomb}, kinds={0: "+gzip"}
    )
    with pytest.raises(FailedError, match="localhost/a:1"):
        await images.load(archive)
    assert list((place / "data/layers").iterdir()) == []


LIMITS = ImageLimits(unpacked_bytes=4 << 20, entries=50, layers=3, depth=20, xattr_bytes=2000)


def _sparse(size: int) -> bytes:
    """A layer with a GNU sparse file that is one hole."""
    header = tarfile.TarInfo("sparse")
    header.type, header.size = tarfile.GNUTYPE_SPARSE, 0
    block = bytearray(header.tobuf(tarfile.GNU_FORMAT))
    # struct oldgnu_header: no data, and the real size. Source: tar(5).
    block[386:398], block[398:410] = b"%011o\0" % size, b"%011o\0" % 0
    block[483:495] = b"%011o\0" % size
    block[148:156] = b"%06o\0 " % (sum(block[:148]) + 8 * 32 + sum(block[156:]))
    return bytes(block) + bytes(1024)


def _pax_sparse(size: int) -> bytes:
    """A layer with a sparse file in the form that PAX headers describe."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        header = tarfile.TarInfo("sparse")
        header.pax_headers = {
            "GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.name": "sparse",
            "GNU.sparse.size": str(size), "GNU.sparse.numblocks": "1",
            "GNU.sparse.map": f"{size},0",
        }  # fmt: skip
        archive.addfile(header)
    return buffer.getvalue()


def _deep(count: int) -> bytes:
    return layer(Entry("/".join(["d"] * count), b"x"))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (layer(Entry("zeros", bytes(5 << 20))), "unpacks to more than 4194304 bytes"),
        (_sparse(5 << 20), "unpacks to more than"),
        (_sparse(6 << 30), "unpacks to more than"),
        (_pax_sparse(5 << 20), "unpacks to more than"),
        (layer(*(Entry(str(number)) for number in range(60))), "more than 50 entries"),
        (_deep(30), "deeper than 20 names"),
        (layer(Entry("x", xattrs={"user.a": "y" * 3000})), "bytes of extended attributes"),
        (layer(Entry("x")) + bytes(16 << 20), "archive exceeds the image size"),
    ],
    ids=["large", "sparse", "sparser", "pax-sparse", "entries", "depth", "attributes", "padding"],
)
async def test_a_layer_beyond_a_limit_is_refused_and_leaves_nothing(
    place: Path, paths: ImagePaths, content: bytes, complaint: str
) -> None:
    async with ImageStore(paths, limits=LIMITS) as images:
        archive = oci_archive(
            place / "a.tar", ["localhost/a:1"], [content], packed={0: packed(content)},
            kinds={0: "+gzip"},
        )  # fmt: skip
        with pytest.raises(FailedError, match=complaint):
            await images.load(archive)
        assert images.all() == ()
    assert list((paths.data / "layers").iterdir()) == []
    assert list((paths.data / "ingest").iterdir()) == []


def _pax(**headers: str) -> bytes:
    """A layer whose one entry has these PAX headers."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        header = tarfile.TarInfo("odd")
        header.pax_headers = headers
        archive.addfile(header)
    return buffer.getvalue()


NODE: dict[str, Any] = {"kind": tarfile.CHRTYPE}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (_pax(gid=str(1 << 70)), f"entry odd: group id {1 << 70} is out of range"),
        (_pax(uid=str(2**32 - 1)), "entry odd: user id 4294967295 is out of range"),
        (_pax(uid="-1"), "entry odd: user id -1 is out of range"),
        (_pax(uid="9" * 4000), "entry odd: user id 0x[0-9a-f]{38}… is out of range"),
        (_pax(mtime="1e300"), r"entry odd has the invalid modification time 1e\+300"),
        (_pax(mtime="nan"), "entry odd has the invalid modification time nan"),
        (_pax(mtime="-inf"), "entry odd has the invalid modification time -inf"),
        (
            layer(Entry("odd", device=(4096, 1), **NODE)),
            "invalid device number 4096:1",
        ),
        (
            layer(Entry("odd", device=(1, 1 << 20), **NODE)),
            "invalid device number 1:1048576",
        ),
    ],
    ids=repr,
)
async def test_numbers_that_no_file_can_have_are_named(
    place: Path, images: ImageStore, content: bytes, complaint: str
) -> None:
    archive = oci_archive(place / "a.tar", ["localhost/a:1"], [content])
    with pytest.raises(FailedError, match=complaint) as refused:
        await images.load(archive)
    assert "exited with status" not in str(refused.value)
    assert images.all() == ()


async def test_the_layers_of_an_image_share_its_limit(place: Path, paths: ImagePaths) -> None:
    parts = [layer(Entry(f"part-{number}", bytes(2 << 20))) for number in range(3)]
    async with ImageStore(paths, limits=LIMITS) as images:
        await images.load(oci_archive(place / "b.tar", ["localhost/b:1"], parts[:1]))
        with pytest.raises(FailedError, match="unpacks to more than"):
            await images.load(oci_archive(place / "a.tar", ["localhost/a:1"], parts))
        assert [image.tags for image in images.all()] == [("localhost/b:1",)]
        many = [layer(Entry(f"l{number}")) for number in range(4)]
        with pytest.raises(FailedError, match="4 layers, more than 3"):
            await images.load(oci_archive(place / "c.tar", ["localhost/c:1"], many))
    assert len(list((paths.data / "layers").iterdir())) == 1


async def test_part_of_the_disk_stays_free(place: Path) -> None:
    small = place / "small"
    small.mkdir()
    mount("none", small, "tmpfs", "size=64m")
    limits = ImageLimits(free_bytes=60 << 20)
    try:
        async with ImageStore(ImagePaths(small, place / "run"), limits=limits) as images:
            large = layer(*(Entry(f"zeros-{number}", bytes(4 << 20)) for number in range(20)))
            archive = oci_archive(
                place / "a.tar", ["localhost/a:1"], [large], packed={0: packed(large)},
                kinds={0: "+gzip"},
            )  # fmt: skip
            with pytest.raises(ExhaustedError, match=r"must stay free.*free space"):
                await images.load(archive)
            assert list((small / "layers").iterdir()) == []
    finally:
        unmount(small)


async def test_an_archive_that_is_a_bomb_itself_is_refused(place: Path, paths: ImagePaths) -> None:
    bomb = place / "bomb.tar.gz"
    bomb.write_bytes(packed(bytes(20 << 20)))
    async with ImageStore(paths, limits=LIMITS) as images:
        with pytest.raises(FailedError, match="unpacks to more than 4 MiB"):
            await images.load(bomb)
    assert list((paths.data / "ingest").iterdir()) == []


@pytest.mark.parametrize("job", ["", '{"blob": 1'])
def test_invalid_job_fails_the_process(job: str) -> None:
    command = [sys.executable, "-I", str(Path(unpack.__file__))]
    done = subprocess.run(command, input=job, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout)["full"] is False
