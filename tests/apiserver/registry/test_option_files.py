"""Files of options: what is read, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.apiserver.registry.option_files import (
    DocumentError,
    OptionFileError,
    parse_option_document,
    read_option_file,
)


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


def test_a_document_is_yaml_or_json() -> None:
    assert parse_option_document(b"a: [1, x]\n") == {"a": [1, "x"]}
    assert parse_option_document(b'{"a": 2026-01-01}') == {"a": "2026-01-01"}
    assert parse_option_document(b"") is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"{", "^is not YAML: line 2: did not find expected"),
        (b"a: 1\n---\nb: 1\n", "^is not YAML: expected a single document"),
        (b"a: 1\na: 2\n", '^line 2: key "a" already set in map$'),
        (b"[" * 200, "^is not YAML: exceeded max depth"),
        (b"\xff", "^is not YAML: invalid UTF-8 at byte 0$"),
    ],
)
def test_what_is_no_document_is_refused(text: bytes, why: str) -> None:
    with pytest.raises(DocumentError, match=why):
        parse_option_document(text)
