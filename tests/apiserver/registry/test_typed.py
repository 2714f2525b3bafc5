"""Typed views of the cache."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable

import msgspec

from moorage.apiserver.registry.stored import Stored
from moorage.apiserver.registry.typed import TypedReader
from tests.apiserver.registry.sample_kinds import GRACEFUL as POD


class _Text(msgspec.Struct):
    text: str


class _Shelf:
    """The part of a watch cache that readers use: one item at a time under any key."""

    def __init__(self) -> None:
        self.item: Stored | None = None

    def get(self, _: str) -> Stored | None:
        return self.item

    def scan(self, _: str) -> Iterable[Stored]:
        return [] if self.item is None else [self.item]


def _item(number: int, size: int) -> Stored:
    tail = b'"text":"' + b"x" * size + b'"}'
    return Stored(POD.key("default", f"p{number}"), number, tail, {}, ())


def test_an_object_is_decoded_once_a_revision() -> None:
    shelf = _Shelf()
    reader = TypedReader(shelf, POD, _Text)  # type: ignore[arg-type,type-var]  # neither is a whole one
    shelf.item = _item(1, 3)
    first = reader.get("p1", "default")
    assert first is not None
    assert first.text == "xxx"
    assert reader.get("p1", "default") is first


def test_what_is_remembered_has_a_size() -> None:
    # Objects that come and go leave what they were decoded to behind.
    shelf = _Shelf()
    reader = TypedReader(shelf, POD, _Text)  # type: ignore[arg-type,type-var]  # neither is a whole one
    tracemalloc.start()
    try:
        for number in range(100):
            shelf.item = _item(number, 1_000_000)
            assert reader.get(f"p{number}", "default") is not None
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 20_000_000
