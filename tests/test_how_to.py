"""What the pages of `docs/how-to` show can be used as it is."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
import yaml

from moorage.handlers import parse_definition

PAGES = sorted((Path(__file__).parents[1] / "docs" / "how-to").glob("*.md"))


def _blocks(page: Path, language: str) -> list[str]:
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```$", page.read_text(), re.DOTALL | re.M)
    return [textwrap.dedent(each) for each in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_handler_files_and_manifests_of_a_page_are_well_formed(page: Path) -> None:
    definitions = _blocks(page, "toml")
    assert definitions
    for text in definitions:
        parse_definition(Path("/etc/moorage/handlers.d/shown.toml"), text.encode())
    for text in _blocks(page, "yaml"):
        assert yaml.safe_load(text)["kind"] == "RuntimeClass"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_readme_links_to_a_page(page: Path) -> None:
    readme = (PAGES[0].parents[2] / "README.md").read_text()
    assert f"docs/how-to/{page.name}" in readme
