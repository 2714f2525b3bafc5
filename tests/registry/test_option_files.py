"""Files of options: what is read, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.registry.option_files import OptionFileError, read_option_file


def test_a_file_is_read_whole_within_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_bytes(b"x" * 1024 * 1024)
    assert read_option_file(path) == path.read_bytes()
    path.write_bytes(b"x" * (1024 * 1024 + 1))
    with pytest.raises(OptionFileError, match=f"^{path} is longer than 1048576 bytes$"):
        read_option_file(path)


@pytest.mark.parametrize(
    ("name", "why"), [("absent", "No such file or directory"), ("", "Is a directory")]
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, why: str) -> None:
    path = tmp_path / name
    with pytest.raises(OptionFileError, match=f"^{path} cannot be read: {why}$"):
        read_option_file(path)
