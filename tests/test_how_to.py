"""What the pages of `docs/how-to` show can be used as it is."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml

from moorage.handlers import parse_definition

PAGES = sorted((Path(__file__).parents[1] / "docs" / "how-to").glob("*.md"))
OPERATOR_PAGE = next(page for page in PAGES if page.stem == "test-an-operator")


def _blocks(page: Path, language: str) -> list[str]:
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```$", page.read_text(), re.DOTALL | re.M)
    return [textwrap.dedent(each) for each in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_handler_files_and_manifests_of_a_page_are_well_formed(page: Path) -> None:
    assert any(_blocks(page, language) for language in ("toml", "python"))
    for text in _blocks(page, "toml"):
        parse_definition(Path("/etc/moorage/handlers.d/shown.toml"), text.encode())
    for text in _blocks(page, "yaml"):
        assert yaml.safe_load(text)["kind"] == "RuntimeClass"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_readme_links_to_a_page(page: Path) -> None:
    readme = (PAGES[0].parents[2] / "README.md").read_text()
    assert f"docs/how-to/{page.name}" in readme


def test_the_example_in_python_starts_a_cluster_and_stops_it() -> None:
    program, *_ = _blocks(OPERATOR_PAGE, "python")
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "hello\n"), ran.stderr


def test_the_fixture_and_the_test_for_pytest_work_together(tmp_path: Path) -> None:
    _, fixture, test = _blocks(OPERATOR_PAGE, "python")
    (tmp_path / "conftest.py").write_text(fixture)
    (tmp_path / "test_operator.py").write_text(test)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout
