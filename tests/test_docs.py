"""The documentation: links, names of files, marks of commands, the length of the README.

`test_documents.py` executes the commands.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documents import HOW_TO, MARKED, REPOSITORY, blocks, matches, steps

_PAGES = sorted(
    [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("examples/*.md")]
)
_DECISIONS = REPOSITORY / "docs" / "decisions"
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#([\w-]+))?\)")
_MODULE = re.compile(r"`([\w/]+\.py)`")
_ROOM = re.compile(r"^# .*: `moorage\.([\w.]+)`$", re.MULTILINE)
_DIRECTORY = re.compile(r"`(\w[\w/]*/)`")


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


@pytest.mark.parametrize(
    "page", [page for page in _PAGES if _ROOM.search(page.read_text())], ids=_name
)
def test_directories_of_a_room_in_a_column_where_exist(page: Path) -> None:
    room = _ROOM.search(page.read_text())
    assert room
    source = REPOSITORY / "src" / "moorage" / room[1].replace(".", "/")
    for rows in re.findall(r"^\| .*\| where \|.*\n((?:\|.*\n)+)", page.read_text(), re.MULTILINE):
        for name in _DIRECTORY.findall(rows):
            assert (source / name).is_dir(), name


def test_each_decision_is_in_the_index_with_its_title() -> None:
    index = (_DECISIONS / "README.md").read_text()
    for page in _DECISIONS.glob("[0-9]*.md"):
        number, title = page.read_text().splitlines()[0].removeprefix("# ").split(maxsplit=1)
        assert f"| [{number}]({page.name}) | {title} |" in index, page.name


def test_the_readme_is_one_screen() -> None:
    assert len((REPOSITORY / "README.md").read_text().split()) <= 600


@pytest.mark.parametrize("page", MARKED, ids=_name)
def test_each_shell_block_is_executed_or_says_why_not(page: Path) -> None:
    for block in blocks(page.read_text()):
        if block.language in ("", "sh", "shell", "console", "bash"):
            assert block.marker in ("run", "not run"), f"line {block.line}"
            assert block.marker == "run" or block.argument, f"line {block.line}: no reason"


@pytest.mark.parametrize("page", HOW_TO, ids=_name)
def test_a_how_to_page_is_executed(page: Path) -> None:
    assert any(
        block.marker == "run" or block.language == "python" for block in blocks(page.read_text())
    )


_PAGE = """\
<!-- run -->
```
$ moor status
apiserver   ready   0.5 s
...
$ true
```

<!-- file: a.yaml -->
```yaml
kind: Pod
```

<!-- not run: no Docker -->
```
docker ps
```

```text
a drawing
```
"""


def test_blocks_have_the_marker_before_them() -> None:
    result = [(block.line, block.marker, block.argument, block.language) for block in blocks(_PAGE)]
    assert result == [
        (2, "run", "", ""),
        (10, "file", "a.yaml", "yaml"),
        (15, "not run", "no Docker", ""),
        (19, "", "", "text"),
    ]


def test_a_session_is_commands_with_their_output_and_a_script_is_one_command() -> None:
    session, script = blocks(_PAGE)[0], blocks(_PAGE)[2]
    assert [(step.command, step.output) for step in steps(session)] == [
        ("moor status", "apiserver   ready   0.5 s\n...\n"),
        ("true", ""),
    ]
    assert [(step.command, step.output) for step in steps(script)] == [("docker ps\n", None)]


@pytest.mark.parametrize(
    ("shown", "real", "expected"),
    [
        ("pod/a created\n", "pod/a created\n", True),
        ("pod/a created\n", "pod/b created\n", False),
        ("pod/a created\n", "pod/a created\nmore\n", False),
        ("pod/a created\n...\n", "pod/a created\nmore\nand more\n", True),
        ("NAME   AGE\na      2s\n", "NAME  AGE\na     1m13s\n", True),
        ("10.244.0.2 in 0.30 s\n", "10.244.7.13 in 1.2 s\n", True),
        ("6.1.0\n", "6.18.44-generic\n", True),
        ("web-zfcmssn8g4-f2x6j\n", "web-5d4f8b7c9d-abcde\n", True),
        ("8Mi\n", "16Mi\n", False),
        ("", "anything\n", False),
    ],
)
def test_an_output_is_compared_but_for_what_differs_each_time(
    shown: str, real: str, expected: bool
) -> None:
    assert matches(shown, real) == expected
