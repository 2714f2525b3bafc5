"""Authorization checks of expressions, decided by the server's authorizer for the user of a write.

Source: apiserver `cel/library/authz.go`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from moorage.api import fields
from moorage.api.fields import EVERYTHING, FieldSelector
from moorage.apiserver.cel.evaluator import Authorize
from moorage.apiserver.cel.messages import Check, Verdict
from moorage.apiserver.registry.rbac import Action
from moorage.apiserver.registry.request import User


class Decision(Protocol):
    """What the authorizer says of an action."""

    @property
    def is_allowed(self) -> bool: ...

    @property
    def reason(self) -> str: ...


Decide = Callable[[User, Action, FieldSelector], Decision]
"""Decides an action of a user, seen through a field selector."""


def authorizing(decide: Decide, user: User) -> Authorize:
    """Return the function that answers the checks of a user's write."""

    def authorize(check: Check) -> Verdict:
        decision = decide(_user(check, user), _action(check), _selector(check.field_selector))
        return Verdict(decision.is_allowed, decision.reason)

    return authorize


def _user(check: Check, user: User) -> User:
    if check.account is None:
        return user
    namespace, name = check.account
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return User(name=f"system:serviceaccount:{namespace}:{name}", groups=groups)


def _action(check: Check) -> Action:
    if check.path:
        return Action(verb=check.verb, path=check.path)
    return Action(
        verb=check.verb,
        group=check.group,
        resource=check.resource,
        subresource=check.subresource,
        namespace=check.namespace,
        name=check.name,
    )


def _selector(text: str) -> FieldSelector:
    """Return a field selector; one that does not parse selects everything."""
    try:
        return fields.parse(text) if text else EVERYTHING
    except ValueError:
        return EVERYTHING
