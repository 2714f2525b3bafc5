"""Pace at which changes of nodes are looked at: at once, unless one node changes all the time.

An agent reports about its own node alone, so that one that changes its labels over and over slows
down nothing but what is found by its own changes. Pure: time is given.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

GATHER_S = 0.3
"""Changes within this time are looked at once."""
BURST = 20
"""Changes of a node that are looked at without delay: those of handlers that are probed."""
REFILL_S = 10.0
"""Time after which a node may have one more; also the longest delay."""
_MOST = 10_000
"""Nodes that are known."""


class _Allowance(msgspec.Struct):
    left: float
    at_s: float


class Pace:
    """Says when a change is to be looked at, by the node that it is of."""

    def __init__(self) -> None:
        self._allowances: OrderedDict[str, _Allowance] = OrderedDict()

    def delay_s(self, node: str, now_s: float) -> float:
        """Return the seconds after which a change of a node is looked at, and count it."""
        allowance = self._allowances.pop(node, None) or _Allowance(BURST, now_s)
        left = min(BURST, allowance.left + (now_s - allowance.at_s) / REFILL_S)
        self._allowances[node] = _Allowance(max(0.0, left - 1), now_s)
        if len(self._allowances) > _MOST:
            self._allowances.popitem(last=False)
        return GATHER_S if left >= 1 else max(GATHER_S, REFILL_S * (1 - left))
