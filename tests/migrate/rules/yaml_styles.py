"""YAML texts of a value in many styles: indentation, quotes, braces, comments."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

_COMMENTS = st.sampled_from(["", "", "", "  # why", " # a: b", '  # it\'s "so"'])
_LINES = st.sampled_from(["", "", "", "# above", "#", "# - x: {"])


class _Writer:
    """Writes values with styles that Hypothesis chooses; `comments` are those that it put in."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self.comments: list[str] = []

    def document(self, value: dict[str, Any]) -> str:
        if self._draw(st.integers(0, 5)) == 0:
            indent = self._draw(st.sampled_from([None, 2, 4]))
            return json.dumps(value, indent=indent) + "\n"
        return "".join(f"{line}\n" for line in self._map(value, 0))

    def _map(self, value: dict[str, Any], column: int) -> list[str]:
        pad = " " * column
        lines: list[str] = []
        for key, item in value.items():
            self._above(lines, pad)
            name = self._key(key)
            if isinstance(item, dict) and item and self._draw(st.integers(0, 3)):
                lines.append(f"{pad}{name}:{self._behind()}")
                lines += self._map(item, column + self._draw(st.sampled_from([1, 2, 4])))
            elif isinstance(item, list) and item:
                lines.append(f"{pad}{name}:{self._behind()}")
                inner = column + self._draw(st.sampled_from([0, 2]))
                lines += [f"{' ' * inner}- {self._flow(entry)}{self._behind()}" for entry in item]
            else:
                lines.append(f"{pad}{name}: {self._flow(item)}{self._behind()}")
        return lines

    def _key(self, key: str) -> str:
        return self._draw(st.sampled_from([key, f'"{key}"', f"'{key}'"]))

    def _flow(self, value: Any) -> str:
        if isinstance(value, dict):
            separator = self._draw(st.sampled_from([", ", " , "]))
            return (
                "{"
                + separator.join(f"{self._key(k)}: {self._flow(v)}" for k, v in value.items())
                + "}"
            )
        if isinstance(value, list):
            return "[" + ", ".join(map(self._flow, value)) + "]"
        if isinstance(value, str) and value not in ("", "-", "true", "false"):
            return self._draw(st.sampled_from([value, f"'{value}'", json.dumps(value)]))
        return json.dumps(value)

    def _behind(self) -> str:
        return self._noted(self._draw(_COMMENTS))

    def _above(self, lines: list[str], pad: str) -> None:
        if comment := self._noted(self._draw(_LINES)):
            lines.append(f"{pad}{comment}")

    def _noted(self, comment: str) -> str:
        if comment:
            self.comments.append(comment.strip())
        return comment


@st.composite
def written(draw: st.DrawFn, values: st.SearchStrategy[dict[str, Any]]) -> tuple[str, list[str]]:
    """A document's text, and the comments in it."""
    writer = _Writer(draw)
    text = writer.document(draw(values))
    if draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    return text, writer.comments
