"""The page for those who test operators in Python: its examples run as they stand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.documents import REPOSITORY, blocks

_PAGE = REPOSITORY / "docs" / "how-to" / "test-an-operator.md"


def _programs() -> list[str]:
    return [block.text for block in blocks(_PAGE.read_text()) if block.language == "python"]


def test_the_example_starts_a_cluster_and_stops_it() -> None:
    program, *_ = _programs()
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr


def test_the_fixture_and_the_test_for_pytest_work_together(tmp_path: Path) -> None:
    _, fixture, test, webhook = _programs()
    (tmp_path / "conftest.py").write_text(fixture)
    (tmp_path / "test_operator.py").write_text(test)
    (tmp_path / "test_webhook.py").write_text(webhook)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
