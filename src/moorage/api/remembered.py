"""A cache of results whose keys cannot grow.

`functools.lru_cache` bounds how many keys it holds, not how large they are: four thousand label
values of a megabyte are four gigabytes. Here a call with a long text is made and not remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

LONGEST_KEY = 512
"""Characters or bytes of one argument. What recurs is shorter: names have 253 at most."""

_TEXT = (str, bytes)

P = ParamSpec("P")
R = TypeVar("R")


def remembered(most: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a pure function of positional arguments: its last `most` results are kept."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        cached = lru_cache(maxsize=most)(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for argument in args:
                if isinstance(argument, _TEXT) and len(argument) > LONGEST_KEY:
                    return function(*args, **kwargs)
            return cached(*args, **kwargs)  # type: ignore[arg-type]

        call.cache_info = cached.cache_info  # type: ignore[attr-defined]
        return call

    return decorate
