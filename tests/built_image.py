"""The image that `make image` built, for tests that run it; they are skipped without it."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from moorage import __version__

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_DIRECTORY = Path(os.environ.get("MOORAGE_IMAGE", "build/image"))


def built_image() -> Path:
    """The archive of this machine's architecture."""
    architecture = _ARCHITECTURES.get(platform.machine(), "")
    path = _DIRECTORY / f"moorage-{__version__}-{architecture}.tar"
    if not path.exists():
        pytest.skip(f"{path} is not built: `make image`")
    return path
