"""The page for those who test operators in Python: its examples run as they stand."""

from __future__ import annotations

from pathlib import Path

from tests.documents import REPOSITORY, blocks
from tests.forks import run

_PAGE = REPOSITORY / "docs" / "how-to" / "test-an-operator.md"


def _programs() -> list[str]:
    return [block.text for block in blocks(_PAGE.read_text()) if block.language == "python"]


def test_the_example_starts_a_cluster_and_stops_it(tmp_path: Path) -> None:
    program, *_ = _programs()
    (tmp_path / "example.py").write_text(program)
    done = run("example", timeout_s=100, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr


def test_the_fixture_and_the_test_for_pytest_work_together(tmp_path: Path) -> None:
    _, fixture, test, webhook = _programs()
    (tmp_path / "conftest.py").write_text(fixture)
    (tmp_path / "test_operator.py").write_text(test)
    (tmp_path / "test_webhook.py").write_text(webhook)
    done = run("pytest", "-q", "-p", "no:cacheprovider", timeout_s=100, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
