"""Stream tokens: random, valid for one use within a minute, each mapped to a request.

    Exec/Attach/PortForward ──issue──▶ token in a URL ──redeem──▶ the request, once

Source: the CRI streaming library's request cache (1 min, 1000 outstanding).
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

from moorage.api.clock import Clock
from moorage.engine.errors import ExhaustedError

LIFETIME_S = 60.0
LIMIT = 1000
_RANDOM_BYTES = 18

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Held(Generic[T]):
    value: T
    ends_s: float


class Tokens(Generic[T]):
    """Issues and redeems tokens. At most 1000 are outstanding.

    They are stored oldest first: all have the same lifetime, so the first expires first.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: OrderedDict[str, _Held[T]] = OrderedDict()

    def issue(self, value: T) -> str:
        """Issue a token of 24 URL-safe characters.

        Raises ExhaustedError when 1000 are outstanding.
        """
        self._forget_old()
        if len(self._held) >= LIMIT:
            raise ExhaustedError(
                f"{LIMIT} stream requests are pending; connect to them, or retry "
                f"within {LIFETIME_S:.0f} s"
            )
        token = secrets.token_urlsafe(_RANDOM_BYTES)
        self._held[token] = _Held(value, self._clock.monotonic() + LIFETIME_S)
        return token

    def redeem(self, token: str) -> T | None:
        """Invalidate a token and return its request; None for an unknown, used or expired one."""
        self._forget_old()
        entry = self._held.pop(token, None)
        return None if entry is None else entry.value

    def _forget_old(self) -> None:
        now = self._clock.monotonic()
        while self._held and next(iter(self._held.values())).ends_s <= now:
            self._held.popitem(last=False)
