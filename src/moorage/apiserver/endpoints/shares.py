"""Shares of users: under which name what a user holds is counted.

Bodies, long answers, connections and requests to extension servers are limited for each user.
Administrators and the system's components are exempt: no load from pods can keep nodes from
reporting or controllers from working. Requests themselves have seats, see `flow_control`.
"""

from __future__ import annotations

from moorage.apiserver.registry.request import User

_EXEMPT_GROUPS = frozenset({"system:masters", "system:nodes"})
_EXEMPT_USERS = frozenset({"system:kube-controller-manager", "system:kube-scheduler"})


def share_of(user: User) -> str:
    """Return the key that counts what a user holds.

    Empty for users exempt from the limits: administrators and cluster components.
    """
    if user.name in _EXEMPT_USERS or not _EXEMPT_GROUPS.isdisjoint(user.groups):
        return ""
    return user.name
