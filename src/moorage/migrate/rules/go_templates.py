"""Go templates of TOML files: the text that is the same whatever the template is given.

k3s and RKE2 make containerd's configuration of `config.toml.tmpl` and `config-v3.toml.tmpl`. What
stands in a conditional block, or on a line with an action, depends on values that only they have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# An action may span lines; one that is not closed reaches to the end.
_ACTION = re.compile(r"\{\{-?\s*(?P<word>[a-zA-Z]*)(?P<rest>[^}]*+(?:\}(?!\})[^}]*+)*+)(?:\}\}|\Z)")
_OPENING = frozenset({"if", "range", "with", "define", "block"})
_CLOSING = "end"
_HEADER = re.compile(r"[ \t]*\[")
_SHOWN = 60


def static_text(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the static lines of a template, and a sentence for each part that is left out.

    Lines keep their numbers: what is left out is an empty line.
    """
    lines = text.split("\n")
    kept = list(lines)
    sentences: dict[str, None] = {}
    for first, last, action in _parts(text):
        for number in range(first, last + 1):
            kept[number] = ""
        if _HEADER.match(lines[first]) and last == first:
            last = _end_of_table(lines, first)
            kept[first : last + 1] = [""] * (last + 1 - first)
        where = f"line {first + 1}" if first == last else f"lines {first + 1} to {last + 1}"
        sentences[f"{where}: {action} is not read: it is a template's"] = None
    return "\n".join(kept), tuple(sentences)


def _parts(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield first and last line of each action outside of blocks, and of each block."""
    depth, start, opening = 0, 0, ""
    line, counted = 0, 0
    for match in _ACTION.finditer(text):
        line += text.count("\n", counted, match.start())
        counted = match.start()
        last = line + match[0].count("\n")
        word = match["word"]
        if depth == 0:
            start, opening = line, " ".join(match[0].split())[:_SHOWN]
        if word in _OPENING:
            depth += 1
        elif word == _CLOSING:
            depth = max(0, depth - 1)
        if depth == 0:
            yield start, last, opening
    if depth:
        yield start, text.count("\n"), opening


def _end_of_table(lines: list[str], header: int) -> int:
    following = range(header + 1, len(lines))
    return next((number for number in following if _HEADER.match(lines[number])), len(lines)) - 1
