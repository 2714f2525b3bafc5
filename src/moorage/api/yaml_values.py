"""YAML documents as JSON values, read from the parser's events under bounds.

No node tree is composed first: depth, number of values and alias expansion are counted as events
arrive, so a hostile document costs no more than a plain one of its size. All code is
iterative, because libyaml's composer recurses in C without a bound. Scalars follow YAML 1.1 as
Go's yaml.v2 resolves them; dates stay text, and so do `y` and `n`, which most writers do not quote.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import yaml

from moorage.api import bounds

MAX_ALIASED_BYTES: Final = 3 * 1024 * 1024
"""Limit on the JSON bytes that aliases add: the size of the largest request body."""

MAX_REPEATED: Final = 100
"""Limit on reported repeated keys. Source: sigs.k8s.io/json keeps 100 strict errors."""

_MAX_DIRECTIVES = 16
_SHOWN = 100
_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# libyaml compares each %TAG with all previous ones, in one call that holds the GIL.
_DIRECTIVE = re.compile("(?:^|[\n\r\x85\u2028\u2029\ufeff])%")

_TAG = "tag:yaml.org,2002:"
_MERGE = "<<"
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("yes", "Yes", "YES", "true", "True", "TRUE"), True),
    **dict.fromkeys(("on", "On", "ON"), True),
    **dict.fromkeys(("no", "No", "NO", "false", "False", "FALSE"), False),
    **dict.fromkeys(("off", "Off", "OFF"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_NUMBER_START = frozenset("+-.0123456789")
_LONGEST_NUMBER = 400
_INTEGER = re.compile(r"([-+]?)(?:(0b[01]+)|0o?([0-7]+)|(0x[0-9a-fA-F]+)|(0|[1-9][0-9]*))")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_MOST_UINT64 = 2**64 - 1
_LEAST_INT64 = -(2**63)
# Beyond this Go writes a float64 with an exponent.
_LONGEST_PLAIN_FLOAT = 1e21


class YamlError(ValueError):
    """The text is not YAML, or has no JSON form, or exceeds a bound. The text is one line."""


@dataclass(slots=True)
class Document:
    """A document's value, and a complaint per key that a map has twice (the last one wins)."""

    value: Any
    repeated: list[str]


def parse_document(text: bytes | str) -> Document:
    """Parse a text with one document; the value is None when the text is empty.

    Raises YamlError, for several documents too.
    """
    documents = iter_documents(text)
    first = next(documents, None)
    if first is None:
        return Document(None, [])
    if next(documents, None) is not None:
        raise YamlError("expected a single document in the stream, but found another document")
    return first


def parse_documents(text: bytes | str) -> list[Any]:
    """Return the values of all documents of a text. The bounds apply to all together."""
    return [document.value for document in iter_documents(text)]


def iter_documents(text: bytes | str) -> Iterator[Document]:
    """Yield the documents of a text, one at a time. Raises YamlError."""
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            raise YamlError(f"invalid UTF-8 at byte {error.start}") from error
    if len(_DIRECTIVE.findall(text)) > _MAX_DIRECTIVES:
        raise YamlError("document has too many directives")
    try:
        parser = _Parser(text)
        builder = _Builder()
        while (event := parser.get_event()) is not None:
            if isinstance(event, yaml.DocumentEndEvent):
                yield builder.finish()
            else:
                builder.add(event)
    except YamlError:
        raise
    except (yaml.YAMLError, UnicodeError) as error:
        raise YamlError(_one_line(error)) from error


@dataclass(slots=True)
class _Level:
    """A map or list under construction."""

    value: dict[str, Any] | list[Any]
    anchor: str | None
    line: int
    key: Any = None
    has_key: bool = False
    merges: bool = False
    """The pending key is `<<`: its value is merged."""
    merged: dict[str, Any] = field(default_factory=dict)


class _Anchored:
    """The value of an anchor; encoded on first use."""

    __slots__ = ("encoded", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.encoded: bytes | None = None


class _Builder:
    """Builds documents one by one; the bounds apply to all of them together."""

    def __init__(self) -> None:
        self._values = 0
        self._aliased_bytes = 0
        self._start()

    def _start(self) -> None:
        self._levels: list[_Level] = []
        self._anchors: dict[str, _Anchored | None] = {}
        self._repeated: list[str] = []
        self._root: Any = None
        self._has_aliases = False

    def finish(self) -> Document:
        document = Document(self._root, self._repeated)
        excess = bounds.exceeded(document.value) if self._has_aliases else ""
        if excess:
            raise YamlError(f"document with its aliases {excess}")
        self._start()
        return document

    def add(self, event: Any) -> None:
        """Process the next event of the document. Raises YamlError."""
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self._count()
            value = _scalar(event)
            if event.anchor:
                self._anchors[event.anchor] = _Anchored(value)
            self._place(value, event)
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            self._open(event, {} if kind is yaml.MappingStartEvent else [])
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self._close(event)
        elif kind is yaml.AliasEvent:
            self._place(self._alias(event), event)

    def _open(self, event: Any, value: dict[str, Any] | list[Any]) -> None:
        self._count()
        if event.tag not in (None, "!", f"{_TAG}map", f"{_TAG}seq"):
            raise _no_form(event)
        if len(self._levels) >= bounds.MAX_DEPTH:
            raise YamlError(bounds.TOO_DEEP)
        if self._levels and not self._takes_value():
            raise YamlError(f"line {_line(event)}: a map key must be a scalar")
        if event.anchor:
            # Until it is complete, an alias to it would make a value that contains itself.
            self._anchors[event.anchor] = None
        self._levels.append(_Level(value, event.anchor, _line(event)))

    def _takes_value(self) -> bool:
        level = self._levels[-1]
        return level.has_key or isinstance(level.value, list)

    def _close(self, event: Any) -> None:
        level = self._levels.pop()
        if level.merged and isinstance(level.value, dict):
            level.value = {**level.merged, **level.value}
        if level.anchor:
            self._anchors[level.anchor] = _Anchored(level.value)
        self._place(level.value, event)

    def _alias(self, event: Any) -> Any:
        """Return a copy of the anchor's value, so that no value is shared."""
        name = event.anchor
        if name not in self._anchors:
            raise YamlError(f"line {_line(event)}: unknown anchor '{_short(name)}' referenced")
        anchored = self._anchors[name]
        if anchored is None:
            raise YamlError(f"line {_line(event)}: anchor '{_short(name)}' value contains itself")
        if anchored.encoded is None:
            anchored.encoded = msgspec.json.encode(anchored.value)
        self._aliased_bytes += len(anchored.encoded)
        if self._aliased_bytes > MAX_ALIASED_BYTES:
            raise YamlError("document contains excessive aliasing")
        self._has_aliases = True
        self._count()
        return msgspec.json.decode(anchored.encoded)

    def _place(self, value: Any, event: Any) -> None:
        if not self._levels:
            self._root = value
            return
        level = self._levels[-1]
        if isinstance(level.value, list):
            level.value.append(value)
        elif not level.has_key:
            level.merges = value == _MERGE and _is_plain(event)
            level.key = _key(value, event)
            level.has_key = True
            level.line = _line(event)
        else:
            level.has_key = False
            if level.merges:
                self._merge(level, value)
            else:
                self._set(level, level.value, value)

    def _set(self, level: _Level, entries: dict[str, Any], value: Any) -> None:
        if level.key in entries and len(self._repeated) < MAX_REPEATED:
            self._repeated.append(f'line {level.line}: key "{level.key}" already set in map')
        entries[level.key] = value

    def _merge(self, level: _Level, value: Any) -> None:
        """Merge maps: the map's own keys and those merged before take precedence."""
        for source in value if isinstance(value, list) else [value]:
            if not isinstance(source, dict):
                raise YamlError(
                    f"line {level.line}: map merge requires map or sequence of maps as the value"
                )
            for key, item in source.items():
                level.merged.setdefault(key, item)

    def _count(self) -> None:
        self._values += 1
        if self._values > bounds.MAX_VALUES:
            raise YamlError(f"document has {bounds.TOO_MANY}")


def _is_plain(event: Any) -> bool:
    return type(event) is yaml.ScalarEvent and event.implicit[0]


def _scalar(event: Any) -> Any:
    """Return the JSON value of a scalar. Raises YamlError if it has none."""
    tag, text = event.tag, event.value
    if tag is None:
        value = _resolved(text) if event.implicit[0] else text
    elif tag in ("!", f"{_TAG}str"):
        return text
    else:
        value = _resolved(text)
        if not _TAGGED.get(tag, _never)(value):
            raise _no_form(event)
    if isinstance(value, float) and not math.isfinite(value):
        raise YamlError(f"line {_line(event)}: the number {text} has no JSON form")
    return value


def _no_form(event: Any) -> YamlError:
    return YamlError(f"line {_line(event)}: a value tagged {_short(event.tag)} has no JSON form")


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _never(_: Any) -> bool:
    return False


_TAGGED = {
    f"{_TAG}null": lambda value: value is None,
    f"{_TAG}bool": lambda value: isinstance(value, bool),
    f"{_TAG}int": lambda value: type(value) is int,
    f"{_TAG}float": lambda value: type(value) in (int, float),
}


def _resolved(text: str) -> Any:
    """Resolve a plain scalar to its JSON value."""
    if not text or text[0] not in _NUMBER_START:
        return _WORDS.get(text, text)
    if len(text) > _LONGEST_NUMBER:
        return text
    plain = text.replace("_", "")
    match = _INTEGER.fullmatch(plain)
    if match is not None:
        sign, binary, octal, hexadecimal, decimal = match.groups()
        number = (
            int(binary, 2) if binary else int(octal, 8) if octal
            else int(hexadecimal, 16) if hexadecimal else int(decimal)
        )  # fmt: skip
        number = -number if sign == "-" else number
        if _LEAST_INT64 <= number <= _MOST_UINT64:
            return number
    if _FLOAT.fullmatch(plain):
        value = float(plain)
        if math.isfinite(value):
            is_whole = value.is_integer() and abs(value) < _LONGEST_PLAIN_FLOAT
            return int(value) if is_whole else value
    return _WORDS.get(text, text)


def _key(value: Any, event: Any) -> str:
    """Return a map key as JSON text. Raises YamlError for null and non-scalars."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise YamlError(f"line {_line(event)}: a map key must be a string, number or boolean")


def _line(event: Any) -> int:
    line: int = event.start_mark.line + 1
    return line


def _one_line(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    where = f"line {mark.line + 1}: " if mark else ""
    return where + " ".join(str(problem).split())
