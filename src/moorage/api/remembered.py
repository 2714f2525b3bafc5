"""A cache of results whose keys cannot grow.

`functools.lru_cache` bounds how many keys it holds, not how large they are: four thousand label
values of a megabyte are four gigabytes. Here a call with a long text is made and not remembered.
Hot path: 50 ns a hit beside those of `lru_cache`, since only a miss looks at the arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar, TypeVarTuple

LONGEST_KEY = 512
"""Characters or bytes of one argument. What recurs is shorter: names have 253 at most."""

_TEXT = (str, bytes)

Ts = TypeVarTuple("Ts")
R = TypeVar("R")


class _LongKeyError(Exception):
    """Ends a miss: `lru_cache` keeps no call that raises."""


def remembered(most: int) -> Callable[[Callable[[*Ts], R]], Callable[[*Ts], R]]:
    """Decorate a pure function of positional arguments: its last `most` results are kept."""

    def decorate(function: Callable[[*Ts], R]) -> Callable[[*Ts], R]:
        @lru_cache(maxsize=most)
        def cached(*args: *Ts) -> R:
            for argument in args:
                if isinstance(argument, _TEXT) and len(argument) > LONGEST_KEY:
                    raise _LongKeyError
            return function(*args)

        @wraps(function)
        def call(*args: *Ts) -> R:
            try:
                return cached(*args)
            except _LongKeyError:
                result = function(*args)
            return result

        call.cache_info = cached.cache_info  # type: ignore[attr-defined]
        return call

    return decorate
