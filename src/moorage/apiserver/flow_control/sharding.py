"""Shuffle sharding: the few queues, among all of a level, that a flow may use.

Two flows seldom have the same hand, so one that fills its queues leaves most others room. Source:
KEP-1040; the bounds are those of the API's validation.
"""

from __future__ import annotations

import hashlib
import math
from bisect import insort

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
