"""SPDY/3.1 frame encoding and decoding.

    control: |1|version 15|type 16|flags 8|length 24|payload
    data:    |0|stream 31         |flags 8|length 24|payload

Source: SPDY/3.1 draft, §2.2 and §2.6. Header blocks are compressed across the whole connection, so
a codec belongs to one connection and frames must be written in the order they were encoded.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from enum import IntEnum

import msgspec

# SPDY header compression dictionary. Source: SPDY/3 draft, §2.6.10.1.

_NAMES = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language "
    "accept-ranges age allow authorization cache-control connection content-base content-encoding "
    "content-language content-length content-location content-md5 content-range content-type date "
    "etag expect expires from host if-match if-modified-since if-none-match if-range "
    "if-unmodified-since last-modified location max-forwards pragma proxy-authenticate "
    "proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status"
)
_MORE = ("200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin")
_CODES = (
    "100 101 201 202 205 206 300 302 303 304 305 306 307 402 405 406 407 408 409 410 411 412 413 "
    "414 415 416 417 502 504 505"
)
_PHRASES = (
    "203 Non-Authoritative Information", "204 No Content", "301 Moved Permanently",
    "400 Bad Request", "401 Unauthorized", "403 Forbidden", "404 Not Found",
    "500 Internal Server Error", "501 Not Implemented", "503 Service Unavailable",
)  # fmt: skip
_DATES = "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 "
_DAYS = "Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
_VALUES = (
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,"
    "text/plain,text/javascript,public" "private" "max-age=gzip,deflate,sdch"
    "charset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)  # fmt: skip


def _prefixed(word: str) -> bytes:
    return len(word).to_bytes(4, "big") + word.encode()


DICTIONARY = (
    b"".join(map(_prefixed, (*_NAMES.split(), *_MORE)))
    + "".join((*_CODES.split(), *_PHRASES, _DATES, _DAYS, _VALUES)).encode()
)


FIN = 0x01
HEAD_BYTES = 8
_VERSION = 3
_CONTROL = 0x8000
_STREAM_MASK = 0x7FFFFFFF
_HEADER_LIMIT_BYTES = 256 * 1024


class FrameType(IntEnum):
    """Types of control frames. Source: SPDY/3.1 draft, §2.6."""

    SYN_STREAM = 1
    SYN_REPLY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7
    HEADERS = 8
    WINDOW_UPDATE = 9


class ResetStatus(IntEnum):
    """Reasons of a stream reset. Source: SPDY/3.1 draft, §2.6.3."""

    PROTOCOL_ERROR = 1
    INVALID_STREAM = 2
    REFUSED_STREAM = 3
    CANCEL = 5


class FrameError(OSError):
    """Bytes that are not a valid SPDY/3.1 frame; a session treats it as a broken connection."""


class Data(msgspec.Struct, frozen=True):
    """A data frame; `is_last` is the FIN flag."""

    stream: int
    payload: bytes
    is_last: bool


class Control(msgspec.Struct, frozen=True):
    """A control frame; `payload` is as on the wire, headers still compressed."""

    type: int
    flags: int
    payload: bytes

    @property
    def stream(self) -> int:
        """Return the stream of a SYN_REPLY, RST_STREAM, HEADERS or SYN_STREAM.

        Raises FrameError when the payload is too short.
        """
        return number(self.payload) & _STREAM_MASK


Frame = Data | Control


def number(payload: bytes, offset: int = 0) -> int:
    """Return the 32-bit number at an offset. Raises FrameError when the payload is too short."""
    if len(payload) < offset + 4:
        raise FrameError("a control frame is too short")
    return int.from_bytes(payload[offset : offset + 4], "big")


def data_frame(stream: int, payload: bytes, *, is_last: bool = False) -> bytes:
    """Return a data frame; the payload must be shorter than 16 MiB."""
    length = len(payload) | ((FIN if is_last else 0) << 24)
    return struct.pack(">II", stream & _STREAM_MASK, length) + payload


def control_frame(type_: int, payload: bytes, flags: int = 0) -> bytes:
    """Return a control frame; the payload must be shorter than 16 MiB."""
    head = struct.pack(">HHI", _CONTROL | _VERSION, type_, flags << 24 | len(payload))
    return head + payload


def ping_frame(number: int) -> bytes:
    """Return a PING with that id."""
    return control_frame(FrameType.PING, number.to_bytes(4, "big"))


def reset_frame(stream: int, status: int) -> bytes:
    """Return a RST_STREAM with a `ResetStatus`."""
    return control_frame(FrameType.RST_STREAM, struct.pack(">II", stream, status))


def farewell_frame(last_stream: int, status: int) -> bytes:
    """Return a GOAWAY: streams after `last_stream` were not processed."""
    return control_frame(FrameType.GOAWAY, struct.pack(">II", last_stream, status))


class FrameReader:
    """Parses a byte stream into frames."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add bytes and yield the complete frames. Raises FrameError for an invalid one."""
        self._pending += data
        while len(self._pending) >= HEAD_BYTES:
            first, second = struct.unpack_from(">II", self._pending)
            end = HEAD_BYTES + (second & 0xFFFFFF)
            if len(self._pending) < end:
                return
            payload = bytes(self._pending[HEAD_BYTES:end])
            del self._pending[:end]
            yield _frame(first, second >> 24, payload)


def _frame(first: int, flags: int, payload: bytes) -> Frame:
    if not first >> 31:
        return Data(first & _STREAM_MASK, payload, bool(flags & FIN))
    version = first >> 16 & 0x7FFF
    if version != _VERSION:
        raise FrameError(f"SPDY version {version} is not 3")
    return Control(first & 0xFFFF, flags, payload)


class HeaderCodec:
    """Compresses sent headers and decompresses received ones."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)

    def encode(self, headers: Mapping[str, str]) -> bytes:
        """Return a compressed block; names are written in lower case."""
        block = bytearray(struct.pack(">I", len(headers)))
        for name, value in headers.items():
            for text in (name.lower(), value):
                encoded = text.encode()
                block += struct.pack(">I", len(encoded)) + encoded
        return self._deflate.compress(block) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    def decode(self, block: bytes) -> dict[str, str]:
        """Decode a compressed block. Raises FrameError for an invalid or too large one."""
        try:
            plain = self._inflate.decompress(block, _HEADER_LIMIT_BYTES)
        except zlib.error as error:
            raise FrameError(f"headers that do not decompress: {error}") from error
        if self._inflate.unconsumed_tail:
            raise FrameError("headers are larger than 256 KiB")
        headers, offset = {}, 4
        for _ in range(number(plain)):
            name, offset = _text(plain, offset)
            headers[name], offset = _text(plain, offset)
        return headers


def _text(block: bytes, offset: int) -> tuple[str, int]:
    end = offset + 4 + number(block, offset)
    if end > len(block):
        raise FrameError("a header is truncated")
    return block[offset + 4 : end].decode("utf-8", "replace"), end


def open_frame(codec: HeaderCodec, stream: int, headers: Mapping[str, str]) -> bytes:
    """Return a SYN_STREAM: priority 0, no associated stream."""
    return control_frame(
        FrameType.SYN_STREAM, struct.pack(">IIH", stream, 0, 0) + codec.encode(headers)
    )


def opened_headers(codec: HeaderCodec, frame: Control) -> dict[str, str]:
    """Return the headers of a SYN_STREAM. Raises FrameError."""
    return codec.decode(frame.payload[10:])


def reply_frame(codec: HeaderCodec, stream: int) -> bytes:
    """Return a SYN_REPLY without headers, which accepts a stream."""
    return control_frame(FrameType.SYN_REPLY, struct.pack(">I", stream) + codec.encode({}))
