"""Blobs read as they are, from gzip and from zstd: whole, in parts, cut short, too large."""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import subprocess
import zlib

import pytest

from moorage.engine.images.blob_stream import BlobStream, LayerError, open_gzip

TEXT = bytes(range(256)) * 40


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def opened(packed: bytes, compression: str, **limits: int) -> BlobStream:
    """A blob within a larger file."""
    return BlobStream(io.BytesIO(b"before" + packed + b"after"), 6, len(packed), compression,
                      **limits)  # fmt: skip


def zstd(content: bytes) -> bytes:
    if shutil.which("zstd") is None:
        pytest.skip("zstd is not installed")
    return subprocess.run(
        ["zstd", "-q", "-c"], input=content, stdout=subprocess.PIPE, check=True
    ).stdout


TWO = gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:])


@pytest.mark.parametrize(
    ("packed", "compression"),
    [
        (TEXT, ""),
        (gzip.compress(TEXT), "gzip"),
        (TWO, "gzip"),
        (gzip.compress(TEXT) + bytes(700), "gzip"),
        (gzip.compress(TEXT[:100]) + bytes(5) + gzip.compress(TEXT[100:]), "gzip"),
        (gzip.compress(b"") + gzip.compress(TEXT), "gzip"),
    ],
)
@pytest.mark.parametrize("chunk", [1 << 20, 100, 7])
def test_the_content_and_both_digests(packed: bytes, compression: str, chunk: int) -> None:
    stream = opened(packed, compression, chunk_bytes=chunk)
    assert stream.read(10) == TEXT[:10]
    assert stream.read(0) == b""
    assert stream.read(10**9) == TEXT[10:]
    assert stream.read(5) == b""
    assert stream.digests() == (digest(packed), digest(TEXT))
    whole = opened(packed, compression, chunk_bytes=chunk)
    whole.check(digest(packed), digest(TEXT))
    opened(packed, compression, chunk_bytes=chunk).check("", digest(TEXT))


def test_zstd_is_left_to_its_program() -> None:
    packed = zstd(TEXT)
    stream = opened(packed, "zstd")
    assert stream.read(10**9) == TEXT
    assert stream.digests() == (digest(packed), digest(TEXT))
    with pytest.raises(LayerError, match="zstd ended with status"):
        opened(b"no zstd", "zstd").digests()
    with pytest.raises(LayerError, match="truncated"):
        BlobStream(io.BytesIO(packed), 0, len(packed) + 1, "zstd").digests()


def test_missing_decompressor_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/none")
    with pytest.raises(LayerError, match="compressed with zstd, which is not installed"):
        opened(b"", "zstd")


def test_nothing_at_all() -> None:
    for compression in ("", "gzip"):
        assert opened(b"", compression).digests() == (digest(b""), digest(b""))


@pytest.mark.parametrize(
    ("packed", "why"),
    [
        (gzip.compress(TEXT)[:-1], "the compressed blob is truncated"),
        (gzip.compress(TEXT)[:15], "the compressed blob is truncated"),
        (TWO[:-9], "the compressed blob is truncated"),
        (b"no gzip", "cannot be decompressed"),
        (gzip.compress(TEXT) + b"tail", "cannot be decompressed"),
        (zlib.compress(TEXT), "cannot be decompressed"),
    ],
    ids=["cut", "cut in its head", "cut in the second member", "text", "more after it", "zlib"],
)
def test_invalid_gzip_is_rejected(packed: bytes, why: str) -> None:
    with pytest.raises(LayerError, match=why):
        opened(packed, "gzip").digests()


@pytest.mark.parametrize("compression", ["", "gzip"])
def test_a_blob_shorter_than_it_should_be(compression: str) -> None:
    packed = gzip.compress(TEXT) if compression else TEXT
    stream = BlobStream(io.BytesIO(packed), 0, len(packed) + 1, compression)
    with pytest.raises(LayerError, match="the blob is truncated"):
        stream.digests()


def test_a_compression_that_is_unknown() -> None:
    with pytest.raises(LayerError, match="its compression lzma is unknown"):
        opened(b"", "lzma")


@pytest.mark.parametrize(("size", "fits"), [(220, True), (221, False)])
def test_twice_the_limit_and_a_chunk_may_be_in_it(size: int, fits: bool) -> None:
    stream = opened(gzip.compress(bytes(size)), "gzip", limit_bytes=100, chunk_bytes=20)
    if fits:
        assert stream.read(10**9) == bytes(size)
    else:
        with pytest.raises(LayerError, match="exceeds the image size limit"):
            stream.digests()


def test_a_few_bytes_do_not_become_gigabytes_at_once() -> None:
    stream = opened(gzip.compress(bytes(50_000)), "gzip", chunk_bytes=1000)
    chunks = list(open_gzip(stream))
    assert max(map(len, chunks)) <= 1000
    assert sum(map(len, chunks)) == 50_000


@pytest.mark.parametrize(
    ("wrong", "why"), [("blob", "the blob's digest is sha256"), ("content", "its content's digest")]
)
def test_another_digest_is_refused(wrong: str, why: str) -> None:
    packed = gzip.compress(TEXT)
    blob, content = (digest(b"" if wrong == part else data) for part, data in (
        ("blob", packed), ("content", TEXT)))  # fmt: skip
    with pytest.raises(LayerError, match=why):
        opened(packed, "gzip").check(blob, content)
