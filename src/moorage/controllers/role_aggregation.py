"""ClusterRole aggregation: rules collected from other roles.

Source: API docs "Aggregated ClusterRoles".
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from moorage.api.clock import Clock
from moorage.api.errors import NotFoundError
from moorage.api.labels import from_object
from moorage.api.rbac import ClusterRole, PolicyRule
from moorage.controllers.informers import Informers, wait_synced
from moorage.controllers.patches import locked
from moorage.wire.client.queue import WorkQueue
from moorage.wire.client.resources import CLUSTER_ROLES
from moorage.wire.client.rest import Client


def gathered_rules(role: ClusterRole, roles: Iterable[ClusterRole]) -> tuple[PolicyRule, ...]:
    """Return the distinct rules of all roles the aggregation rule selects, by role name."""
    if role.aggregation_rule is None:
        return role.rules or ()
    ordered = sorted(roles, key=lambda role: role.metadata.name)
    rules: dict[PolicyRule, None] = {}
    for selector in map(from_object, role.aggregation_rule.cluster_role_selectors):
        for other in ordered:
            is_itself = other.metadata.name == role.metadata.name
            if not is_itself and selector.matches(other.metadata.labels):
                rules |= dict.fromkeys(other.rules or ())
    return tuple(rules)


class RoleAggregationController:
    """Updates aggregated roles, which are the keys; any role's change requeues all of them."""

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._roles = informers.cluster_roles
        self._queue: WorkQueue[str] = WorkQueue("role aggregation", clock=clock)
        self._roles.add_handler(self._role_changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await wait_synced(self._roles)
        await self._queue.run(self._reconcile)

    def _role_changed(self, before: ClusterRole | None, after: ClusterRole | None) -> None:
        del before, after
        for role in self._roles:
            if role.aggregation_rule is not None:
                self._queue.add(role.metadata.name)

    async def _reconcile(self, name: str) -> float | None:
        role = self._roles.get(name)
        if role is None or role.aggregation_rule is None:
            return None
        rules = gathered_rules(role, self._roles)
        if rules == (role.rules or ()):
            return None
        patch = {"metadata": locked(role.metadata), "rules": msgspec.to_builtins(rules)}
        try:
            await self._client.patch(CLUSTER_ROLES, name, patch)
        except NotFoundError:
            return None  # It is gone.
        return None
