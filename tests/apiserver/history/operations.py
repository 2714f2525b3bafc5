"""What clients did and what they were answered. Times are of one monotonic clock, in seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

UNKNOWN = 0
"""The status of a request whose answer never came."""


@dataclass(frozen=True, slots=True)
class Version:
    """An object at a revision; `value` is unique to the write that made it."""

    revision: int
    uid: str
    value: str


@dataclass(frozen=True, slots=True)
class Change:
    """An event of a watch. `version` is the last one when `type` is DELETED."""

    type: str
    key: str
    version: Version


@dataclass(slots=True)
class Write:
    """A POST, PUT, PATCH or DELETE of one key.

    `expected` and `uid` are the revision and uid that the body named; `version` what came back.
    """

    method: str
    key: str
    start: float
    value: str = ""
    expected: int | None = None
    uid: str = ""
    status: int = UNKNOWN
    reason: str = ""
    version: Version | None = None
    end: float = float("inf")


@dataclass(slots=True)
class Get:
    """A GET of one key; `version` is None for 404."""

    key: str
    start: float
    end: float
    version: Version | None


@dataclass(slots=True)
class Listing:
    """A list of a kind, all its pages together. `exact` is the revision it asked for."""

    kind: str
    start: float
    end: float
    revision: int
    items: dict[str, Version]
    exact: int | None = None


@dataclass(slots=True)
class Stream:
    """A watch of a kind from a revision: changes, and the revisions of bookmarks, in order."""

    kind: str
    after: int
    events: list[Change | int] = field(default_factory=list)


@dataclass(slots=True)
class History:
    """All that happened. `scribes` are the changes of each kind as one endless watch saw them."""

    writes: list[Write] = field(default_factory=list)
    gets: list[Get] = field(default_factory=list)
    lists: list[Listing] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    scribes: dict[str, list[Change]] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    """Answers that are wrong by themselves, such as 500."""
    kills: int = 0

    @property
    def count(self) -> int:
        return len(self.writes) + len(self.gets) + len(self.lists) + len(self.streams)
