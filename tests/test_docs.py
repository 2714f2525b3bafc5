"""The documentation: links lead somewhere, files it names exist, README stays one screen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
_PAGES = sorted(
    [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("examples/*.md")]
)
_DECISIONS = REPOSITORY / "docs" / "decisions"
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#([\w-]+))?\)")
_MODULE = re.compile(r"`([\w/]+\.py)`")


def _name(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", _PAGES, ids=_name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target, anchor in _LINK.findall(page.read_text()):
        if "://" in target:
            continue
        path = (page.parent / target).resolve()
        assert path.exists(), target
        assert not anchor or anchor in _anchors(path), f"{target}#{anchor}"


# Decisions and changes describe the code of their time.
@pytest.mark.parametrize(
    "page",
    [page for page in _PAGES if page.parent != _DECISIONS and page.name != "CHANGELOG.md"],
    ids=_name,
)
def test_modules_that_are_named_exist(page: Path) -> None:
    modules = [
        f"/{path.relative_to(REPOSITORY)}"
        for directory in ("src", "tests", "bench")
        for path in (REPOSITORY / directory).rglob("*.py")
    ]
    for name in _MODULE.findall(page.read_text()):
        is_at_root = (REPOSITORY / name).exists()
        assert is_at_root or any(module.endswith(f"/{name}") for module in modules), name


def test_the_readme_is_one_screen() -> None:
    assert len((REPOSITORY / "README.md").read_text().split()) <= 600
