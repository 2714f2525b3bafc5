"""Hooks of the documentation site: pages of the repository's root, and patterns in `nav`.

README, CONTRIBUTING and others stay where people look for them and are pages of the site too. Links
are written as they work in the repository; here they are rewritten to the site's paths.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

# File of the repository → page of the site.
ROOT_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "SECURITY.md": "security-policy.md",
    "examples/README.md": "examples.md",
}
_DOCS = "docs"
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)(#[\w-]+)?\)")


def expand(nav: Any, docs: Path) -> Any:
    """Return `nav` with each pattern replaced by the pages that match it, in order of name.

    A page that `nav` names is left out of its pattern: it has its place already.
    """
    return _expanded(nav, docs, frozenset(_named(nav)))


def _named(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        yield from _named(list(nav.values()))
    else:
        for entry in nav:
            yield from _named(entry)


def _expanded(nav: Any, docs: Path, named: frozenset[str]) -> Any:
    if isinstance(nav, dict):
        return {title: _expanded(entry, docs, named) for title, entry in nav.items()}
    if not isinstance(nav, list):
        return nav
    entries: list[Any] = []
    for entry in nav:
        if isinstance(entry, str) and "*" in entry:
            found = {page.relative_to(docs).as_posix() for page in docs.glob(entry)} - named
            # An index comes first.
            entries += sorted(found, key=lambda name: (not name.endswith("README.md"), name))
        else:
            entries.append(_expanded(entry, docs, named))
    return entries


def rewrite_links(markdown: str, source: str, repository: Path) -> str:
    """Return the text with its links as the site needs them.

    `source` is the file's path in the repository. A link to a file that is no page is replaced by
    its text. A link that leads nowhere stays, for mkdocs to report.
    """
    page = site_path(source)

    def rewritten(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        if "://" in target or not (repository / posixpath.dirname(source) / target).exists():
            return link[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if (repository / path).is_dir() and (repository / path / "README.md").exists():
            path = f"{path}/README.md"
        if path not in ROOT_PAGES and not path.startswith(f"{_DOCS}/"):
            return text
        relative = posixpath.relpath(site_path(path), posixpath.dirname(page) or ".")
        return f"[{text}]({relative}{anchor})"

    return _LINK.sub(rewritten, markdown)


def site_path(path: str) -> str:
    """Return where a file of the repository is in the site's tree of sources."""
    return ROOT_PAGES.get(path) or posixpath.relpath(path, _DOCS)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Expand the patterns in `nav`."""
    config.nav = expand(config.nav, Path(config.docs_dir))
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages of the repository's root."""
    from mkdocs.structure.files import File

    repository = Path(config.docs_dir).parent
    for source, name in ROOT_PAGES.items():
        files.append(File.generated(config, name, content=(repository / source).read_text()))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Rewrite the links of a page."""
    name = page.file.src_uri
    origins = {target: source for source, target in ROOT_PAGES.items()}
    source = origins.get(name, f"{_DOCS}/{name}")
    return rewrite_links(markdown, source, Path(config.docs_dir).parent)
