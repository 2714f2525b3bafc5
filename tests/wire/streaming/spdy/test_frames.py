"""SPDY frames: what goes out comes in, whatever the cuts; what is hostile is refused."""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.wire.streaming.spdy.frames import (
    DICTIONARY,
    Control,
    Data,
    Frame,
    FrameError,
    FrameReader,
    FrameType,
    HeaderCodec,
    control_frame,
    data_frame,
    number,
    open_frame,
    ping_frame,
    reset_frame,
)

STREAMS = st.integers(0, 2**31 - 1)
FRAMES = st.one_of(
    st.builds(Data, stream=STREAMS, payload=st.binary(max_size=40), is_last=st.booleans()),
    st.builds(
        Control,
        type=st.sampled_from(list(FrameType)).map(int),
        flags=st.integers(0, 255),
        payload=st.binary(max_size=40),
    ),
)


def encoded(frame: Frame) -> bytes:
    if isinstance(frame, Data):
        return data_frame(frame.stream, frame.payload, is_last=frame.is_last)
    return control_frame(frame.type, frame.payload, frame.flags)


@given(st.lists(FRAMES, max_size=5), st.integers(1, 30))
def test_frames_survive_any_cut(frames: list[Frame], size: int) -> None:
    wire = b"".join(map(encoded, frames))
    reader = FrameReader()
    numbers = [
        frame
        for start in range(0, len(wire), size)
        for frame in reader.feed(wire[start : start + size])
    ]
    assert numbers == frames


def test_a_frame_that_is_not_whole_waits() -> None:
    wire = data_frame(1, b"abc")
    reader = FrameReader()
    for index in range(len(wire) - 1):
        assert list(reader.feed(wire[index : index + 1])) == []
    assert list(reader.feed(wire[-1:])) == [Data(1, b"abc", is_last=False)]


def test_the_bytes_are_the_protocols() -> None:
    assert data_frame(1, b"hi", is_last=True) == b"\0\0\0\1\1\0\0\2hi"
    assert ping_frame(2) == b"\x80\x03\0\x06\0\0\0\4\0\0\0\2"
    assert reset_frame(5, 1) == b"\x80\x03\0\x03\0\0\0\x08\0\0\0\5\0\0\0\1"
    frame = open_frame(HeaderCodec(), 3, {"streamType": "error"})
    assert frame[:4] == b"\x80\x03\0\1"
    assert frame[8:18] == struct.pack(">IIH", 3, 0, 0)


@pytest.mark.parametrize("version", [0, 1, 2, 4, 0x7FFF])
def test_another_version_is_refused(version: int) -> None:
    head = struct.pack(">HHI", 0x8000 | version, 1, 0)
    with pytest.raises(FrameError, match=f"version {version}"):
        list(FrameReader().feed(head))


def test_http_is_not_spdy() -> None:
    reader = FrameReader()
    # The first byte has no control bit: it reads as a huge data frame that never comes whole.
    assert list(reader.feed(b"HTTP/1.1 400 Bad Request\r\n\r\n")) == []


def test_a_short_control_frame_has_no_number() -> None:
    with pytest.raises(FrameError):
        number(b"\0\0\0")
    with pytest.raises(FrameError):
        _ = Control(int(FrameType.RST_STREAM), 0, b"\0").stream


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Lu", "Lt", "Cs"]), max_size=12)
HEADERS = st.dictionaries(TEXTS.map(str.lower), TEXTS, max_size=4)


@given(st.lists(HEADERS, min_size=1, max_size=4))
def test_headers_are_compressed_across_the_connection(blocks: list[dict[str, str]]) -> None:
    ours, theirs = HeaderCodec(), HeaderCodec()
    for headers in blocks:
        assert theirs.decode(ours.encode(headers)) == headers


def test_names_are_lower_case_and_repetition_is_cheap() -> None:
    ours, theirs = HeaderCodec(), HeaderCodec()
    first = ours.encode({"streamType": "stdout", "requestID": "7"})
    second = ours.encode({"streamType": "stdout", "requestID": "8"})
    assert len(second) < len(first)
    assert theirs.decode(first) == {"streamtype": "stdout", "requestid": "7"}
    assert theirs.decode(second)["requestid"] == "8"


def compressed(plain: bytes) -> bytes:
    deflate = zlib.compressobj(zdict=DICTIONARY)
    return deflate.compress(plain) + deflate.flush(zlib.Z_SYNC_FLUSH)


@pytest.mark.parametrize(
    ("block", "says"),
    [
        (b"garbage", "decompress"),
        (zlib.compress(b"\0\0\0\0"), None),
        (b"", "too short"),
        (compressed(b"\0\0"), "too short"),
        (compressed(b"\xff\xff\xff\xff"), "too short"),
        (compressed(b"\0\0\0\1" + b"\0\0\0\x09abc"), "truncated"),
        (compressed(b"\0\0\0\1" + b"\xff\xff\xff\xffabc"), "truncated"),
        (compressed(b"\0\0\0\1" + b"\0\0\0\1a"), "too short"),
        (compressed(b"\0\0\0\1" + b"x" * (300 * 1024)), "larger than 256 KiB"),
    ],
)
def test_hostile_header_blocks_are_refused(block: bytes, says: str | None) -> None:
    if says is None:
        assert HeaderCodec().decode(block) == {}
        return
    with pytest.raises(FrameError, match=says):
        HeaderCodec().decode(block)


def test_a_bomb_is_not_unpacked() -> None:
    bomb = compressed(b"\0\0\0\1" + b"\0" * (64 << 20))
    assert len(bomb) < 100 * 1024
    with pytest.raises(FrameError, match="larger than 256 KiB"):
        HeaderCodec().decode(bomb)


@given(st.binary(max_size=80))
def test_no_bytes_do_worse_than_an_error(data: bytes) -> None:
    with suppress(FrameError):
        for frame in FrameReader().feed(data):
            if isinstance(frame, Control):
                _ = frame.stream
    with suppress(FrameError):
        HeaderCodec().decode(data)


def test_to_a_session_a_bad_frame_is_a_broken_connection() -> None:
    assert issubclass(FrameError, OSError)


def test_types_have_the_numbers_of_the_draft() -> None:
    """Source: SPDY/3.1 draft, §2.6."""
    assert {frame_type.name: frame_type.value for frame_type in FrameType} == {
        "SYN_STREAM": 1, "SYN_REPLY": 2, "RST_STREAM": 3, "SETTINGS": 4,
        "PING": 6, "GOAWAY": 7, "HEADERS": 8, "WINDOW_UPDATE": 9,
    }  # fmt: skip
