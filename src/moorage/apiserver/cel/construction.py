"""Constructions: `Object{…}` and `JSONPatch{…}` in the expressions of mutating policies.

The CEL library constructs only messages whose fields are declared. An `Object.spec{…}` may have any
field, so the text is rewritten to a map, which has the type's name under `TYPE_KEY`; parsing, type
checks and errors remain the library's. Errors are shown in the text as it was written. The same
pass changes the form of the calls in `_RENAMED`. Source:
API docs "Mutating Admission Policy"; apiserver `cel/mutation` of Kubernetes 1.36 (types by field
path).
"""

from __future__ import annotations

import bisect
import operator
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

TYPE_KEY = "\0"
"""Key of a constructed map that holds the name of its type: no field has this name."""

OBJECT, JSON_PATCH = "Object", "JSONPatch"

_PATCH_TEXTS = ("op", "from", "path")
_PATCH_FIELDS = (*_PATCH_TEXTS, "value")


class _Renamed(NamedTuple):
    """A call that is made in another form: its new name, and what stands around its arguments."""

    name: str
    start: str
    end: str


_RENAMED = {
    # These take arguments of any type, which functions of ours can only in a list.
    "indexOf": _Renamed("kubernetes_indexOf", "([", "])"),
    "lastIndexOf": _Renamed("kubernetes_lastIndexOf", "([", "])"),
    # These return optional values, which functions of ours cannot: a map with one key or none.
    "named": _Renamed("kubernetes_named", "(", ").?format"),
    "validate": _Renamed("kubernetes_validate", "(", ").?errors"),
}
"""Calls of members that the library does not take as Kubernetes has them."""

_BESIDE_FIELDS = frozenset("?:,}")
_TOKEN = re.compile(
    r"""
      (?P<space>\s+|//[^\n]*)
    | (?P<text>
        [rR][bB]?(?:\"\"\".*?\"\"\"|'''.*?'''|"[^"\n]*"|'[^'\n]*')
      | [bB][rR](?:\"\"\".*?\"\"\"|'''.*?'''|"[^"\n]*"|'[^'\n]*')
      | [bB]?(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''
               |"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
      | `[^`\n]*`
      )
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<other>\d[A-Za-z0-9_.]*|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ERROR = re.compile(r"(ERROR: <input>:)(\d+):(\d+): (.*)")
_SHOWN_SOURCE = re.compile(r"\n \| .*\n \| \.*\^?")


class ConstructionError(ValueError):
    """A construction has a field that its type does not have; `offset` is where in the text."""

    def __init__(self, offset: int, text: str) -> None:
        super().__init__(text)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int


@dataclass(slots=True)
class _Bracket:
    """An open bracket. `type_name`: the construction it belongs to; `end`: what closes it."""

    type_name: str = ""
    end_of_value: str = ""
    wants_field: bool = False
    end: str = ""


@dataclass(slots=True)
class _Output:
    """The rewritten text, with the places in the original from which its pieces are."""

    pieces: list[str] = field(default_factory=list)
    starts: list[tuple[int, int]] = field(default_factory=list)
    length: int = 0
    renamed: _Renamed | None = None
    """The call whose arguments the next bracket has."""

    def add(self, text: str, source: int) -> None:
        self.starts.append((self.length, source))
        self.pieces.append(text)
        self.length += len(text)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """An expression as the library takes it, and as it was written."""

    text: str
    source: str
    starts: tuple[tuple[int, int], ...]

    def original_error(self, error: str) -> str:
        """Return a compile error with the places and lines of the original."""
        if self.text == self.source:
            return error
        plain = _SHOWN_SOURCE.sub("", error)
        for name, renamed in _RENAMED.items():
            plain = plain.replace(renamed.name, name)
        return _ERROR.sub(self._shown, plain)

    def _shown(self, match: re.Match[str]) -> str:
        offset = self._offset(_offset_of(self.text, int(match[2]), int(match[3])))
        return f"{match[1]}{shown_error(self.source, offset, match[4])}"

    def _offset(self, offset: int) -> int:
        """Return the place in the original for one in the rewritten text.

        What was inserted is at the place before which it was.
        """
        index = bisect.bisect_right(self.starts, offset, key=operator.itemgetter(0)) - 1
        start, origin = self.starts[index]
        following = self.starts[index + 1 :]
        end = following[0][1] if following else len(self.source)
        return min(origin + offset - start, max(origin, end))


def _offset_of(text: str, line: int, column: int) -> int:
    lines = text.split("\n")
    return sum(len(one) + 1 for one in lines[: line - 1]) + column - 1


def shown_error(source: str, offset: int, message: str) -> str:
    """Return an error as the library shows it: line, column, message, and the line with a mark."""
    line = source.count("\n", 0, offset)
    column = offset - (source.rfind("\n", 0, offset) + 1)
    shown = source.split("\n")[line]
    return f"{line + 1}:{column + 1}: {message}\n | {shown}\n | {'.' * column}^"


def rewrite(expression: str, *, has_constructions: bool = False) -> Rewritten:
    """Return an expression as the library takes it. Raises ConstructionError."""
    if not has_constructions and not any(name in expression for name in _RENAMED):
        return Rewritten(expression, expression, ())
    output = _Output()
    brackets: list[_Bracket] = []
    tokens = list(_tokens(expression))
    index = 0
    while index < len(tokens):
        token = tokens[index]
        top = brackets[-1] if brackets else _Bracket()
        if token.kind == "name" and has_constructions and (not top.wants_field):
            end, name = _construction(tokens, index)
            if name:
                _open(output, brackets, tokens[index : end + 1], name)
                index = end + 1
                continue
        if token.kind == "name":
            _name(output, tokens, index, top)
        elif top.wants_field and token.kind != "space" and token.text not in _BESIDE_FIELDS:
            raise ConstructionError(token.start, "Syntax error: the name of a field is missing")
        elif token.kind == "other":
            _punctuation(output, brackets, token, top)
        else:
            output.add(token.text, token.start)
        index += 1
    text = "".join(output.pieces)
    return Rewritten(text, expression, tuple(output.starts))


def _tokens(expression: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(expression):
        yield _Token(str(match.lastgroup), match[0], match.start())


def _construction(tokens: list[_Token], index: int) -> tuple[int, str]:
    """Return the place of the brace after a type's name that starts here, and the name."""
    first = tokens[index].text
    if first not in (OBJECT, JSON_PATCH) or _before(tokens, index) == ".":
        return index, ""
    names, place = [first], _after(tokens, index)
    while place < len(tokens) and tokens[place].text == "." and first == OBJECT:
        place = _after(tokens, place)
        if place >= len(tokens) or tokens[place].kind not in ("name", "text"):
            return index, ""
        names.append(tokens[place].text.strip("`"))
        place = _after(tokens, place)
    if place >= len(tokens) or tokens[place].text != "{":
        return index, ""
    return place, ".".join(names)


def _after(tokens: list[_Token], index: int) -> int:
    index += 1
    while index < len(tokens) and tokens[index].kind == "space":
        index += 1
    return index


def _before(tokens: list[_Token], index: int) -> str:
    index -= 1
    while index >= 0 and tokens[index].kind == "space":
        index -= 1
    return tokens[index].text if index >= 0 else ""


def _open(output: _Output, brackets: list[_Bracket], tokens: list[_Token], name: str) -> None:
    for token in tokens[:-1]:
        if token.kind == "space":
            # Line breaks stay, so that errors have the lines of the original.
            output.add(token.text, token.start)
    output.add(f'{{"\\x00": dyn("{name}"), ', tokens[0].start)
    brackets.append(_Bracket(name, wants_field=True))


def _name(output: _Output, tokens: list[_Token], index: int, top: _Bracket) -> None:
    token = tokens[index]
    if top.wants_field:
        _field(output, tokens, index, top)
        return
    renamed = _RENAMED.get(token.text)
    following = _after(tokens, index)
    is_call = following < len(tokens) and tokens[following].text == "("
    if renamed is not None and is_call and _before(tokens, index) == ".":
        output.add(renamed.name, token.start)
        output.renamed = renamed
    else:
        output.add(token.text, token.start)


def _field(output: _Output, tokens: list[_Token], index: int, top: _Bracket) -> None:
    token = tokens[index]
    if top.type_name == JSON_PATCH and token.text not in _PATCH_FIELDS:
        raise ConstructionError(token.start, f"undefined field '{token.text}'")
    output.add(f'"{token.text}"', token.start)


def _punctuation(output: _Output, brackets: list[_Bracket], token: _Token, top: _Bracket) -> None:
    match token.text:
        case "(" if output.renamed is not None:
            brackets.append(_Bracket(end=output.renamed.end))
            output.add(output.renamed.start, token.start)
            output.renamed = None
        case "{" | "[" | "(":
            brackets.append(_Bracket())
            output.add(token.text, token.start)
        case "}" | "]" | ")":
            if brackets:
                _close_value(output, top, token.start)
                brackets.pop()
            output.add(top.end or token.text, token.start)
        case ":" if top.wants_field:
            output.add(_start_of_value(output, top), token.start)
        case "," if top.type_name:
            _close_value(output, top, token.start)
            top.wants_field = True
            output.add(token.text, token.start)
        case _:
            output.add(token.text, token.start)


def _start_of_value(output: _Output, top: _Bracket) -> str:
    """Return the text before the value of a field: values of all types fit into one map."""
    top.wants_field = False
    written = [piece for piece in output.pieces[-6:] if piece.strip()]
    if len(written) > 1 and written[-2].strip() == "?":
        return ":"
    if top.type_name == JSON_PATCH and written[-1].strip('"') in _PATCH_TEXTS:
        # An addition of texts, so that the checker refuses what is no text.
        top.end_of_value = "))"
        return ': dyn("" + ('
    top.end_of_value = ")"
    return ": dyn("


def _close_value(output: _Output, top: _Bracket, start: int) -> None:
    if top.end_of_value:
        output.add(top.end_of_value, start)
        top.end_of_value = ""


def type_mismatches(value: Any, path: str = OBJECT) -> Iterator[str]:
    """Yield the constructions whose type is not that of the field where they stand."""
    if isinstance(value, list):
        for item in value:
            yield from type_mismatches(item, path)
    elif isinstance(value, Mapping):
        name = value.get(TYPE_KEY)
        if name is not None and name != path:
            yield (
                f'unexpected type name "{name}", expected "{path}", which matches field name path '
                "from root Object type"
            )
        for key, item in value.items():
            if key != TYPE_KEY:
                at = path if name is None else f"{path}.{key}"
                yield from type_mismatches(item, at)


def without_types(value: Any) -> Any:
    """Return a value without the names of types."""
    if isinstance(value, list):
        return [without_types(item) for item in value]
    if isinstance(value, Mapping):
        return {key: without_types(item) for key, item in value.items() if key != TYPE_KEY}
    return value
