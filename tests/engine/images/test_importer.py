"""Image importer: failures of the disk while an image is pulled."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from moorage.engine.errors import ExhaustedError, FailedError
from moorage.engine.images.importer import Puller
from moorage.engine.images.store import ImageStore


@pytest.mark.parametrize(
    ("code", "expected"), [(errno.ENOSPC, ExhaustedError), (errno.EIO, FailedError)]
)
async def test_disk_error_of_a_pull_is_reported(
    images: ImageStore,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    expected: type[Exception],
) -> None:
    async def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code), place / "blob")

    monkeypatch.setattr(Puller, "digest", fail)
    with pytest.raises(expected, match='failed to pull image "localhost:1/a:1"'):
        await images.pull("localhost:1/a:1")
    assert images.all() == ()
