"""Code blocks of the documentation, and what a comment before a block says is done with it.

    <!-- run -->               the block is a shell session: lines that begin with `$ ` are
                               commands, the lines below them their output; without such lines it
                               is a script
    <!-- file: PATH -->        the block is this file
    <!-- not run: REASON -->   the block is for people only

In an output, a line `...` stands for any lines. Addresses, versions, ages and generated names may
differ.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
HOW_TO = sorted((REPOSITORY / "docs" / "how-to").glob("*.md"))
MARKED = [REPOSITORY / "README.md", REPOSITORY / "docs" / "tutorial.md", *HOW_TO]
"""Pages whose shell blocks say what is done with them."""

_BLOCK = re.compile(
    r"(?:^<!-- (?P<marker>run|file|not run)(?:: (?P<argument>.+?))? -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_VOLATILE = re.compile(
    r"\b(?:\d+[smhd])+\b"  # ages
    r"|\b\d+(?:\.\d+)+(?:[-+][\w.-]+)?\b"  # addresses, versions, seconds
    r"|(?<=-)[a-z0-9]{8,10}-[a-z0-9]{5}\b"  # pods of a Deployment
)


@dataclass(frozen=True)
class Block:
    """A code block. `marker` is empty where no comment stands before it."""

    line: int
    marker: str
    argument: str
    language: str
    text: str


@dataclass(frozen=True)
class Step:
    """A command, and its output where the page shows it."""

    command: str
    output: str | None


def blocks(text: str) -> list[Block]:
    """Return the code blocks of a page."""
    return [
        Block(
            text.count("\n", 0, match.start("language")) + 1,
            match["marker"] or "",
            match["argument"] or "",
            match["language"],
            textwrap.dedent(match["text"]),
        )
        for match in _BLOCK.finditer(text)
    ]


def executed() -> list[Path]:
    """Return the pages with commands to execute; programs in Python are `test_how_to.py`'s."""
    return [
        page for page in MARKED if any(block.marker == "run" for block in blocks(page.read_text()))
    ]


def steps(block: Block) -> list[Step]:
    """Return the commands of a shell session; a script is one command."""
    if not re.search(r"^\$ ", block.text, re.MULTILINE):
        return [Step(block.text, None)]
    sessions = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert not sessions[0].strip(), f"line {block.line}: output without a command"
    parts = [session.partition("\n") for session in sessions[1:]]
    return [Step(command, output) for command, _, output in parts]


def matches(shown: str, real: str) -> bool:
    """Return whether an output is the one that a page shows, but for what differs each time."""
    lines = [
        r"(?:[^\n]*\n)*" if line.strip() == "..." else re.escape(line) + r"\n"
        for line in _normal(shown)
    ]
    return re.fullmatch("".join(lines), "".join(f"{line}\n" for line in _normal(real))) is not None


def _normal(text: str) -> list[str]:
    lines = [" ".join(_VOLATILE.sub("N", line).split()) for line in text.splitlines()]
    return [line for line in lines if line]
