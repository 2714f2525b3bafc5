"""Whether a history can be true: linearizable keys, whole snapshots, watches without gaps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator

from tests.apiserver.history.operations import (
    UNKNOWN,
    Change,
    History,
    Listing,
    Stream,
    Version,
    Write,
)

State = Version | None
_LATEST = 2**62


def check(history: History) -> list[str]:
    """Every answer that no order of the operations explains, in words."""
    truth = _Truth(history)
    bounds = _Bounds(history)
    complaints = [*history.complaints, *truth.complaints]
    for write in history.writes:
        complaints += _check_write(write, truth, bounds)
    for get in history.gets:
        low, high = bounds.of(get.start, get.end)
        if not truth.ever(get.key, low, high, lambda state: state == get.version):  # noqa: B023
            complaints.append(f"GET {get.key} in [{low}, {high}] gave {get.version}")
    for listing in history.lists:
        complaints += _check_list(listing, truth, bounds)
    for stream in history.streams:
        complaints += _check_stream(stream, truth)
    return complaints


class _Truth:
    """Every change by revision, put together from the scribes and what writers were answered."""

    def __init__(self, history: History) -> None:
        self.complaints: list[str] = []
        self._changes: dict[int, Change] = {}
        for changes in history.scribes.values():
            for change in changes:
                self._add(change)
        written = {write.value: write for write in history.writes if write.value}
        for write in history.writes:
            if write.version is not None and write.status in (200, 201):
                self._check_known(write)
        self._by_kind: dict[str, list[int]] = {}
        self._by_key: dict[str, list[int]] = {}
        uids: dict[str, str] = {}
        for revision in sorted(self._changes):
            change = self._changes[revision]
            before = self.state(change.key, revision - 1)
            self._by_kind.setdefault(_kind(change.key), []).append(revision)
            self._by_key.setdefault(change.key, []).append(revision)
            self._check_origin(change, before, written)
            if before is None and change.version.uid in uids:
                self.complaints.append(f"{change} has the uid of an object that was deleted")
            uids[change.version.uid] = change.key

    def _add(self, change: Change) -> None:
        known = self._changes.setdefault(change.version.revision, change)
        if known != change:
            self.complaints.append(f"two changes at one revision: {known} and {change}")

    def _check_known(self, write: Write) -> None:
        assert write.version is not None
        known = self._changes.get(write.version.revision)
        if write.method == "DELETE":
            return
        if known is None:
            self.complaints.append(f"acknowledged and never seen by a watch: {write}")
        elif (known.key, known.version) != (write.key, write.version):
            self.complaints.append(f"{write} was answered with the revision of {known}")

    def _check_origin(self, change: Change, before: State, written: dict[str, Write]) -> None:
        expected = "ADDED" if before is None else "MODIFIED"
        if change.type != "DELETED" and change.type != expected:
            self.complaints.append(f"{change} after {before}")
        if change.type == "DELETED" and before is None:
            self.complaints.append(f"{change} of what was not there")
        write = written.get(change.version.value)
        if write is None:
            self.complaints.append(f"{change} has a value that was never written")
        elif write.status not in (UNKNOWN, 200, 201):
            self.complaints.append(f"{change} comes from a write that was refused: {write}")

    def state(self, key: str, revision: int) -> State:
        """The key's version at a revision."""
        revisions = self._by_key.get(key, [])
        place = bisect_right(revisions, revision)
        return self._state_after(revisions[place - 1]) if place else None

    def _state_after(self, revision: int) -> State:
        change = self._changes[revision]
        return None if change.type == "DELETED" else change.version

    def ever(self, key: str, low: int, high: int, condition: Callable[[State], bool]) -> bool:
        """Whether a statement holds of the key's state at some revision of a range."""
        if condition(self.state(key, low)):
            return True
        revisions = self._by_key.get(key, [])
        first, last = bisect_right(revisions, low), bisect_right(revisions, high)
        return any(condition(self._state_after(revision)) for revision in revisions[first:last])

    def snapshot(self, kind: str, revision: int) -> dict[str, Version]:
        """All objects of a kind at a revision."""
        states = {key: self.state(key, revision) for key in self._by_key if _kind(key) == kind}
        return {key: state for key, state in states.items() if state is not None}

    def between(self, kind: str, after: int, upto: int) -> Iterator[Change]:
        """The changes of a kind in (after, upto]."""
        revisions = self._by_kind.get(kind, [])
        for revision in revisions[bisect_right(revisions, after) : bisect_right(revisions, upto)]:
            yield self._changes[revision]


class _Bounds:
    """Which revisions an operation can have seen, by what ended before it and began after it."""

    def __init__(self, history: History) -> None:
        ended: list[tuple[float, int]] = []
        began: list[tuple[float, int]] = []
        for write in history.writes:
            if write.version is not None and write.method != "DELETE":
                ended.append((write.end, write.version.revision))
                began.append((write.start, write.version.revision))
        ended += [(get.end, get.version.revision) for get in history.gets if get.version]
        ended += [(listing.end, listing.revision) for listing in history.lists]
        self._ends, self._highest = _running(sorted(ended), max)
        starts, lowest = _running(sorted(began, reverse=True), min)
        self._starts, self._lowest = starts[::-1], lowest[::-1]

    def of(self, start: float, end: float) -> tuple[int, int]:
        """The least and the greatest revision possible for an operation of that time."""
        before = bisect_left(self._ends, start)
        after = bisect_right(self._starts, end)
        low = self._highest[before - 1] if before else 0
        high = self._lowest[after] - 1 if after < len(self._starts) else _LATEST
        return low, high


def _running(
    pairs: list[tuple[float, int]], choose: Callable[[int, int], int]
) -> tuple[list[float], list[int]]:
    times: list[float] = []
    chosen: list[int] = []
    for time_s, revision in pairs:
        times.append(time_s)
        chosen.append(choose(chosen[-1], revision) if chosen else revision)
    return times, chosen


def _check_write(write: Write, truth: _Truth, bounds: _Bounds) -> Iterator[str]:
    low, high = bounds.of(write.start, write.end)

    def ever(condition: Callable[[State], bool]) -> bool:
        return truth.ever(write.key, low, high, condition)

    if write.version is not None and write.method != "DELETE":
        revision = write.version.revision
        if not low < revision <= high:
            yield f"{write} is out of order: [{low}, {high}]"
        before = truth.state(write.key, revision - 1)
        if (before is None) != (write.status == 201):
            yield f"{write} followed {before}"
        if before is not None and write.version.uid != before.uid:
            yield f"{write} changed the uid of {before}"
        if write.uid and (before is None or before.uid != write.uid):
            yield f"{write} named a uid and followed {before}"
        expected = write.expected
        if expected and before is not None and before.revision != expected:
            yield f"{write} named a revision and followed {before}"
    elif write.method == "DELETE" and write.status == 200:
        if not ever(lambda state: state is None):
            yield f"{write}: the key was never absent in [{low}, {high}]"
    elif write.status == 404 and not ever(lambda state: state is None):
        yield f"{write}: the key was never absent in [{low}, {high}]"
    elif write.status == 409:
        yield from _check_conflict(write, ever)


def _check_conflict(write: Write, ever: Callable[[Callable[[State], bool]], bool]) -> Iterator[str]:
    if write.reason == "AlreadyExists":
        if not ever(lambda state: state is not None):
            yield f"{write}: the key was never present"
    elif write.uid:
        if not ever(
            lambda state: (
                state is None or state.uid != write.uid or state.revision != write.expected
            )
        ):
            yield f"{write}: nothing was in conflict"
    elif not ever(lambda state: state is not None and state.revision != write.expected):
        yield f"{write}: the key was absent, or as it was expected, all the time"


def _check_list(listing: Listing, truth: _Truth, bounds: _Bounds) -> Iterator[str]:
    low, high = bounds.of(listing.start, listing.end)
    what = f"list of {listing.kind} at {listing.revision} (exact: {listing.exact})"
    if listing.exact is not None:
        if listing.revision != listing.exact:
            yield f"{what}: another revision than was asked for"
    elif not low <= listing.revision <= high:
        yield f"{what} is out of order: [{low}, {high}]"
    wanted = truth.snapshot(listing.kind, listing.revision)
    if listing.items != wanted:
        missing, extra = wanted.keys() - listing.items.keys(), listing.items.keys() - wanted.keys()
        yield f"{what}: missing {sorted(missing)}, extra {sorted(extra)}, or another version"


def _check_stream(stream: Stream, truth: _Truth) -> Iterator[str]:
    position = stream.after
    for event in stream.events:
        revision = event if isinstance(event, int) else event.version.revision
        seen_changes = () if isinstance(event, int) else (event,)
        if revision < position or (seen_changes and revision == position):
            yield f"watch of {stream.kind} went from {position} back to {event}"
            return
        wanted = tuple(truth.between(stream.kind, position, revision))
        if wanted != seen_changes:
            yield f"watch of {stream.kind} at {position} then gave {event}; it happened: {wanted}"
        position = revision


def _kind(key: str) -> str:
    return key.partition("/")[0]
