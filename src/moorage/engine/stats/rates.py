"""CPU rate: nanoseconds of CPU time per second, from two readings of a cgroup.

Two readings of each id are kept, so that a client that asks twice in a row does not spoil the rate
of one that asks every ten seconds. The least recently read ids are evicted.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

_NS_PER_S = 1_000_000_000
_LEAST_WINDOW_NS = _NS_PER_S
_MOST_KEPT = 4096

Reading = tuple[int, int]
"""Time on a monotonic clock, and CPU time until then; both in nanoseconds."""


class CpuRates:
    """The last readings of each id. Thread-safe."""

    def __init__(self, most_kept: int = _MOST_KEPT) -> None:
        self._most_kept = most_kept
        self._kept: OrderedDict[str, tuple[Reading | None, Reading]] = OrderedDict()
        self._lock = threading.Lock()

    def rate(self, id_: str, at_ns: int, used_ns: int) -> int | None:
        """Return the nanoseconds of CPU time per second until now; None at the first reading.

        Averaged over at least a second if there is a reading that old, else since the first one.
        """
        with self._lock:
            older, newer = self._kept.pop(id_, (None, None))
            if newer is None or used_ns < newer[1]:
                # A counter that restarts belongs to another cgroup of the same name.
                self._keep(id_, None, (at_ns, used_ns))
                return None
            if at_ns - newer[0] >= _LEAST_WINDOW_NS:
                self._keep(id_, newer, (at_ns, used_ns))
                base = newer
            else:
                self._keep(id_, older, newer)
                base = older or newer
        elapsed_ns = at_ns - base[0]
        return (used_ns - base[1]) * _NS_PER_S // elapsed_ns if elapsed_ns > 0 else None

    def _keep(self, id_: str, older: Reading | None, newer: Reading) -> None:
        self._kept[id_] = (older, newer)
        while len(self._kept) > self._most_kept:
            self._kept.popitem(last=False)
