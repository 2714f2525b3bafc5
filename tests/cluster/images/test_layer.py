from __future__ import annotations

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.cluster.images.catalogue import Directory, Entry, File, HardLink, write_layer

ENTRIES: dict[str, Entry] = {
    "bin/tool": File(b"program", 0o755),
    "bin/a-link": HardLink("bin/tool"),
    "tmp": Directory(0o1777),
    "etc/deep/file": File(b"text"),
}


def members(layer: bytes) -> list[tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        return archive.getmembers()


def test_directories_are_implied_and_links_come_last() -> None:
    entries = members(write_layer(ENTRIES))
    assert [entry.name for entry in entries] == [
        "bin", "bin/tool", "etc", "etc/deep", "etc/deep/file", "tmp", "bin/a-link",
    ]  # fmt: skip
    modes = {entry.name: entry.mode for entry in entries}
    assert (modes["bin"], modes["bin/tool"], modes["tmp"]) == (0o755, 0o755, 0o1777)
    assert entries[-1].islnk()
    assert entries[-1].linkname == "bin/tool"


def test_layer_contains_no_host_metadata() -> None:
    for member in members(write_layer(ENTRIES)):
        assert (member.mtime, member.uid, member.gid, member.uname, member.gname) == (
            0,
            0,
            0,
            "",
            "",
        )


@given(st.permutations(sorted(ENTRIES)))
def test_the_order_of_entries_changes_no_byte(order: list[str]) -> None:
    assert write_layer({path: ENTRIES[path] for path in order}) == write_layer(ENTRIES)


NAMES = st.text("abcdefg-_.äß", min_size=1, max_size=120).filter(lambda name: name.strip("."))


@given(st.dictionaries(NAMES, st.binary(max_size=600), max_size=8))
def test_what_goes_in_comes_out(files: dict[str, bytes]) -> None:
    layer = write_layer({path: File(content) for path, content in files.items()})
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        read = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        assert {name: file.read() for name, file in read.items() if file} == files


@pytest.mark.parametrize("target", ["bin/absent", "bin", "bin/other-link"])
def test_hard_link_to_other_than_a_file_is_rejected(target: str) -> None:
    entries = {**ENTRIES, "bin/other-link": HardLink("bin/tool"), "x": HardLink(target)}
    with pytest.raises(ValueError, match=f"x links to {target}"):
        write_layer(entries)


def test_entries_have_their_kind_mode_and_size() -> None:
    entries: dict[str, Entry] = {
        "a": Directory(),
        "b": File(b"text"),
        "c": File(b"program", 0o4755),
        "d/e": HardLink("b"),
    }
    assert [
        (entry.name, entry.type, oct(entry.mode), entry.size, entry.linkname)
        for entry in members(write_layer(entries))
    ] == [
        ("a", tarfile.DIRTYPE, "0o755", 0, ""),
        ("b", tarfile.REGTYPE, "0o644", 4, ""),
        ("c", tarfile.REGTYPE, "0o4755", 7, ""),
        ("d", tarfile.DIRTYPE, "0o755", 0, ""),
        ("d/e", tarfile.LNKTYPE, "0o755", 0, "b"),
    ]
