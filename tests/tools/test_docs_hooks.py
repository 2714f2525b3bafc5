"""The documentation site: links and navigation, and a site that loads nothing from elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.docs_hooks import ROOT_PAGES, expand, rewrite_links

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("source", "link", "expected"),
    [
        ("README.md", "[a](docs/node.md)", "[a](node.md)"),
        ("README.md", "[a](docs/how-to/newer-gvisor.md)", "[a](how-to/newer-gvisor.md)"),
        ("README.md", "[a](CHANGELOG.md#unreleased)", "[a](changes.md#unreleased)"),
        ("README.md", "[a](docs/decisions)", "[a](decisions/README.md)"),
        ("README.md", "[Apache](LICENSE)", "Apache"),
        ("README.md", "[two\nlines](docs/node.md)", "[two\nlines](node.md)"),
        ("docs/security.md", "[a](../SECURITY.md)", "[a](security-policy.md)"),
        ("docs/how-to/newer-gvisor.md", "[a](../node.md)", "[a](../node.md)"),
        ("docs/how-to/newer-gvisor.md", "[a](../../CHANGELOG.md)", "[a](../changes.md)"),
        ("docs/node.md", "[a](gone.md)", "[a](gone.md)"),
        ("docs/node.md", "[a](https://example.com/x)", "[a](https://example.com/x)"),
        ("docs/node.md", "[a](#headline)", "[a](#headline)"),
    ],
)
def test_a_link_leads_to_the_page_on_the_site(source: str, link: str, expected: str) -> None:
    assert rewrite_links(link, source, REPOSITORY) == expected


def test_a_pattern_in_the_navigation_is_replaced_by_its_pages(tmp_path: Path) -> None:
    (tmp_path / "how-to").mkdir()
    for name in ("b.md", "README.md", "a.md", "picture.png"):
        (tmp_path / "how-to" / name).touch()
    nav = [{"Home": "index.md"}, {"How to": ["how-to/*.md"]}]
    assert expand(nav, tmp_path) == [
        {"Home": "index.md"},
        {"How to": ["how-to/README.md", "how-to/a.md", "how-to/b.md"]},
    ]


def test_a_page_that_the_navigation_names_is_left_out_of_its_pattern(tmp_path: Path) -> None:
    (tmp_path / "how-to").mkdir()
    for name in ("a.md", "b.md"):
        (tmp_path / "how-to" / name).touch()
    nav = [{"First": ["how-to/b.md"]}, {"How to": ["how-to/*.md"]}]
    assert expand(nav, tmp_path) == [{"First": ["how-to/b.md"]}, {"How to": ["how-to/a.md"]}]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built where every warning is an error; a page without an entry in `nav` is one."""
    path = f"{REPOSITORY / '.venv-docs' / 'bin'}:{Path(sys.executable).parent}"
    mkdocs = shutil.which("mkdocs", path=path) or shutil.which("mkdocs")
    if mkdocs is None:
        pytest.skip("mkdocs is not installed: `make docs` installs it")
    site = tmp_path_factory.mktemp("site") / "site"
    done = subprocess.run(
        [mkdocs, "build", "--strict", "--quiet", "--site-dir", str(site)],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return site


def _loaded(page: str) -> Iterator[str]:
    """Yield what a browser loads for a page."""
    for tag in re.findall(r"<(?:script|img|iframe|source|link)\b[^>]*>", page):
        match = re.search(r'\b(?:src|href)="?([^"\s>]+)', tag)
        if match:
            yield match[1]


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(ROOT_PAGES)
    for page in pages:
        elsewhere = [url for url in _loaded(page.read_text()) if re.match(r"(https?:)?//", url)]
        assert not elsewhere, page
        # The theme's script loads this library from a CDN where a page has a diagram of its kind.
        assert 'class="mermaid"' not in page.read_text(), page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", sheet.read_text()), sheet


def test_pages_open_without_a_server_and_are_indexed(site: Path) -> None:
    assert "RuntimeClass" in (site / "search" / "search_index.json").read_text()
    links = set(re.findall(r'href="?([^"#\s>]+\.html)', (site / "index.html").read_text()))
    assert "tutorial.html" in links
    assert all((site / link).exists() for link in links)
