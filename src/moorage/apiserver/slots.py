"""Request slots: the limits on concurrent requests, in total and per user.

A request takes its slot when its body is complete, so slow clients hold none, and streams (watch,
exec, attach, port-forward, proxy, log) never take one. System requests are exempt: no load from
pods can keep nodes from reporting or controllers from working. Source: kube-apiserver
`--max-requests-inflight`, `--max-mutating-requests-inflight`, `WithMaxInFlightLimit`; the bootstrap
flow schemas `exempt`, `system-nodes`, `kube-controller-manager`, `kube-scheduler`.
"""

from __future__ import annotations

import msgspec

from moorage.registry.request import User
from moorage.serving import Budget

READ_VERBS = frozenset({"get", "list", "watch"})
_EXEMPT_GROUPS = frozenset({"system:masters", "system:nodes"})
_EXEMPT_USERS = frozenset({"system:kube-controller-manager", "system:kube-scheduler"})


class SlotLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Maximum concurrent requests; `per_user` is the share of one user."""

    reading: int = 400
    mutating: int = 200
    reading_per_user: int = 100
    mutating_per_user: int = 50


class Slots:
    """The slots of one server."""

    def __init__(self, limits: SlotLimits) -> None:
        self._reading = Budget(total=limits.reading, per_user=limits.reading_per_user)
        self._mutating = Budget(total=limits.mutating, per_user=limits.mutating_per_user)

    def lane(self, verb: str) -> Budget:
        """Return the budget of slots from which a verb's requests take one each."""
        return self._reading if verb in READ_VERBS else self._mutating


def share_of(user: User) -> str:
    """Return the key that counts a user's requests, bodies and responses.

    Empty for users exempt from the limits: administrators and cluster components.
    """
    if user.name in _EXEMPT_USERS or not _EXEMPT_GROUPS.isdisjoint(user.groups):
        return ""
    return user.name
