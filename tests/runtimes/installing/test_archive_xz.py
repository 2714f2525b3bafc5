"""Xz files: read as `lzma` reads them, with a bound on memory."""

from __future__ import annotations

import io
import lzma
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.runtimes.installing.archive import XzContent

_STREAMS = [bytes(range(256)) * 700, b"", b"second" * 40_000]
_PLAIN = b"".join(_STREAMS)
_FILE = b"".join(map(lzma.compress, _STREAMS))


@given(st.lists(st.tuples(st.integers(0, len(_PLAIN) + 9), st.integers(0, 200_000)), max_size=4))
def test_any_part_is_read_as_it_was_written(parts: list[tuple[int, int]]) -> None:
    content = io.BufferedReader(XzContent(io.BytesIO(_FILE)), 4096)
    for start, size in parts:
        assert content.seek(start) == min(start, len(_PLAIN))
        assert content.read(size) == _PLAIN[start : start + size]
    content.seek(0)
    assert content.read() == _PLAIN


@pytest.mark.parametrize("left", range(8))
def test_a_stream_may_begin_at_the_end_of_what_is_read_at_once(left: int) -> None:
    first = lzma.compress(random.Random(1).randbytes(64 * 1024 - 200))
    size = len(first) + left

    class File(io.BytesIO):
        def read(self, _: int | None = -1, /) -> bytes:
            return super().read(size)

    content = XzContent(File(first + lzma.compress(b"second"))).readall()
    assert content.endswith(b"second")


def test_padding_after_the_last_stream_is_no_content() -> None:
    assert XzContent(io.BytesIO(_FILE + bytes(8))).readall() == _PLAIN


def test_a_file_that_is_cut_is_an_error() -> None:
    with pytest.raises(EOFError):
        XzContent(io.BytesIO(_FILE[:-20])).readall()


@pytest.mark.parametrize("before", [b"", lzma.compress(b"harmless")])
def test_a_dictionary_of_gigabytes_is_refused(before: bytes) -> None:
    file = bytearray(lzma.compress(b"content"))
    end = 12 + (file[12] + 1) * 4
    header = file[12:end]
    # The property of the filter LZMA2 that says 4 GiB. Source: the .xz file format, section 5.3.1.
    header[header.index(b"\x21\x01") + 2] = 40
    header[-4:] = zlib.crc32(header[:-4]).to_bytes(4, "little")
    file[12:end] = header
    with pytest.raises(lzma.LZMAError, match="Memory usage limit exceeded"):
        XzContent(io.BytesIO(before + file)).readall()
