"""Size limits of images: the part of the disk that stays free, and sizes in words."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from moorage.engine.images.manifest import ImageLimits, in_words


@pytest.mark.parametrize(("blocks", "reserve_bytes"), [(40, 8192), (20, 4096), (200, 10_000)])
def test_a_twentieth_of_a_small_disk_stays_free(
    monkeypatch: pytest.MonkeyPatch, blocks: int, reserve_bytes: int
) -> None:
    disk = SimpleNamespace(f_blocks=blocks, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda place: disk if place == Path("/data") else None)
    assert ImageLimits(free_bytes=10_000).reserve_bytes(Path("/data")) == reserve_bytes


@pytest.mark.parametrize(
    ("size_bytes", "words"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1 << 20, "1 MiB"),
        (1 << 30, "1 GiB"),
        (128 << 30, "128 GiB"),
    ],
)
def test_a_size_has_the_largest_unit_that_fits(size_bytes: int, words: str) -> None:
    assert in_words(size_bytes) == words
