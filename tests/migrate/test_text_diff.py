"""Unified diffs: patch(1) must make the new text of the old one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage.migrate.text_diff import unified


def test_equal_texts_have_no_diff() -> None:
    assert unified("a", "a", "x\n", "x\n") == ""


def test_a_missing_newline_at_the_end_is_shown() -> None:
    assert unified("a", "b", "x", "y\n") == (
        "--- a\n+++ b\n@@ -1 +1 @@\n-x\n\\ No newline at end of file\n+y\n"
    )


_TEXTS = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\u2028\r\n", "d"]), max_size=12).map(
    "".join
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_TEXTS, _TEXTS)
def test_patch_applies_it(tmp_path: Path, old: str, new: str) -> None:
    _check_patch(tmp_path, old, new)


def _check_patch(directory: Path, old: str, new: str) -> None:
    if shutil.which("patch") is None:
        pytest.skip("patch is not installed")
    file = directory / "file"
    file.write_bytes(old.encode())
    difference = unified("file", "file", old, new)
    if not difference:
        assert old == new
        return
    done = subprocess.run(
        ["patch", "--binary", "--fuzz=0", "-p0", "-s"],
        input=difference.encode(),
        cwd=directory,
        check=False,
        capture_output=True,
    )
    assert done.returncode == 0, f"{done.stdout!r} {difference}"
    # An empty result is a removed file.
    assert (file.read_bytes() if file.exists() else b"") == new.encode()


def test_changes_all_over_a_large_text_take_seconds() -> None:
    lines = [f"key-{index % 7}: {index % 5}\n" for index in range(100_000)]
    changed = [line if index % 50 else "new\n" for index, line in enumerate(lines)]
    difference = unified("a", "a", "".join(lines), "".join(changed))
    # The name of the new text, too.
    assert difference.count("\n+") == 2001
    assert difference.count("\n-") == 2000


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_TEXTS, _TEXTS)
def test_patch_applies_that_of_a_long_text(tmp_path: Path, old: str, new: str) -> None:
    same = "".join(f"{index}\n" for index in range(2_000))
    _check_patch(tmp_path, f"{same}{old}", f"{same}{new}")
    _check_patch(tmp_path, f"{old.rstrip('d')}{same}{new}", f"{new.rstrip('d')}{same}{old}")
