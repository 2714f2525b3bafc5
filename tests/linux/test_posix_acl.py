"""POSIX ACLs: who may write, by the bytes that the kernel keeps."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from moorage.linux.trust import AclWriters, acl_writers, writers_of

OWNER, USER, OWN_GROUP, GROUP, MASK, OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_NO_ID = 2**32 - 1
Entry = tuple[int, int] | tuple[int, int, int]


def access_list(*entries: Entry) -> bytes:
    """Return a list of entries of tag, permissions and, for users and groups, ID."""
    packed = (struct.pack("<HHI", *entry, *[_NO_ID][len(entry) - 2 :]) for entry in entries)
    return struct.pack("<I", 2) + b"".join(packed)


@pytest.mark.parametrize(
    ("value", "writers"),
    [
        (access_list((OWNER, 7), (OWN_GROUP, 5), (OTHER, 5)), AclWriters()),
        (access_list((OWNER, 7), (OWN_GROUP, 7), (OTHER, 5)), AclWriters(by_own_group=True)),
        (access_list((OWNER, 7), (USER, 7, 5), (USER, 5, 6), (OWN_GROUP, 5), (GROUP, 2, 8),
                     (MASK, 7), (OTHER, 5)),
         AclWriters(frozenset({5}), frozenset({8}))),
        # The mask takes it away.
        (access_list((OWNER, 7), (USER, 7, 5), (OWN_GROUP, 7), (MASK, 5), (OTHER, 5)),
         AclWriters()),
    ],
)  # fmt: skip
def test_who_may_write(value: bytes, writers: AclWriters) -> None:
    assert writers_of(value) == writers


@pytest.mark.parametrize("value", [b"", b"\x01\0\0\0", access_list((OWNER, 7))[:-1]])
def test_another_form_is_an_error(value: bytes) -> None:
    with pytest.raises(ValueError, match="another form"):
        writers_of(value)


def test_most_files_and_all_links_have_none(tmp_path: Path) -> None:
    assert acl_writers(tmp_path) is None
    assert acl_writers(Path("/proc/self")) is None
    assert acl_writers(tmp_path / "absent") is None
