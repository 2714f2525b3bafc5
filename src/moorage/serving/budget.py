"""Byte budgets: how much memory requests may hold at a time, in all and for each user."""

from __future__ import annotations

from collections import defaultdict


class ByteBudget:
    """Counts bytes that are held for users.

    A user who holds nothing may take more than `per_user` at once, since a limit below the size of
    a legitimate answer would refuse it for ever; the same is true of `total`.
    """

    def __init__(self, *, total: int, per_user: int) -> None:
        self._total = total
        self._per_user = per_user
        self._held = 0
        self._by_user: defaultdict[str, int] = defaultdict(int)

    @property
    def held(self) -> int:
        """The bytes that are held now."""
        return self._held

    def take(self, user: str, size: int) -> bool:
        """Hold bytes for a user. Returns False, and holds nothing, when there is no room."""
        own = self._by_user.get(user, 0)
        if own and own + size > self._per_user:
            return False
        if self._held and self._held + size > self._total:
            return False
        self._held += size
        self._by_user[user] = own + size
        return True

    def give_back(self, user: str, size: int) -> None:
        """Hold bytes no longer."""
        self._held -= size
        left = self._by_user[user] - size
        if left > 0:
            self._by_user[user] = left
        else:
            del self._by_user[user]
