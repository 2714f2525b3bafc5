"""Which connections get a place, and which make room."""

from __future__ import annotations

import pytest

from moorage.wire.serving.limits import ConnectionTable, Limits, Place

LIMITS = Limits(connections=10, reserved=4, per_address=3, head_s=2)


class Peers:
    """Connections to one table; `dropped` are those it ended."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.table = ConnectionTable(limits)
        self.dropped: list[str] = []
        self.is_waiting = True

    def come(self, address: str, *, proven: bool = False, local: bool = False) -> Place | None:
        place = Place(address, local, lambda: self.dropped.append(address), lambda: self.is_waiting)
        if not self.table.admit(place):
            return None
        if proven:
            self.table.prove(place)
        return place


def test_one_address_gets_so_many_places_and_other_addresses_still_get_theirs() -> None:
    peers = Peers()
    assert all(peers.come("a", proven=True) for _ in range(3))
    assert peers.come("a") is None
    assert peers.come("b")
    assert peers.dropped == []


def test_the_oldest_unproven_connection_of_the_address_makes_room() -> None:
    peers = Peers()
    peers.come("b")
    for _ in range(5):
        assert peers.come("a")
    assert peers.dropped == ["a", "a"]


def test_other_addresses_leave_the_reserve_to_this_machine() -> None:
    peers = Peers()
    for address in "abcdef":
        assert peers.come(address, proven=True)
    assert peers.come("g") is None
    for _ in range(4):
        assert peers.come("127.0.0.1", proven=True, local=True)
    assert peers.come("127.0.0.1", local=True) is None
    assert peers.table.size == 10


def test_an_unproven_connection_makes_room_for_any_local_one() -> None:
    peers = Peers()
    peers.come("a")
    for _ in range(10):
        assert peers.come("127.0.0.1", proven=True, local=True)
    assert peers.dropped == ["a"]


def test_a_remote_connection_takes_no_place_from_a_local_one() -> None:
    peers = Peers()
    peers.come("127.0.0.1", local=True)
    for address in "abcdef":
        assert peers.come(address, proven=True)
    assert peers.come("g") is None
    assert peers.dropped == []


def test_a_connection_that_has_ended_gives_its_place_back_once() -> None:
    peers = Peers()
    place = peers.come("a")
    assert place
    for _ in range(3):
        peers.table.release(place)
    assert peers.table.size == 0
    assert all(peers.come("a", proven=True) for _ in range(3))


def test_a_request_proven_after_its_connection_ended_takes_no_share() -> None:
    """The request's handler may be authenticating while the connection is dropped."""
    peers = Peers(Limits(connections=10, reserved=4, per_user=1))
    ended = peers.come("a")
    assert ended
    peers.table.release(ended)
    assert not peers.table.prove(ended, "u")
    place = peers.come("a")
    assert place
    assert peers.table.prove(place, "u")


def test_ordinary_users_leave_places_that_can_be_made_free() -> None:
    peers = Peers(Limits(connections=10, reserved=4, per_user=4))
    places = [place for _ in range(10) if (place := peers.come("127.0.0.1", local=True))]
    assert [peers.table.prove(place, "a") for place in places[:5]] == [True] * 4 + [False]
    assert [peers.table.prove(place, "b") for place in places[5:8]] == [True, True, False]
    assert peers.table.prove(places[8])
    # There is room for new clients, and one of them can be the administrator.
    for _ in range(3):
        place = peers.come("127.0.0.1", local=True)
        assert place
        assert peers.table.prove(place)
    peers.table.release(places[0])
    place = peers.come("127.0.0.1", local=True)
    assert place
    assert peers.table.prove(place, "a")
    assert not peers.table.prove(place, "a")


def test_what_sends_no_request_in_time_is_dropped() -> None:
    peers = Peers()
    peers.come("a")
    peers.come("b", proven=True)
    for _ in range(2):
        peers.table.sweep()
    assert peers.dropped == []
    peers.table.sweep()
    assert peers.dropped == ["a"]
    assert peers.table.size == 1


def test_a_request_that_is_being_answered_stops_the_clock() -> None:
    peers = Peers()
    peers.come("a")
    for is_waiting in (True, True, False, True, True):
        peers.is_waiting = is_waiting
        peers.table.sweep()
    assert peers.dropped == []


@pytest.mark.parametrize(
    ("descriptors", "connections"), [(1024, 384), (20000, 8192), (10**6, 8192), (300, 64)]
)
def test_limits_fit_the_descriptors(descriptors: int, connections: int) -> None:
    limits = Limits.for_descriptors(descriptors)
    assert (limits.connections, limits.reserved, limits.per_user) == (
        connections, connections // 8, connections // 4,
    )  # fmt: skip


def test_limits_unless_others_are_given() -> None:
    limits = Limits()
    assert (limits.connections, limits.reserved, limits.per_user) == (8192, 1024, 2048)
    assert (limits.per_address, limits.head_s, limits.idle_s) == (256, 10, 75.0)


def test_a_table_forgets_what_has_ended() -> None:
    peers = Peers(Limits(connections=10, reserved=4, per_user=3))
    for _ in range(10):
        places = [place for address in "aab" if (place := peers.come(address))]
        assert [peers.table.prove(place, "u") for place in places] == [True] * 3
        for place in places:
            peers.table.release(place)
        assert peers.table.size == 0
    assert (peers.dropped, peers.table.drop_unproven()) == ([], False)
    assert not peers.table._by_address


def test_the_oldest_unproven_connection_is_dropped_when_descriptors_run_out() -> None:
    peers = Peers()
    peers.come("a", proven=True)
    peers.come("127.0.0.1", local=True)
    peers.come("b")
    assert [peers.table.drop_unproven() for _ in range(3)] == [True, True, False]
    assert peers.dropped == ["127.0.0.1", "b"]
    assert peers.table.size == 1


def test_all_ordinary_users_together_leave_the_reserve() -> None:
    peers = Peers(Limits(connections=6, reserved=2, per_user=3, per_address=9))
    places = [place for _ in range(6) if (place := peers.come("127.0.0.1", local=True))]
    users = "aabbcc"
    proven = [peers.table.prove(place, user) for place, user in zip(places, users, strict=True)]
    assert proven == [True] * 4 + [False] * 2
    assert not places[4].is_proven
    assert (places[0].user, places[0].is_proven) == ("a", True)
    # Those without limits are proven still.
    assert peers.table.prove(places[4])
    assert places[4].user == ""


def test_a_full_table_takes_no_one_when_all_are_proven() -> None:
    peers = Peers(Limits(connections=3, reserved=1))
    for _ in range(3):
        assert peers.come("127.0.0.1", proven=True, local=True)
    assert peers.come("127.0.0.1", local=True) is None
    assert peers.come("a") is None
    assert peers.table.size == 3


def test_an_unproven_remote_connection_makes_room_for_a_remote_one() -> None:
    peers = Peers()
    peers.come("127.0.0.1", local=True)
    for address in "abcdef":
        assert peers.come(address, proven=address != "c")
    assert peers.come("g", proven=True)
    assert peers.dropped == ["c"]
    assert peers.come("h") is None
    assert peers.table.size == 7
