"""Where tests beside parts of Kubernetes keep their files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.cluster.engine.sweep import remove_directory
from tests.running import skip_without_kubectl, skip_without_runtimes


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short path, since sockets are in it."""
    skip_without_kubectl()
    skip_without_runtimes()
    root = Path(tempfile.mkdtemp(prefix="moor-"))
    yield root
    # Volumes may still be mounted in it, and a kubelet mounts its directory on itself.
    remove_directory(root)
