"""How many nanoseconds of processor time a second a cgroup uses now, from what it used before.

Two readings of each are kept, so that who asks twice at once does not spoil the answer of who asks
every ten seconds. The least lately asked for are forgotten; nobody has to say that one has gone.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

_NS_PER_S = 1_000_000_000
_LEAST_WINDOW_NS = _NS_PER_S
_MOST_KEPT = 4096

Reading = tuple[int, int]
"""When, on a clock that never runs backwards, and how much until then; both in nanoseconds."""


class CpuRates:
    """The last readings of each id. Safe for several threads."""

    def __init__(self, most_kept: int = _MOST_KEPT) -> None:
        self._most_kept = most_kept
        self._kept: OrderedDict[str, tuple[Reading | None, Reading]] = OrderedDict()
        self._lock = threading.Lock()

    def rate(self, id_: str, at_ns: int, used_ns: int) -> int | None:
        """Nanoseconds of processor time a second until now; None when it is asked first.

        Over the last second or more where it was asked that long ago, else since the first time.
        """
        with self._lock:
            older, newer = self._kept.pop(id_, (None, None))
            if newer is None or used_ns < newer[1]:
                # One that counts anew is another of the same name.
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
