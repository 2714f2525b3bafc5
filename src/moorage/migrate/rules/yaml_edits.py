"""YAML edits: operations on a document performed on its text, which else stays byte for byte.

Each operation becomes splices at positions of the parser's events, so comments, quotes, blanks and
the order of keys are kept. JSON is YAML's flow style and is edited the same way. The result is
parsed again and each document must have the values that its operations give, or stays as it is.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import yaml

from moorage.api.yaml_text import dump
from moorage.api.yaml_values import YamlError, parse_documents
from moorage.migrate.rules.changes import Insert, LiftSpec, Operation, Remove, Replace, applied
from moorage.migrate.rules.yaml_nodes import (
    LIST,
    MAP,
    SCALAR,
    Node,
    NotInTextError,
    node_at,
    read_nodes,
)

_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\n\r]*", re.MULTILINE)
_BREAK = re.compile(r"\r\n|\n|\r")
_BYTE_ORDER_MARK = "\ufeff"
_MOST_ATTEMPTS = 4
_UNUSUAL = (
    "an edit in place would change other values too, by an anchor or an unusual form; change it by "
    "hand"
)


class CannotEditError(ValueError):
    """The text's form cannot be edited in place; the message says why."""


class Splice(NamedTuple):
    """Characters `start` to `end` of the text become `text`."""

    start: int
    end: int
    text: str


class Edited(NamedTuple):
    """A text after its edits, and why documents could not be edited, by their index."""

    text: str
    failures: dict[int, str]


def edited(text: str, changes: Mapping[int, Sequence[Operation]]) -> Edited:
    """Return a text with the operations performed, given by the index of each document.

    A document stays as it is where its aliases, merges or an unusual form would make the result
    another one than the operations do.
    """
    before = parse_documents(text)
    body = text.removeprefix(_BYTE_ORDER_MARK)
    failures: dict[int, str] = {}
    splices: dict[int, list[Splice]] = {}
    lines, roots = _Lines(body), read_nodes(body)
    for index, operations in changes.items():
        try:
            splices[index] = _splices(lines, roots[index], operations)
        except NotInTextError as error:
            failures[index] = (
                f"its entry {error} comes from an alias or a merge; write it out first"
            )
        except CannotEditError as error:
            failures[index] = str(error)
    expected = {index: applied(before[index], changes[index]) for index in splices}
    for _ in range(_MOST_ATTEMPTS):
        result = _spliced(body, [splice for own in splices.values() for splice in own])
        wrong = _wrong(result, before, {index: expected[index] for index in splices})
        if not wrong:
            return Edited(text[: len(text) - len(body)] + result, failures)
        failures |= dict.fromkeys(wrong & splices.keys(), _UNUSUAL)
        splices = {index: own for index, own in splices.items() if index not in wrong}
    return Edited(text, failures | dict.fromkeys(splices, _UNUSUAL))


def _splices(lines: _Lines, root: Node | None, operations: Sequence[Operation]) -> list[Splice]:
    """Return the splices of a document in order. Raises NotInTextError, CannotEditError."""
    if root is None:
        raise NotInTextError("document")
    editor = _Editor(lines, root)
    splices = sorted(splice for operation in operations for splice in editor.splices(operation))
    if any(left.end > right.start for left, right in pairwise(splices)):
        raise CannotEditError(_UNUSUAL)
    return splices


def _wrong(text: str, before: Sequence[Any], expected: Mapping[int, Any]) -> set[int]:
    """Return the documents that are not what they must be, all where that cannot be said."""
    try:
        after = parse_documents(text)
    except (YamlError, yaml.YAMLError):
        return set(range(len(before)))
    if len(after) != len(before):
        return set(range(len(before)))
    return {
        index
        for index, (old, new) in enumerate(zip(before, after, strict=True))
        if new != expected.get(index, old)
    }


def _spliced(text: str, splices: Sequence[Splice]) -> str:
    parts: list[str] = []
    end = 0
    for splice in sorted(splices):
        parts += (text[end : splice.start], splice.text)
        end = splice.end
    return "".join(parts) + text[end:]


class _Lines:
    """Lines of a text: where each begins, and how the first one ends."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0, *(match.end() for match in _BREAK.finditer(text))]
        match = _BREAK.search(text)
        self.line_break = match[0] if match else "\n"


class _Editor:
    """Splices of the operations on one document."""

    def __init__(self, lines: _Lines, root: Node) -> None:
        self._text = lines.text
        self._starts = lines.starts
        self._break = lines.line_break
        self._root = root

    def splices(self, operation: Operation) -> list[Splice]:
        """Return the splices of an operation. Raises NotInTextError, CannotEditError."""
        match operation:
            case Replace(path, value):
                node = node_at(self._root, path)
                if node.kind != SCALAR:
                    raise NotInTextError(str(path[-1]))
                if node.has_anchor:
                    raise CannotEditError(_UNUSUAL)
                return [Splice(node.start, node.end, _like(node, value))]
            case Insert():
                return [self._insert(operation)]
            case Remove(path, keys):
                return self._remove(self._map(path), frozenset(keys))
            case LiftSpec(path, handler):
                return self._lift(self._map(path), handler)

    def _map(self, path: tuple[str | int, ...]) -> Node:
        node = node_at(self._root, path)
        if node.kind != MAP:
            raise NotInTextError(str(path[-1]) if path else "document")
        return node

    # Lines.

    def _line_of(self, position: int) -> int:
        return bisect_right(self._starts, position) - 1

    def _line_start(self, position: int) -> int:
        return self._starts[self._line_of(position)]

    def _next_line(self, position: int) -> int:
        line = self._line_of(position) + 1
        return self._starts[line] if line < len(self._starts) else len(self._text)

    def _column(self, position: int) -> int:
        return position - self._line_start(position)

    def _is_first_on_line(self, position: int) -> bool:
        return not self._text[self._line_start(position) : position].strip(" ")

    # Insert.

    def _insert(self, operation: Insert) -> Splice:
        node = self._map(operation.path)
        if not node.entries:
            entry = f"{_plain(operation.key)}: {_plain(operation.value)}"
            return Splice(node.start, node.end, f"{{{entry}}}")
        first, _ = node.entries[0]
        entry = f"{_like(first, operation.key)}: {_beside(first, operation.value)}"
        before = node.entry(operation.after) if operation.after else None
        if node.is_flow:
            lead = self._text[node.start + 1 : first.start]
            if before is not None:
                return Splice(before[1].end, before[1].end, f",{lead or ' '}{entry}")
            return Splice(first.start, first.start, f"{entry},{lead or ' '}")
        pad = " " * self._column(first.start)
        if before is not None:
            return self._insert_line(max(before[0].end, before[1].end), f"{pad}{entry}")
        if not self._is_first_on_line(first.start):
            # `- key: …`: the new entry takes the first one's place on that line.
            return Splice(first.start, first.start, f"{entry}{self._break}{pad}")
        # Above the comments that belong to the first entry, right below the map's own key.
        start = self._line_start(first.start)
        if operation.path:
            holder = node_at(self._root, operation.path[:-1])
            if holder.kind == MAP:
                start = self._next_line(holder.entry(operation.path[-1])[0].end)
        return Splice(start, start, f"{pad}{entry}{self._break}")

    def _insert_line(self, position: int, line: str) -> Splice:
        """Insert a line below the one of a position, which may be the text's last."""
        at = self._next_line(position)
        is_broken = self._text[at - 1 : at] in ("\n", "\r")
        return Splice(at, at, f"{line}{self._break}" if is_broken else f"{self._break}{line}")

    # Remove.

    def _remove(self, node: Node, keys: frozenset[str]) -> list[Splice]:
        removed = [key.text in keys for key, _ in node.entries]
        if not keys <= {key.text for key, _ in node.entries}:
            raise NotInTextError(", ".join(sorted(keys)))
        gone = [pair for pair, is_gone in zip(node.entries, removed, strict=True) if is_gone]
        if any(inner.has_anchor for pair in gone for inner in _nodes(pair)):
            raise CannotEditError(_UNUSUAL)
        if node.is_flow:
            return list(self._remove_from_flow(node, removed))
        if all(removed):
            raise CannotEditError("a map would be left without entries; change it by hand")
        return [
            self._remove_lines(entry)
            for entry, is_removed in zip(node.entries, removed, strict=True)
            if is_removed
        ]

    def _remove_from_flow(self, node: Node, removed: Sequence[bool]) -> Iterator[Splice]:
        index = 0
        while index < len(removed):
            if not removed[index]:
                index += 1
                continue
            stop = index
            while stop < len(removed) and removed[stop]:
                stop += 1
            if stop < len(removed):
                yield Splice(node.entries[index][0].start, node.entries[stop][0].start, "")
            elif index:
                yield Splice(node.entries[index - 1][1].end, node.entries[stop - 1][1].end, "")
            else:
                yield Splice(node.start + 1, node.end - 1, "")
            index = stop

    def _remove_lines(self, entry: tuple[Node, Node]) -> Splice:
        key, value = entry
        if not self._is_first_on_line(key.start):
            raise CannotEditError(
                f"its entry {key.text} begins in the middle of a line; change it by hand"
            )
        start, stop = self._line_start(key.start), self._next_line(max(key.end, value.end))
        pad = " " * self._column(key.start)
        comments = self._comments(start, stop, entry)
        return Splice(start, stop, "".join(f"{pad}{text}{self._break}" for text in comments))

    def _comments(self, start: int, stop: int, entry: tuple[Node, Node]) -> list[str]:
        """Return the comments of lines that are about to go: they stay as lines of their own."""
        comments: list[str] = []
        at = start
        scalars = (node for node in _nodes(entry) if node.kind not in (MAP, LIST))
        for node in sorted(scalars, key=lambda node: node.start):
            comments += _COMMENT.findall(self._text[at : node.start])
            at = max(at, node.end)
        return comments + _COMMENT.findall(self._text[at:stop])

    # Lift.

    def _lift(self, node: Node, handler: str) -> list[Splice]:
        key, spec = node.entry("spec")
        if spec.kind != MAP:
            raise NotInTextError("spec")
        names = [pair for pair in spec.entries if pair[0].text == "runtimeHandler"]
        if len(names) > 1:
            raise CannotEditError("it has runtimeHandler twice; remove one")
        if not spec.is_flow:
            renamed: list[Splice] = []
            for name, old in names:
                renamed.append(Splice(name.start, name.end, _like(name, "handler")))
                renamed.append(Splice(old.start, old.end, _like(old, handler)))
            return [*renamed, *self._dedent(key, spec, "" if names else f"handler: {handler}")]
        if node.is_flow and spec.entries:
            return list(self._open(key, spec, names, handler))
        if node.is_flow:
            entry = f"{_like(key, 'handler')}: {_beside(key, handler)}"
            return [Splice(key.start, spec.end, entry)]
        if _BREAK.search(self._text[spec.start : spec.end]):
            raise CannotEditError("its spec is a map in braces over several lines")
        lines = [
            (
                f"{_like(name, 'handler')}: {_beside(name, handler, value.style)}"
                if name.text == "runtimeHandler"
                else self._text[name.start : value.end]
            )
            for name, value in spec.entries
        ]
        if not names:
            lines.insert(0, f"handler: {handler}")
        separator = self._break + " " * self._column(key.start)
        return [Splice(key.start, spec.end, separator.join(lines))]

    def _open(
        self, key: Node, spec: Node, names: Sequence[tuple[Node, Node]], handler: str
    ) -> Iterator[Splice]:
        """Yield the splices that remove the braces of a spec within braces, and its key."""
        first, last = spec.entries[0][0], spec.entries[-1][1]
        lead = ""
        if not names:
            gap = self._text[spec.start + 1 : first.start] or " "
            lead = f"{_like(key, 'handler')}: {_beside(key, handler)},{gap}"
        yield Splice(key.start, first.start, lead)
        for name, old in names:
            yield Splice(name.start, name.end, _like(name, "handler"))
            yield Splice(old.start, old.end, _like(old, handler))
        surplus = self._column(first.start) - self._column(key.start)
        if self._is_first_on_line(first.start) and surplus > 0:
            yield from self._shifted(
                self._line_of(first.start) + 1, self._line_of(last.end), surplus
            )
        yield Splice(last.end, spec.end, "")

    def _shifted(self, line: int, last: int, surplus: int) -> Iterator[Splice]:
        """Yield the splices that move lines to the left, by as many blanks as each has."""
        for number in range(line, min(last + 1, len(self._starts))):
            at = self._starts[number]
            content = self._text[at : self._next_line(at)]
            if width := min(surplus, len(content) - len(content.lstrip(" "))):
                yield Splice(at, at + width, "")

    def _dedent(self, key: Node, spec: Node, line_in_place: str) -> Iterator[Splice]:
        """Yield the splices that remove the line `spec:` and shift the lines below it."""
        first = spec.entries[0][0]
        surplus = self._column(first.start) - self._column(key.start)
        if not (self._is_first_on_line(key.start) and self._is_first_on_line(first.start)):
            raise CannotEditError("its spec begins in the middle of a line; change it by hand")
        start = self._line_start(key.start)
        below = self._next_line(key.end)
        comments = _COMMENT.findall(self._text[key.end : below])
        pad = " " * self._column(key.start)
        kept = [*comments, line_in_place] if line_in_place else comments
        yield Splice(start, below, "".join(f"{pad}{text}{self._break}" for text in kept))
        last = self._last_line_of(spec, self._column(first.start))
        yield from self._shifted(self._line_of(below), last, surplus)

    def _last_line_of(self, spec: Node, column: int) -> int:
        """Return the last line of a block map, comments below it at its indentation included."""
        last = self._line_of(max(spec.end - 1, spec.start))
        line = last + 1
        while line < len(self._starts):
            at = self._starts[line]
            content = self._text[at : self._next_line(at)]
            text = content.strip()
            if text and not (text.startswith("#") and content.startswith(" " * column)):
                break
            if text:
                last = line
            line += 1
        return last


def _nodes(entry: tuple[Node, Node]) -> Iterator[Node]:
    """Yield the nodes of an entry, with all below them."""
    stack = list(entry)
    while stack:
        node = stack.pop()
        yield node
        stack += [inner for pair in node.entries for inner in pair]
        stack += node.items


def _plain(text: str) -> str:
    return dump(text).rstrip("\n")


def _quoted(text: str, quote: str | None) -> str:
    # Texts that migration writes are names: none needs an escape.
    plain = _plain(text)
    if quote and quote in "\"'" and not plain.startswith(('"', "'")):
        return f"{quote}{plain}{quote}"
    return plain


def _like(node: Node, text: str) -> str:
    """Return a text with the quotes of a scalar."""
    return _quoted(text, node.style)


def _beside(key: Node, text: str, quote: str | None = None) -> str:
    """Return the value of a new entry beside an entry with this key: in JSON all is quoted."""
    return _quoted(text, '"' if key.style == '"' else quote)
