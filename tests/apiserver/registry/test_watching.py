"""Watches whose objects are converted when they are sent: what a selection sees of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from moorage.api import labels
from moorage.apiserver.registry.selection import EVERYTHING, Selection
from moorage.apiserver.registry.stored import Stored
from moorage.apiserver.registry.watching import StoredEvent, seen_events

_LEFT = Selection(labels.parse("side=left"))


class _Converting:
    """A view whose objects have another side than those that are stored."""

    async def see(self, items: Sequence[Stored]) -> list[Stored]:
        sides = {"port": "left", "starboard": "right"}
        return [
            Stored(one.key, one.revision, one.tail, {"side": sides[one.labels["side"]]}, ())
            for one in items
        ]


def _stored(side: str, revision: int = 2) -> Stored:
    tail = b'"metadata":{"resourceVersion":"%d","name":"a"}}' % revision
    return Stored("pods/ns/a", revision, tail, {"side": side}, ())


_IN, _OUT = "port", "starboard"


@pytest.mark.parametrize(
    ("type_", "after", "before", "selected"),
    [
        ("ADDED", _IN, None, ["ADDED left 2"]),
        ("ADDED", _OUT, None, []),
        ("MODIFIED", _IN, _IN, ["MODIFIED left 2"]),
        ("MODIFIED", _IN, _OUT, ["ADDED left 2"]),
        # It leaves the selection as it was, at the revision of its change.
        ("MODIFIED", _OUT, _IN, ["DELETED left 2"]),
        ("MODIFIED", _OUT, _OUT, []),
        ("DELETED", _IN, _IN, ["DELETED left 2"]),
        ("DELETED", _OUT, _OUT, []),
    ],
)
async def test_events_are_those_of_the_selection_as_the_version_has_them(
    type_: str, after: str, before: str | None, selected: list[str]
) -> None:
    event = StoredEvent(type_, _stored(after), None if before is None else _stored(before, 1))
    always = StoredEvent("ADDED", _stored(_IN))
    view = cast("Any", _Converting())
    found = await seen_events(view, _LEFT, [event, always])
    assert [f"{kind} {item.labels['side']} {item.revision}" for kind, item in found] == [
        *selected, "ADDED left 2",
    ]  # fmt: skip
    whole = await seen_events(view, EVERYTHING, [event])
    assert [kind for kind, _ in whole] == [type_]
    assert whole[0][1].labels == {"side": "left" if after == _IN else "right"}
