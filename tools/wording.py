"""Word list of `make lint`: fails where a word of `wording.toml` stands in documentation or code.

    python -m tools.wording            the paths of the list, and its ceilings, if any
    python -m tools.wording PATH…      these files and directories

Of Python files, comments, docstrings, other strings and identifiers are read; of all others, every
line. Prints PATH:LINE, the word, and what to write instead.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
_SUFFIXES = frozenset({".md", ".py", ".toml", ".yaml", ".yml", ".sh", ".txt", ".proto"})
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True)
class Allowed:
    """A use that is right: in that file or directory, on lines that contain the text."""

    path: str
    text: str
    reason: str

    def covers(self, path: str, line: str) -> bool:
        is_below = not self.path or path == self.path or path.startswith(f"{self.path}/")
        return is_below and self.text.lower() in line.lower()


@dataclass(frozen=True)
class WordList:
    """What `wording.toml` holds."""

    paths: tuple[str, ...]
    words: Mapping[str, str]
    allowed: tuple[Allowed, ...]
    ceilings: Mapping[str, int]

    @classmethod
    def read(cls, text: str) -> WordList:
        content: dict[str, Any] = tomllib.loads(text)
        allowed = tuple(Allowed(**entry) for entry in content.get("allowed", ()))
        ceilings = content.get("ceilings", {})
        return cls(tuple(content["paths"]), content["words"], allowed, ceilings)

    def pattern(self) -> re.Pattern[str]:
        phrases = sorted(self.words, key=len, reverse=True)
        either = "|".join(r"\s+".join(map(re.escape, phrase.split())) for phrase in phrases)
        return re.compile(rf"\b(?:{either})\b", re.IGNORECASE)


@dataclass(frozen=True)
class Use:
    """A use of a listed word."""

    path: str
    line: int
    word: str


def uses(text: str, path: str, words: WordList) -> Iterator[Use]:
    """Yield the uses in a file that the list does not allow."""
    lines = text.splitlines()
    pattern = words.pattern()
    passages = _python_passages(text) if path.endswith(".py") else [(1, text)]
    for first, passage in passages:
        for found in pattern.finditer(passage):
            number = first + passage.count("\n", 0, found.start())
            if not any(entry.covers(path, lines[number - 1]) for entry in words.allowed):
                yield Use(path, number, " ".join(found[0].lower().split()))


def _python_passages(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines at which comments, strings and identifiers start, and their words."""
    comment: list[str] = []
    comment_line = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            # A phrase may go on in the comment's next line.
            if comment and token.start[0] != comment_line + len(comment):
                yield comment_line, "\n".join(comment)
                comment = []
            comment_line = comment_line if comment else token.start[0]
            comment.append(token.string.lstrip("# "))
        elif token.type == tokenize.NAME:
            yield token.start[0], _CAMEL.sub(" ", token.string).replace("_", " ")
        elif token.type not in (tokenize.OP, tokenize.NUMBER):
            yield token.start[0], token.string
    if comment:
        yield comment_line, "\n".join(comment)


def files(name: str) -> Iterator[Path]:
    """Yield the text files at or below a path of the repository."""
    path = REPOSITORY / name
    if path.is_file():
        yield path
    for each in sorted(path.rglob("*")):
        if each.suffix in _SUFFIXES and each.is_file() and "generated" not in each.parts:
            yield each


def main(arguments: list[str]) -> int:
    words = WordList.read((REPOSITORY / "tools" / "wording.toml").read_text())
    limits = dict.fromkeys(arguments or words.paths, 0)
    if not arguments:
        limits |= words.ceilings
    has_failed = False
    for path, most in limits.items():
        found = list(_uses_below(path, words))
        if len(found) <= most:
            continue
        has_failed = True
        for use in found:
            print(f"{use.path}:{use.line}: {use.word}: write {words.words[use.word]}")
        print(f"{path}: {len(found)} words of tools/wording.toml, at most {most} may be there")
    return 1 if has_failed else 0


def _uses_below(path: str, words: WordList) -> Iterator[Use]:
    for file in files(path):
        name = file.resolve().relative_to(REPOSITORY).as_posix()
        yield from uses(file.read_text(), name, words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
