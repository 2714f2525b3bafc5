"""How a guest's ssh is reached: a host and a port, in a network namespace or not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reach:
    """Where ssh connects to; `entry` are the words before its command."""

    host: str
    port: int
    entry: tuple[str, ...] = ()
