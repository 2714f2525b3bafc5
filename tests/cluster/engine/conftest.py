"""Short directories: the kernel takes no socket path over 107 bytes, and pytest's own are long."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_path() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="moor-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
