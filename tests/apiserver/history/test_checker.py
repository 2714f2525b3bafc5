"""The checker finds what it is for: each wrong answer in a history that is else true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.apiserver.history.checker import check
from tests.apiserver.history.operations import Change, Get, History, Listing, Stream, Version, Write

KEY, OTHER = "leases/a", "leases/b"
A1, A2, A4 = Version(1, "u1", "v1"), Version(2, "u1", "v2"), Version(5, "u4", "v5")
A3 = Version(4, "u1", "v2")
"""The deletion of A2."""
B1 = Version(3, "u2", "v3")


def true_history() -> History:
    """Creation, update, deletion and creation again, one after the other, and what was read."""
    return History(
        writes=[
            Write("POST", KEY, 1, "v1", status=201, version=A1, end=2),
            Write("PUT", KEY, 3, "v2", 1, "u1", status=200, version=A2, end=4),
            Write("PUT", KEY, 3.5, "x", 1, "u1", status=409, reason="Conflict", end=4.5),
            Write("POST", OTHER, 5, "v3", status=201, version=B1, end=6),
            Write("DELETE", KEY, 7, status=200, end=8),
            Write("PUT", KEY, 8.5, "y", 2, "u1", status=409, reason="Conflict", end=8.6),
            Write("PUT", KEY, 8.6, "z", 2, status=404, reason="NotFound", end=8.7),
            Write("POST", KEY, 9, "v5", status=201, version=A4, end=10),
        ],
        gets=[Get(KEY, 4.6, 5, A2), Get(KEY, 8.2, 8.4, None), Get(KEY, 7.1, 7.9, A2)],
        lists=[
            Listing("leases", 6.1, 6.9, 3, {KEY: A2, OTHER: B1}),
            Listing("leases", 6.1, 6.9, 1, {KEY: A1}, exact=1),
        ],
        streams=[
            Stream("leases", 1, [Change("MODIFIED", KEY, A2), 2, Change("ADDED", OTHER, B1), 3]),
            Stream("leases", 3, [Change("DELETED", KEY, A3), 4]),
        ],
        scribes={
            "leases": [
                Change("ADDED", KEY, A1),
                Change("MODIFIED", KEY, A2),
                Change("ADDED", OTHER, B1),
                Change("DELETED", KEY, A3),
                Change("ADDED", KEY, A4),
            ]
        },
    )


def test_a_true_history_is_accepted() -> None:
    assert check(true_history()) == []


def stale_get(history: History) -> None:
    history.gets.append(Get(KEY, 6.5, 6.6, A1))


def get_of_the_deleted(history: History) -> None:
    history.gets.append(Get(KEY, 10.5, 10.6, A2))


def lost_write(history: History) -> None:
    history.scribes["leases"] = [c for c in history.scribes["leases"] if c.key != OTHER]
    history.lists.clear()
    history.streams.clear()


def two_winners(history: History) -> None:
    write = Write("PUT", KEY, 4.7, "v9", 1, "u1", status=200, version=Version(6, "u1", "v9"))
    history.writes.append(write)
    history.scribes["leases"].append(Change("MODIFIED", KEY, Version(6, "u1", "v9")))


def refused_and_done(history: History) -> None:
    history.writes[-1] = replace(history.writes[-1], status=409, reason="Conflict", version=None)


def put_by_uid_creates(history: History) -> None:
    history.writes[-1] = replace(history.writes[-1], method="PUT", uid="u1")


def conflict_without_object(history: History) -> None:
    history.writes[6].status, history.writes[6].reason = 409, "Conflict"


def not_found_while_there(history: History) -> None:
    history.writes[2].status, history.writes[2].reason = 404, "NotFound"


def list_without_an_item(history: History) -> None:
    del history.lists[0].items[KEY]


def exact_list_of_another_revision(history: History) -> None:
    history.lists[1].revision = 2


def stale_list(history: History) -> None:
    history.lists.append(Listing("leases", 6.1, 6.9, 1, {KEY: A1}))


def bookmark_before_its_event(history: History) -> None:
    history.streams.append(Stream("leases", 2, [3, Change("ADDED", OTHER, B1)]))


def watch_with_a_gap(history: History) -> None:
    history.streams.append(Stream("leases", 1, [Change("ADDED", OTHER, B1)]))


def watch_that_repeats(history: History) -> None:
    event = Change("ADDED", OTHER, B1)
    history.streams.append(Stream("leases", 2, [event, event]))


def uid_given_twice(history: History) -> None:
    history.scribes["leases"][-1] = Change("ADDED", KEY, Version(5, "u1", "v5"))


def value_from_nowhere(history: History) -> None:
    history.scribes["leases"].append(Change("MODIFIED", KEY, Version(7, "u4", "none")))


@pytest.mark.parametrize(
    "spoil",
    [
        stale_get,
        get_of_the_deleted,
        lost_write,
        two_winners,
        refused_and_done,
        put_by_uid_creates,
        conflict_without_object,
        not_found_while_there,
        list_without_an_item,
        exact_list_of_another_revision,
        stale_list,
        bookmark_before_its_event,
        watch_with_a_gap,
        watch_that_repeats,
        uid_given_twice,
        value_from_nowhere,
    ],
)
def test_a_wrong_answer_is_found(spoil: Callable[[History], None]) -> None:
    history = true_history()
    spoil(history)
    assert check(history)
