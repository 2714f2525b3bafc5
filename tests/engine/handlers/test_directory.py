"""Files of a handler directory: how large they may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.engine.handlers.definition import DefinitionError
from moorage.engine.handlers.discovery import MOST_BYTES, read_limited


def test_a_file_has_a_size_at_most(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(b"#" * MOST_BYTES)
    assert len(read_limited(path)) == MOST_BYTES
    path.write_bytes(b"#" * (MOST_BYTES + 1))
    with pytest.raises(DefinitionError, match="it is larger than 64 KiB"):
        read_limited(path)
