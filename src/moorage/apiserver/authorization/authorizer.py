"""Authorizer chain: system:masters, node rules, RBAC, in that order.

Decisions are cached until any role or binding changes. Hot path: a cached decision is one
dict lookup.
"""

from __future__ import annotations

import msgspec

from moorage.api import labels
from moorage.api.errors import ForbiddenError, qualified
from moorage.api.fields import EVERYTHING, FieldSelector
from moorage.api.labels import Selector
from moorage.apiserver.authorization.node import NodeAuthorizer
from moorage.apiserver.registry.rbac import Action, RuleResolver, allows
from moorage.apiserver.registry.request import SYSTEM_MASTERS, User

_REMEMBERED = 20_000
_REMEMBERED_CHARS = 4_000_000
_LONGEST_KEY = 2_000


class Decision(msgspec.Struct, frozen=True):
    """Result of an authorization: allowed or not, and the reason."""

    is_allowed: bool
    reason: str = ""


_MASTERS = Decision(is_allowed=True)
_NO_RULE = Decision(is_allowed=False)

_Key = tuple[str, tuple[str, ...], Action]


class Authorizer:
    """The cluster's authorizer. Call `forget` when roles or bindings changed."""

    def __init__(self, resolver: RuleResolver, nodes: NodeAuthorizer) -> None:
        self._resolver = resolver
        self._nodes = nodes
        self._decided: dict[_Key, Decision] = {}
        self._chars = 0

    def forget(self) -> None:
        self._decided.clear()
        self._chars = 0

    def is_allowed(self, user: User, action: Action) -> bool:
        return self.decide(user, action).is_allowed

    def decide(
        self,
        user: User,
        action: Action,
        selector: FieldSelector = EVERYTHING,
        label_selector: Selector = labels.EVERYTHING,
    ) -> Decision:
        """Decide an action.

        Only the node rules use the selectors: agents may list their own pods and volumes.
        """
        if SYSTEM_MASTERS in user.groups:
            return _MASTERS
        node_refusal = ""
        node_decision = self._nodes.decide(user, action, selector, label_selector)
        if node_decision is not None:
            if node_decision == "":
                return _MASTERS
            node_refusal = node_decision
        key = (user.name, user.groups, action)
        decision = self._decided.get(key)
        if decision is None:
            decision = self._by_rules(user, action)
            self._remember(key, decision)
        if not decision.is_allowed and node_refusal:
            return Decision(is_allowed=False, reason=node_refusal)
        return decision

    def _remember(self, key: _Key, decision: Decision) -> None:
        chars = _chars(key)
        if chars > _LONGEST_KEY:
            # A review can contain names of several megabytes.
            return
        self._chars += chars
        if len(self._decided) >= _REMEMBERED or self._chars > _REMEMBERED_CHARS:
            self._decided.clear()
            self._chars = chars
        self._decided[key] = decision

    def check(
        self,
        user: User,
        action: Action,
        selector: FieldSelector = EVERYTHING,
        label_selector: Selector = labels.EVERYTHING,
    ) -> None:
        """Raise ForbiddenError, worded for the user, when the action is not allowed."""
        decision = self.decide(user, action, selector, label_selector)
        if not decision.is_allowed:
            raise refusal(user, action, decision.reason)

    def _by_rules(self, user: User, action: Action) -> Decision:
        for held in self._resolver.rules_of(user, action.namespace):
            if allows(held.rule, action):
                return Decision(is_allowed=True, reason=held.source)
        return _NO_RULE


def _chars(key: _Key) -> int:
    name, groups, action = key
    texts = (
        name, *groups, action.verb, action.group, action.resource, action.subresource,
        action.namespace, action.name, action.path,
    )  # fmt: skip
    return sum(map(len, texts))


def refusal(user: User, action: Action, reason: str = "") -> ForbiddenError:
    """Return the 403 for an action that is not allowed."""
    because = f": {reason}" if reason else ""
    if not action.is_resource:
        return ForbiddenError(
            f'forbidden: User "{user.name}" cannot {action.verb} path "{action.path}"{because}', {}
        )
    where = f'in the namespace "{action.namespace}"' if action.namespace else "at the cluster scope"
    subject = qualified(action.resource, action.group)
    if action.name:
        subject += f' "{action.name}"'
    details = {"name": action.name, "group": action.group, "kind": action.resource}
    return ForbiddenError(
        f'{subject} is forbidden: User "{user.name}" cannot {action.verb} resource '
        f'"{action.full_resource}" in API group "{action.group}" {where}{because}',
        {key: value for key, value in details.items() if value},
    )
