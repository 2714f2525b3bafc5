"""Files that the build generates."""

from __future__ import annotations

import pytest

from moorage.apiserver.registry.schema.types import BUNDLE, read_generated


def test_generated_file_is_read_and_a_missing_one_names_the_remedy() -> None:
    assert read_generated("moorage.apiserver.registry.schema", BUNDLE)
    with pytest.raises(FileNotFoundError, match=r"schema/absent is missing: .*`make venv`"):
        read_generated("moorage.apiserver.registry.schema", "absent")
