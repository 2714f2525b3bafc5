"""ClusterRole aggregation: rules collected from other roles.

Source: API docs "Aggregated ClusterRoles".
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import msgspec

from moorage.api.clock import Clock
from moorage.api.errors import NotFoundError
from moorage.api.labels import from_object
from moorage.api.rbac import ClusterRole, PolicyRule
from moorage.controllers.informers import Informers
from moorage.controllers.loop import Loop
from moorage.controllers.requests import locked
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


def role_aggregation(client: Client, informers: Informers, clock: Clock) -> Loop[str]:
    """Return the loop that updates aggregated roles; any role's change queues all of them."""
    roles = informers.cluster_roles

    def aggregated(before: ClusterRole | None, after: ClusterRole | None) -> Iterable[str]:
        del before, after
        return [role.metadata.name for role in roles if role.aggregation_rule is not None]

    async def reconcile(name: str) -> None:
        role = roles.get(name)
        if role is None or role.aggregation_rule is None:
            return
        rules = gathered_rules(role, roles)
        if rules != (role.rules or ()):
            patch = {"metadata": locked(role.metadata), "rules": msgspec.to_builtins(rules)}
            with suppress(NotFoundError):  # It is gone.
                await client.patch(CLUSTER_ROLES, name, patch)

    return Loop("role aggregation", reconcile, [(roles, aggregated)], clock)
