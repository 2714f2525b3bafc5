"""Connection limits of a server, and the choice of the connection dropped for a new one.

A connection is proven once a request on it has been authenticated. Unproven ones are dropped
first: a client without credentials cannot keep a place that another connection needs. Connections
from local addresses of the host have a reserve that other addresses cannot take, and ordinary users
cannot prove so many that none is left to drop: the administrator and cluster components can always
connect.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

# Budgets: the amount of a resource that users may hold, in total and per user.
#
# Used for bytes of memory, requests in progress and connections. Hot path: a few calls per request
# (bench/api.py).


class Budget:
    """Counts the amounts that users hold. The user "" is exempt: it is neither limited nor counted.

    A user who holds nothing may take more than `per_user` at once, since a limit below the size of
    a legitimate response would always refuse it; the same applies to `total`.
    """

    def __init__(self, *, total: int, per_user: int) -> None:
        self._total = total
        self._per_user = per_user
        self._held = 0
        self._by_user: dict[str, int] = {}

    @property
    def held(self) -> int:
        """Return the amount currently held."""
        return self._held

    def take(self, user: str, amount: int = 1) -> bool:
        """Hold an amount for a user. Returns False, and holds nothing, when there is no room."""
        if not user or not amount:
            return True
        own = self._by_user.get(user, 0)
        if own and own + amount > self._per_user:
            return False
        if self._held and self._held + amount > self._total:
            return False
        self._held += amount
        self._by_user[user] = own + amount
        return True

    def has_room(self, user: str, amount: int = 1) -> bool:
        """Return whether a user could take an amount now."""
        if not user or not amount:
            return True
        own = self._by_user.get(user, 0)
        is_within = not own or own + amount <= self._per_user
        return is_within and (not self._held or self._held + amount <= self._total)

    def give_back(self, user: str, amount: int = 1) -> None:
        """Release an amount that was taken."""
        if not user or not amount:
            return
        self._held -= amount
        left = self._by_user[user] - amount
        if left:
            self._by_user[user] = left
        else:
            del self._by_user[user]


# Descriptors for the database, logs, connections to nodes and other files of the process.
_OWN_DESCRIPTORS = 256
_MOST_CONNECTIONS = 8192
_FEWEST_CONNECTIONS = 64
# A stream into a pod holds a second descriptor, towards the node or the engine.
_DESCRIPTORS_PER_CONNECTION = 2


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one server.

    `connections` bounds all of them, `reserved` of which only local addresses may take;
    `per_address` bounds those of any other address, `per_user` the proven ones of an ordinary user;
    all ordinary users together leave `reserved` too. `head_s` bounds the time of a client without
    credentials for its TLS handshake and for each request head, `idle_s` the time a connection may
    be idle. Kubernetes 1.36 allows 32 s and 90 s for these two.
    """

    connections: int = _MOST_CONNECTIONS
    reserved: int = _MOST_CONNECTIONS // 8
    per_address: int = 256
    per_user: int = _MOST_CONNECTIONS // 4
    head_s: int = 10
    idle_s: float = 75.0

    @classmethod
    def for_descriptors(cls, descriptors: int) -> Limits:
        """Return the limits for a process that may open this number of descriptors."""
        room = (descriptors - _OWN_DESCRIPTORS) // _DESCRIPTORS_PER_CONNECTION
        connections = max(min(room, _MOST_CONNECTIONS), _FEWEST_CONNECTIONS)
        return cls(connections=connections, reserved=connections // 8, per_user=connections // 4)


class Place(msgspec.Struct, eq=False):
    """One connection in the table. `abort` drops it at once.

    `is_local` is whether the peer has a local address; `waited_s` counts the seconds for which the
    client owed the server a handshake or a request head. `user` is the ordinary user who proved
    it.
    """

    address: str
    is_local: bool
    abort: Callable[[], None]
    is_waiting: Callable[[], bool]
    is_proven: bool = False
    user: str = ""
    waited_s: int = 0


class ConnectionTable:
    """The open connections of one server."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._size = 0
        self._remote = 0
        self._by_address: dict[str, dict[Place, None]] = {}
        self._unproven: dict[Place, None] = {}
        self._ordinary = Budget(
            total=limits.connections - limits.reserved, per_user=limits.per_user
        )

    @property
    def size(self) -> int:
        """Return the number of open connections."""
        return self._size

    def admit(self, place: Place) -> bool:
        """Add a new connection, dropping an unproven one if the table is full.

        Returns whether it was added; it is refused when all candidates for dropping are proven.
        """
        limits = self.limits
        if not place.is_local:
            siblings = self._by_address.get(place.address, {})
            if len(siblings) >= limits.per_address and not self._drop_first(siblings):
                return False
            is_full = self._remote >= limits.connections - limits.reserved
            if is_full and not self._drop_first(self._unproven, remote_only=True):
                return False
        if self._size >= limits.connections and not self._drop_first(self._unproven):
            return False
        self._size += 1
        self._remote += not place.is_local
        self._by_address.setdefault(place.address, {})[place] = None
        self._unproven[place] = None
        return True

    def prove(self, place: Place, user: str = "") -> bool:
        """Mark a connection as proven after a request on it has been authenticated.

        `user` is empty for exempt users. Returns False when the user or all ordinary users
        have too many, which leaves the connection unproven, and for a connection that has ended.
        """
        if place not in self._by_address.get(place.address, {}):
            return False
        if not self._ordinary.take(user):
            return False
        place.is_proven = True
        place.user = user
        self._unproven.pop(place, None)
        return True

    def release(self, place: Place) -> None:
        """Remove a connection that has ended. Does nothing for one that is not in the table."""
        siblings = self._by_address.get(place.address)
        if siblings is None or place not in siblings:
            return
        del siblings[place]
        if not siblings:
            del self._by_address[place.address]
        self._unproven.pop(place, None)
        self._size -= 1
        self._remote -= not place.is_local
        self._ordinary.give_back(place.user)

    def sweep(self) -> None:
        """Drop unproven connections that have sent no complete head in time. Call once a second.

        Seconds are counted in calls, so time in which the server was stopped or busy is left out.
        """
        for place in list(self._unproven):
            place.waited_s = place.waited_s + 1 if place.is_waiting() else 0
            if place.waited_s > self.limits.head_s:
                self._drop(place)

    def drop_unproven(self) -> bool:
        """Drop the oldest unproven connection. Returns whether there was one."""
        return self._drop_first(self._unproven)

    def _drop_first(self, places: dict[Place, None], *, remote_only: bool = False) -> bool:
        for place in places:
            if not place.is_proven and not (remote_only and place.is_local):
                self._drop(place)
                return True
        return False

    def _drop(self, place: Place) -> None:
        self.release(place)
        place.abort()
