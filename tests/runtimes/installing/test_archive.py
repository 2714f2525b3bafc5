"""Archives of runtimes: what is extracted, and what refuses the whole archive."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import struct
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.runtimes.installing import RuntimeInstallationError
from moorage.runtimes.installing import archive as archive_stream
from moorage.runtimes.installing.archive import extract

Item = tuple[tarfile.TarInfo, bytes]


def _entry(name: str, content: bytes = b"", mode: int = 0o644, **fields: object) -> Item:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    for field, value in fields.items():
        setattr(entry, field, value)
    return entry, content


def _archive(path: Path, *entries: Item) -> Path:
    suffix = path.suffix.removeprefix(".")
    mode: Any = f"w:{suffix}" if suffix in ("gz", "xz", "bz2") else "w"
    with tarfile.open(path, mode) as archive:
        for entry, content in entries:
            archive.addfile(entry, io.BytesIO(content))
    return path


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.tar.xz", "a.tar.bz2"])
def test_files_directories_and_links_inside_are_extracted(tmp_path: Path, name: str) -> None:
    archive = _archive(
        tmp_path / name,
        _entry("./bin", type=tarfile.DIRTYPE, mode=0o777),
        _entry("./bin/run", b"program", 0o6777),
        _entry("share/deep/text", b"text", 0o666),
        _entry("bin/alias", type=tarfile.SYMTYPE, linkname="../share/deep/text"),
    )
    extract(archive, tmp_path / "out")
    program = tmp_path / "out" / "bin" / "run"
    assert program.read_bytes() == b"program"
    assert program.stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "out/bin/alias").read_text() == "text"
    assert (tmp_path / "out/share/deep/text").stat().st_mode & 0o777 == 0o644


_OUTSIDE = {
    "absolute": (_entry("/etc/passwd", b"x"),),
    "parent": (_entry("a/../../b", b"x"),),
    "link out": (_entry("a", type=tarfile.SYMTYPE, linkname="../b"),),
    "link absolute": (_entry("a", type=tarfile.SYMTYPE, linkname="/etc"),),
    "link that leaves and returns": (_entry("a/b", type=tarfile.SYMTYPE, linkname="../../out/x"),),
    "through a link": (
        _entry("a", type=tarfile.SYMTYPE, linkname="."), _entry("a/b", b"x"),
    ),
    "over a link": (_entry("a", type=tarfile.SYMTYPE, linkname="b"), _entry("a", b"x")),
    "link that goes up behind another": (
        _entry("a/b/d", type=tarfile.SYMTYPE, linkname="../../s"),
        _entry("y", type=tarfile.SYMTYPE, linkname="a/b/d/../.."),
    ),
    "hard link": (_entry("a", b"x"), _entry("b", type=tarfile.LNKTYPE, linkname="a")),
    "device": (_entry("a", type=tarfile.CHRTYPE),),
    "pipe": (_entry("a", type=tarfile.FIFOTYPE),),
    "file twice": (_entry("a", b"x"), _entry("a", b"y")),
    "file as directory": (_entry("a", b"x"), _entry("a/b", b"y")),
    "directory as file": (_entry("a/b", b"x"), _entry("a", b"y")),
    "deep": (_entry("/".join("a" * 100), b"x"),),
}  # fmt: skip


@pytest.mark.parametrize("entries", _OUTSIDE.values(), ids=_OUTSIDE)
def test_what_leads_out_or_is_no_plain_file_refuses_the_archive(
    tmp_path: Path, entries: tuple[Item, ...]
) -> None:
    archive = _archive(tmp_path / "a.tar", *entries)
    with pytest.raises(RuntimeInstallationError, match="is refused"):
        extract(archive, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} <= {"a.tar", "out"}


def test_number_and_size_are_bounded(tmp_path: Path) -> None:
    archive = _archive(tmp_path / "a.tar", *(_entry(f"f{one}", b"x" * 100) for one in range(5)))
    with pytest.raises(RuntimeInstallationError, match="more than 4 entries"):
        extract(archive, tmp_path / "out", most_files=4)
    with pytest.raises(RuntimeInstallationError, match="more than 499 bytes"):
        extract(archive, tmp_path / "other", most_bytes=499)
    deep = _archive(tmp_path / "deep.tar", *(_entry(f"{one}/b/c/d", b"") for one in range(5)))
    with pytest.raises(RuntimeInstallationError, match="more than 19 entries"):
        extract(deep, tmp_path / "deep", most_files=19)
    extract(deep, tmp_path / "enough", most_files=20)


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08broken"])
def test_a_damaged_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(RuntimeInstallationError, match=r"\.tar\.gz"):
        extract(tmp_path / "a.tar", tmp_path / "out")


def _header(type_: bytes, size: int, name: str = "x") -> bytes:
    """A header block with any size in it, negative ones too."""
    entry = tarfile.TarInfo(name)
    entry.type = type_
    block = bytearray(entry.tobuf(tarfile.GNU_FORMAT))
    block[124:136] = b"\xff" * 4 + struct.pack(">q", size) if size < 0 else b"%011o\0" % size
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def _record(key: str, value: str) -> bytes:
    line = f" {key}={value}\n".encode()
    length = len(line) + 1
    while len(str(length)) + len(line) != length:
        length = len(str(length)) + len(line)
    return str(length).encode() + line


def _extended(*records: bytes, type_: bytes = tarfile.XHDTYPE) -> bytes:
    content = b"".join(records)
    return _header(type_, len(content)) + content + b"\0" * (-len(content) % 512)


_FILE = _header(tarfile.REGTYPE, 0, "f")
_SPARSE = (_record("GNU.sparse.major", "1"), _record("GNU.sparse.minor", "0"))
_HOSTILE = {
    "pax header": _extended(*(_record(f"k{one}", "v" * 50) for one in range(2000))) + _FILE,
    "global pax header": _extended(_record("k", "v" * 70_000), type_=tarfile.XGLTYPE) + _FILE,
    "many global fields": _extended(
        *(_record(f"k{one}", "") for one in range(65)), type_=tarfile.XGLTYPE
    ) + _FILE,
    "pax header of 8 GiB": _header(tarfile.XHDTYPE, 8**11 - 1),
    "pax header of no size": _header(tarfile.XHDTYPE, -1),
    "GNU long name": _header(tarfile.GNUTYPE_LONGNAME, 2**30) + b"a" * 2**17,
    "GNU long link": _header(tarfile.GNUTYPE_LONGLINK, 2**30) + b"a" * 2**17,
    "chain of pax headers": _extended(_record("k", "v")) * 2000 + _FILE,
    "negative file": _header(tarfile.REGTYPE, -1024) + _FILE,
    "NUL in a path": _extended(_record("path", "a\0b")) + _FILE,
    "NUL in a link": _extended(_record("linkpath", "a\0b")) + _header(tarfile.SYMTYPE, 0, "f"),
    "bad hdrcharset": _extended(b"20 hdrcharset=\xff\xfe\n") + _FILE,
    "bad sparse map": _extended(_record("GNU.sparse.map", "x,1")) + _FILE,
    "sparse map of odd length": _extended(_record("GNU.sparse.map", "0,1,2")) + _FILE,
    "sparse map without end": _extended(*_SPARSE) + _FILE + b"99999999\n" + b"1\n" * 2**17,
    "sparse map without lines": _extended(*_SPARSE) + _FILE + b"1" * 600,
    "sparse file": _header(tarfile.GNUTYPE_SPARSE, 0),
}  # fmt: skip


@pytest.mark.parametrize("content", _HOSTILE.values(), ids=_HOSTILE)
@pytest.mark.parametrize("suffix", ["tar", "tar.gz"])
def test_hostile_headers_refuse_the_archive_with_little_memory(
    tmp_path: Path, content: bytes, suffix: str
) -> None:
    archive = tmp_path / f"a.{suffix}"
    content += b"\0" * 1024
    archive.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    tracemalloc.start()
    try:
        with pytest.raises(RuntimeInstallationError, match="is refused") as raised:
            extract(archive, tmp_path / "out")
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()
    assert len(str(raised.value)) < 1000


def test_headers_of_all_entries_together_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_stream, "MOST_HEADERS_BYTES", 10_000)
    archive = _archive(tmp_path / "a.tar", *(_entry(f"f{one}") for one in range(30)))
    with pytest.raises(RuntimeInstallationError, match="headers of its entries"):
        extract(archive, tmp_path / "out")


def test_long_names_of_each_format_are_extracted(tmp_path: Path) -> None:
    name = "/".join(["d" * 100] * 5)
    for format_ in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        archive = tmp_path / f"{format_}.tar"
        with tarfile.open(archive, "w", format=format_) as written:
            entry, content = _entry(name, b"x" * 1024)
            written.addfile(entry, io.BytesIO(content))
            written.addfile(_entry("ä", b"y")[0], io.BytesIO(b"y"))
        extract(archive, tmp_path / str(format_))
        assert (tmp_path / str(format_) / name).read_bytes() == b"x" * 1024


@pytest.mark.parametrize("suffix", ["gz", "xz", "bz2"])
def test_an_archive_that_is_cut_off_is_refused(tmp_path: Path, suffix: str) -> None:
    files = [_entry(name, os.urandom(200_000)) for name in "ab"]
    archive = _archive(tmp_path / f"a.tar.{suffix}", *files)
    archive.write_bytes(archive.read_bytes()[:250_000])
    with pytest.raises(RuntimeInstallationError, match=r"\.tar\.gz"):
        extract(archive, tmp_path / "out")
    archive.write_bytes(archive.read_bytes()[:100_000] + b"\0" * 150_000)
    with pytest.raises(RuntimeInstallationError, match="is refused"):
        extract(archive, tmp_path / "other")


_parts = st.sampled_from(["a", "b", "..", ".", "", "out"])
_paths = st.lists(_parts, min_size=1, max_size=5).map("/".join)


@given(st.lists(st.tuples(_paths, st.none() | _paths), max_size=6))
def test_no_archive_writes_outside(
    tmp_path_factory: pytest.TempPathFactory, names: list[tuple[str, str | None]]
) -> None:
    place = tmp_path_factory.mktemp("archive")
    entries = [
        _entry(name, b"x") if link is None
        else _entry(name, type=tarfile.SYMTYPE, linkname=link)
        for name, link in names
    ]  # fmt: skip
    archive = _archive(place / "a.tar", *entries)
    with contextlib.suppress(RuntimeInstallationError):
        extract(archive, place / "out")
    assert {path.name for path in place.iterdir()} <= {"a.tar", "out"}
    inside = (place / "out").resolve()
    for path in (place / "out").rglob("*"):
        assert not path.is_symlink() or Path(os.path.realpath(path)).is_relative_to(inside)
