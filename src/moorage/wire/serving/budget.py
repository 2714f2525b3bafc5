"""Budgets: the amount of a resource that users may hold, in total and per user.

Used for bytes of memory, requests in progress and connections. Hot path: a few calls per request
(bench/api.py).
"""

from __future__ import annotations


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
