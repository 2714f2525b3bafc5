"""Fair queues: whose turn it is."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from moorage.apiserver.flow_control.fair_queues import FairQueues
from tests.apiserver.flow_control.waiting import Waiter


def _filled(queues: FairQueues, index: int, count: int, name: str) -> list[Waiter]:
    waiters = [Waiter(f"{name}{number}") for number in range(count)]
    assert all(queues.enqueue(waiter, [index], 1000) for waiter in waiters)
    return waiters


def _served(queues: FairQueues, seconds: float = 0.003) -> str:
    request = queues.pop()
    assert request.queue is not None
    queues.finish(request.queue, seconds)
    return repr(request)


def test_requests_of_a_queue_are_in_their_order() -> None:
    queues = FairQueues()
    _filled(queues, 0, 4, "a")
    assert [_served(queues) for _ in range(4)] == ["a0", "a1", "a2", "a3"]
    assert queues.waiting == 0
    assert not list(queues.queues())


def test_queues_take_turns_however_long_they_are() -> None:
    queues = FairQueues()
    _filled(queues, 0, 100, "a")
    _filled(queues, 1, 2, "b")
    assert [_served(queues) for _ in range(6)] == ["a0", "b0", "a1", "b1", "a2", "a3"]


def test_a_queue_whose_requests_take_long_has_fewer_turns() -> None:
    queues = FairQueues()
    _filled(queues, 0, 20, "slow")
    _filled(queues, 1, 20, "fast")
    turns = []
    for _ in range(22):
        request = queues.pop()
        turns.append(str(request)[0])
        assert request.queue is not None
        queues.finish(request.queue, 1.0 if turns[-1] == "s" else 0.1)
    assert turns.count("s") in (2, 3)


def test_an_idle_queue_saves_nothing_up() -> None:
    queues = FairQueues()
    _filled(queues, 0, 50, "a")
    for _ in range(20):
        _served(queues)
    _filled(queues, 1, 50, "b")
    turns = [_served(queues)[0] for _ in range(10)]
    assert turns.count("a") == turns.count("b") == 5


def test_the_shortest_queue_of_a_hand_is_used_and_a_full_one_refuses() -> None:
    queues = FairQueues()
    _filled(queues, 3, 2, "a")
    first, second = Waiter(), Waiter()
    assert queues.enqueue(first, [3, 5], 2)
    assert first.queue is not None
    assert first.queue.index == 5
    assert queues.enqueue(second, [3, 5], 2)
    assert not queues.enqueue(Waiter(), [3, 5], 2)
    assert queues.waiting == 4


def test_equally_long_queues_are_used_in_turn() -> None:
    queues = FairQueues()
    for _ in range(9):
        assert queues.enqueue(Waiter(), [1, 2, 3], 3)
    assert sorted(len(queue.requests) for queue in queues.queues()) == [3, 3, 3]


def test_a_request_that_leaves_frees_its_place() -> None:
    queues = FairQueues()
    (first, second) = _filled(queues, 0, 2, "a")
    queues.discard(first)
    queues.discard(first)
    assert queues.waiting == 1
    assert queues.pop() is second
    queues.discard(second)
    assert queues.waiting == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["add", "serve", "leave"]))))
def test_every_request_is_served_or_leaves_once(steps: list[tuple[int, str]]) -> None:
    queues, waiting = FairQueues(), list[Waiter]()
    for index, step in steps:
        if step == "add":
            waiting += _filled(queues, index, 1, "x")
        elif waiting and step == "serve":
            request = queues.pop()
            assert isinstance(request, Waiter)
            waiting.remove(request)
            assert request.queue is not None
            queues.finish(request.queue, 0.01)
        elif waiting:
            queues.discard(waiting.pop(index % len(waiting)))
        assert queues.waiting == len(waiting)
        assert sum(len(queue.requests) for queue in queues.queues()) == len(waiting)
        assert all(queue.requests for queue in queues.queues())


@given(st.lists(st.integers(1, 40), min_size=2, max_size=5))
def test_no_queue_waits_for_more_than_a_turn_of_each_other(lengths: list[int]) -> None:
    queues = FairQueues()
    for index, length in enumerate(lengths):
        _filled(queues, index, length, f"{index}-")
    turns = [int(_served(queues).partition("-")[0]) for _ in range(sum(lengths))]
    for index, length in enumerate(lengths):
        places = [place for place, turn in enumerate(turns) if turn == index]
        assert len(places) == length
        assert all(b - a <= len(lengths) for a, b in itertools.pairwise(places))
