"""Batches of collections that did not change since they were listed."""

from __future__ import annotations

from moorage.apiserver.endpoints.list_body import KeptBatches
from moorage.apiserver.registry.listing import Listed
from moorage.apiserver.registry.stored import Stored


def _items(count: int, size: int = 100) -> tuple[Stored, ...]:
    """Return objects of a size in bytes."""
    tail = b'"a":"' + b"x" * (size - 7) + b'"}'
    return tuple(Stored(f"pods/ns/{n}", n + 1, tail, {}, ()) for n in range(count))


def _listed(items: tuple[Stored, ...], collection: str = "pods/ns/") -> Listed:
    return Listed(items, 9, collection=collection)


def _body(items: tuple[Stored, ...]) -> bytes:
    return b",".join(b"{" + item.tail for item in items)


def test_a_list_of_the_same_items_gets_the_same_batches() -> None:
    kept, items = KeptBatches(), _items(2000)
    answers = []
    for _ in range(3):
        batches, size = kept.of(_listed(items))
        answers.append(list(batches))
        assert size == 200_000
    assert b"".join(answers[0]) == _body(items)
    assert answers[0] == answers[1] == answers[2]
    assert all(one is other for one, other in zip(answers[1], answers[2], strict=True))


def test_a_change_replaces_what_was_kept() -> None:
    kept, items = KeptBatches(), _items(20)
    for _ in range(2):
        kept.of(_listed(items))
    size = kept.bytes
    changed = (*items[:5], Stored("pods/ns/5", 40, b'"b":1}', {}, ()), *items[6:])
    for _ in range(2):
        assert b"".join(kept.of(_listed(changed))[0]) == _body(changed)
    assert kept.bytes < size
    assert b"".join(kept.of(_listed(items))[0]) == _body(items), "an older list that is still sent"


def test_equal_items_are_not_the_same() -> None:
    kept = KeptBatches()
    for _ in range(3):
        kept.of(_listed(_items(1)))
    other = (Stored("pods/ns/0", 2, b'"b":1}', {}, ()),)
    assert b"".join(kept.of(_listed(other))[0]) == _body(other)


def test_pages_and_selections_are_not_kept() -> None:
    kept, items = KeptBatches(), _items(20)
    for _ in range(3):
        assert b"".join(kept.of(_listed(items, ""))[0]) == _body(items)
    assert kept.bytes == 0


def test_memory_is_bounded() -> None:
    kept = KeptBatches(100_000)
    long, short = _items(260), _items(100)
    for _ in range(3):
        assert b"".join(kept.of(_listed(long))[0]) == _body(long)
    assert kept.bytes == 0, "longer than a quarter of the limit"
    for number in range(30):
        for _ in range(2):
            kept.of(_listed(short, f"pods/{number}/"))
            assert kept.bytes <= 100_000
    newest = list(kept.of(_listed(short, "pods/29/"))[0])
    again = list(kept.of(_listed(short, "pods/29/"))[0])
    assert newest[0] is again[0], "the oldest are dropped first"
