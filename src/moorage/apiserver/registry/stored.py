"""Stored objects: the bytes sent to clients, and the values that selectors match.

The value under a key is the object's JSON without kind, apiVersion and resourceVersion, metadata
first: `{"metadata":{…},…}`. The revision is known only after the commit, so it is inserted once,
when the item is created; GET, LIST and WATCH send the same bytes after a short prefix.

A custom resource has a mark before that, `{"@":"v1.3f…","metadata":…}`: the version that it is
stored in and a digest of the structure it was fitted to. No client can write one: what a body holds
comes after the metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import attrgetter
from sys import intern
from typing import Any

import msgspec

from moorage.apiserver.registry.kind import Kind, Obj, SelectableField

_HEAD = b'"metadata":{"resourceVersion":"'
_VALUE_HEAD = b'{"metadata":{'
_MARK_HEAD = b'{"@":"'
_REVISION = "resourceVersion"
_ENVELOPE = frozenset(("apiVersion", "kind", "metadata"))
# Memory of two short strings and their dict entry.
_LABEL_BYTES = 250


class Stored:
    """One object at one revision, immutable and shared by all readers.

    `tail` is the object's JSON after its opening brace, from `"metadata"` to the closing brace.
    `fields` holds the values of the kind's selectable fields, in the kind's order; `mark` is empty
    but for custom resources.
    """

    __slots__ = ("fields", "key", "labels", "mark", "revision", "tail")

    is_stored = True
    """Whether the key has it at its revision: what is made of it may be remembered by these."""

    def __init__(
        self,
        key: str,
        revision: int,
        tail: bytes,
        labels: Mapping[str, str],
        fields: tuple[str, ...],
        mark: str = "",
    ) -> None:
        self.key = key
        self.revision = revision
        self.tail = tail
        self.labels = labels
        self.fields = fields
        self.mark = mark

    @staticmethod
    def unsaved(key: str, value: bytes, mark: str = "") -> Stored:
        """Return an object that a dry run did not store: it has no resourceVersion."""
        return _Shown(key, 0, value[1:], {}, (), mark)

    def shown(self) -> Stored:
        """Return the same object as one that no key has: of a dry run, or of a deletion."""
        return _Shown(self.key, self.revision, self.tail, self.labels, self.fields, self.mark)

    @property
    def size(self) -> int:
        """The bytes it occupies in memory: labels are held a second time, as a dict of strings."""
        return len(self.tail) + _LABEL_BYTES * len(self.labels)

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def namespace(self) -> str:
        parts = self.key.split("/")
        return parts[1] if len(parts) == 3 else ""

    @property
    def obj(self) -> Obj:
        """Return a newly decoded copy (storage version, no kind), which the caller may change."""
        decoded: Obj = msgspec.json.decode(b"{" + self.tail)
        return decoded

    def at(self, revision: int) -> Stored:
        """Return the same object at another revision, as in a DELETED event."""
        rest = self.tail[len(_HEAD) + len(str(self.revision)) :]
        tail = _HEAD + str(revision).encode() + rest
        return _Shown(self.key, revision, tail, self.labels, self.fields, self.mark)

    def seen_as(self, obj: Obj, mark: str) -> Stored:
        """Return the same object with other content: as another version has it."""
        metadata = {key: value for key, value in obj["metadata"].items() if key != _REVISION}
        rest = {key: value for key, value in obj.items() if key not in _ENVELOPE}
        shown = {"metadata": {_REVISION: str(self.revision), **metadata}, **rest}
        labels = metadata.get("labels") or _NO_LABELS
        tail = msgspec.json.encode(shown)[1:]
        return type(self)(self.key, self.revision, tail, labels, (), mark)

    @property
    def value(self) -> bytes:
        """Return the bytes as stored, without the revision and the mark."""
        skipped = len(_HEAD) + len(str(self.revision)) + len(b'",')
        return _VALUE_HEAD + self.tail[skipped:]


class _Shown(Stored):
    """An object that is answered with a revision at which its key has another one, or none."""

    __slots__ = ()
    is_stored = False


def to_value(obj: Obj, mark: str = "") -> bytes:
    """Return the bytes to store for an object. Its metadata must not be empty."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != _REVISION}
    rest = {key: value for key, value in obj.items() if key not in _ENVELOPE}
    value = msgspec.json.encode({"metadata": metadata, **rest})
    return b'%b%b",%b' % (_MARK_HEAD, mark.encode(), value[1:]) if mark else value


def from_value(value: bytes) -> Obj:
    """Return the object of stored bytes."""
    decoded: Obj = msgspec.json.decode(value)
    return decoded


class StoredFactory:
    """Creates the items of the watch cache, with the selectable fields of each table."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._selectable = {kind.table: kind.selectable for kind in kinds}
        self._readers: dict[str, Callable[[bytes], _Head]] = {}

    def __call__(self, key: str, revision: int, value: bytes) -> Stored:
        """Return the item for a committed value.

        A table without kind (data of a later version, kept but not served) has labels only.
        """
        table = key.partition("/")[0]
        read = self._readers.get(table)
        if read is None:
            # Compiled at its first use: most of the API's kinds are never used by a cluster.
            read = self._readers[table] = _head_reader(self._selectable.get(table, ())).read
        labels, fields = read(value)
        start, mark = len(_VALUE_HEAD), ""
        if value.startswith(_MARK_HEAD):
            end = value.index(b'"', len(_MARK_HEAD))
            mark = intern(value[len(_MARK_HEAD) : end].decode())
            start = end + len(_VALUE_HEAD) + 1
        tail = b'%b%d",%b' % (_HEAD, revision, value[start:])
        return Stored(key, revision, tail, labels, fields, mark)


_NO_LABELS: Mapping[str, str] = {}


@lru_cache(maxsize=128)
def field_reader(selectable: tuple[SelectableField, ...]) -> Callable[[Stored], tuple[str, ...]]:
    """Return a function that reads selectable fields when they are asked for.

    For kinds whose selectable fields may change while objects of theirs are stored. A field below
    a value that is no object counts as absent, and the other fields with it.
    """
    reader = _head_reader(selectable)
    absent = tuple(field.default for field in selectable)

    def read(item: Stored) -> tuple[str, ...]:
        try:
            return reader.read(item.value)[1]
        except msgspec.ValidationError:
            return absent

    return read


_Head = tuple[Mapping[str, str], tuple[str, ...]]
"""Labels, and the values of selectable fields."""


class _HeadReader:
    """Reads labels and selectable fields from a value, skipping the rest at C speed."""

    def __init__(self, selectable: tuple[SelectableField, ...]) -> None:
        tree: _Tree = {"metadata": {"labels": {}}}
        for field in selectable:
            for path in filter(None, (field.path, field.fallback)):
                node = tree
                for step in path:
                    node = node.setdefault(step, {})
        self._decode = msgspec.json.Decoder(_struct(tree)).decode
        fallbacks = [number for number, field in enumerate(selectable) if field.fallback]
        paths = [
            ("metadata", "labels"),
            *(field.path for field in selectable),
            *(selectable[number].fallback for number in fallbacks),
        ]
        self._members = [_members(tree, path) for path in paths]
        self._get_all = attrgetter(*map(".".join, self._members), "f0")
        self._defaults = [field.default for field in selectable]
        self._defaults += [selectable[number].default for number in fallbacks]
        self._fallbacks = [(n, len(selectable) + i) for i, n in enumerate(fallbacks)]

    def read(self, value: bytes) -> _Head:
        """Parse an object's bytes. Hot path: every write, and each object's load."""
        head: Any = self._decode(value)
        try:
            labels, *values, _ = self._get_all(head)
        except AttributeError:
            # An object on the way is null.
            labels, *values = [_value_at(head, members) for members in self._members]
        # Thousands of pods have the same phase, scheduler, account and node.
        texts = [
            intern(found) if type(found) is str else _text(found, default)
            for found, default in zip(values, self._defaults, strict=True)
        ]
        for number, fallback in self._fallbacks:
            texts[number] = texts[number] or texts[fallback]
        return labels or _NO_LABELS, tuple(texts[: len(texts) - len(self._fallbacks)])


@lru_cache(maxsize=128)
def _head_reader(selectable: tuple[SelectableField, ...]) -> _HeadReader:
    return _HeadReader(selectable)


_Tree = dict[str, "_Tree"]
"""Names of fields, each with those below it."""


def _struct(tree: _Tree) -> type[msgspec.Struct]:
    """Return a type whose members `f0`, `f1`, … stand for fields of any name."""
    members = []
    for index, below in enumerate(tree.values()):
        # What is absent has all its fields absent.
        inner = _struct(below) if below else None
        members.append((f"f{index}", (inner or Any) | None, inner() if inner else None))
    rename = {f"f{index}": key for index, key in enumerate(tree)}
    return msgspec.defstruct("Head", members, rename=rename, frozen=True, gc=False)


def _text(value: Any, default: str) -> str:
    if value is None:
        return default
    if isinstance(value, bool):
        return "true" if value else "false"
    return intern(str(value))


def _value_at(head: Any, members: list[str]) -> Any:
    for member in members:
        head = getattr(head, member)
        if head is None:
            return None
    return head


def _members(tree: _Tree, path: tuple[str, ...]) -> list[str]:
    """Return the members that stand for the fields of a path."""
    members = []
    for step in path:
        members.append(f"f{list(tree).index(step)}")
        tree = tree[step]
    return members
