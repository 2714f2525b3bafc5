"""Fair queues of one priority level: requests that wait for a seat, and whose turn it is.

Each queue has a virtual time: the seat time its requests got. The queue with the least goes first,
so flows get equal time, however many requests they send or how long each takes. A queue that was
empty starts at the time of the others, so an idle flow saves nothing up. This is start-time fair
queuing; source: KEP-1040, section "Fair Queuing for Server Requests".

Only queues with requests exist, so a level may have any number of them.
"""

from __future__ import annotations

import hashlib
import math
from bisect import insort
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Protocol

# Shuffle sharding: the few queues, among all of a level, that a flow may use.
#
# Two flows seldom have the same hand, so one that fills its queues leaves most others room. Source:
# KEP-1040; the bounds are those of the API's validation.

_HASH_BITS = 60


def is_dealable(queues: int, hand_size: int) -> bool:
    """Return whether hands of that size can be dealt from that many queues."""
    return 0 < hand_size <= queues and math.ceil(math.log2(queues) * hand_size) <= _HASH_BITS


def flow_hash(schema: str, distinguisher: str) -> int:
    """Return a number of 64 bits that identifies a flow."""
    text = f"{schema}\0{distinguisher}".encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little")


def hand_of(number: int, queues: int, hand_size: int) -> list[int]:
    """Return the indices of the queues that a number stands for: all different, ascending.

    Each choice takes its part of the number: the first among all queues, the next among the rest.
    """
    hand: list[int] = []
    for remaining in range(queues, queues - hand_size, -1):
        number, card = divmod(number, remaining)
        for taken in hand:
            if card >= taken:
                card += 1
        insort(hand, card)
    return hand


# What a request is taken to need until it ended: as upstream.
_ESTIMATE_S = 0.003


class Waiting(Protocol):
    """A request that waits."""

    queue: Queue | None

    @property
    def is_over(self) -> bool:
        """Return whether the request does not wait any more: its time is over, its client left."""

    @property
    def may_start(self) -> bool:
        """Return whether the request may have a seat: its user does not have too many."""

    def grant(self) -> None:
        """Give the request its seat."""


class Queue:
    """The requests of the flows that share a queue. `start_s`: its virtual time."""

    __slots__ = ("executing", "index", "last_turn", "requests", "start_s")

    def __init__(self, index: int, start_s: float) -> None:
        self.index = index
        self.start_s = start_s
        self.executing = 0
        self.last_turn = 0
        self.requests: OrderedDict[Waiting, None] = OrderedDict()

    @property
    def is_ready(self) -> bool:
        """Return whether its first request may start."""
        return bool(self.requests) and next(iter(self.requests)).may_start


class FairQueues:
    """The queues of a level. `waiting`: the requests in all of them."""

    __slots__ = ("_now_s", "_queues", "_turns", "waiting")

    def __init__(self) -> None:
        self._queues: dict[int, Queue] = {}
        self._now_s = 0.0
        self._turns = 0
        self.waiting = 0

    def queues(self) -> Iterable[Queue]:
        """Return the queues that have requests, waiting or not."""
        return self._queues.values()

    def enqueue(self, request: Waiting, hand: Sequence[int], limit: int) -> bool:
        """Append a request to the shortest queue of a hand. Returns False if that one is full."""
        self._turns += 1
        first = self._turns % len(hand)
        # Rotated, so that equally long queues are used in turn.
        index = min((*hand[first:], *hand[:first]), key=self._length)
        if self._length(index) >= limit:
            return False
        queue = self._queues.get(index)
        if queue is None:
            queue = self._queues[index] = Queue(index, self._now_s)
        elif not queue.requests:
            queue.start_s = max(queue.start_s, self._now_s)
        queue.requests[request] = None
        request.queue = queue
        self.waiting += 1
        return True

    @property
    def is_ready(self) -> bool:
        """Return whether a queue begins with a request that may start."""
        return any(queue.is_ready for queue in self._queues.values())

    def pop(self) -> Waiting:
        """Remove the request whose turn it is, and return it. One must be ready."""
        ready = (queue for queue in self._queues.values() if queue.is_ready)
        queue = min(ready, key=lambda one: (one.start_s, one.last_turn))
        self._turns += 1
        queue.last_turn = self._turns
        self._now_s = max(self._now_s, queue.start_s)
        queue.start_s += _ESTIMATE_S
        queue.executing += 1
        request, _ = queue.requests.popitem(last=False)
        self.waiting -= 1
        return request

    def discard(self, request: Waiting) -> None:
        """Remove a request that waits no longer, if it is still in its queue."""
        queue = request.queue
        if queue is not None and request in queue.requests:
            del queue.requests[request]
            self.waiting -= 1
            self._forget_if_empty(queue)

    def finish(self, queue: Queue, seconds: float) -> None:
        """Note that a request from a queue ended after it had its seat for that long."""
        queue.executing -= 1
        queue.start_s += seconds - _ESTIMATE_S
        self._forget_if_empty(queue)

    def _length(self, index: int) -> int:
        queue = self._queues.get(index)
        return len(queue.requests) if queue is not None else 0

    def _forget_if_empty(self, queue: Queue) -> None:
        if not queue.requests and not queue.executing:
            self._queues.pop(queue.index, None)
