"""Archives of runtimes: what is extracted, and what refuses the whole archive."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.cluster.runtimes import RuntimeInstallationError
from moorage.cluster.runtimes.archive import extract

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


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08broken"])
def test_a_damaged_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(RuntimeInstallationError, match=r"\.tar\.gz"):
        extract(tmp_path / "a.tar", tmp_path / "out")


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
