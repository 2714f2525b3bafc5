"""Classifier of requests: finds the flow schema of each, and keeps what it found.

Hot path: one dictionary lookup for a request like an earlier one (bench/requests.py). What is kept
depends on the user, the verb and the resource alone; of namespaces only those count that a rule
names, so clients cannot fill the memory with names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from moorage.api.flow_control import (
    CATCH_ALL,
    NonResourcePolicyRule,
    PolicyRulesWithSubjects,
    ResourcePolicyRule,
    Subject,
)
from moorage.apiserver.endpoints.routing import Target
from moorage.apiserver.flow_control.configuration import SchemaConfiguration
from moorage.apiserver.registry.request import User

# Matching of requests to flow schemas. Pure functions.
#
# Source: apiserver `util/flowcontrol/rule.go`.

_ANY = "*"
_ACCOUNT = "system:serviceaccount:"


def matches(schema: SchemaConfiguration, user: User, verb: str, target: Target) -> bool:
    """Return whether a request is one of a schema's."""
    return any(_matches_rules(rules, user, verb, target) for rules in schema.rules)


def distinguisher_of(schema: SchemaConfiguration, user: User, target: Target) -> str:
    """Return the distinguisher of a request's flow among those of its schema."""
    match schema.distinguisher:
        case "ByUser":
            return user.name
        case "ByNamespace":
            return target.namespace
        case _:
            return ""


def _matches_rules(rules: PolicyRulesWithSubjects, user: User, verb: str, target: Target) -> bool:
    if not any(_is_subject(subject, user) for subject in rules.subjects):
        return False
    if target.is_resource:
        return any(_covers(rule, verb, target) for rule in rules.resource_rules)
    return any(_covers_path(rule, verb, target.path) for rule in rules.non_resource_rules)


def _is_subject(subject: Subject, user: User) -> bool:
    match subject.kind:
        case "User":
            return subject.user is not None and subject.user.name in (_ANY, user.name)
        case "Group":
            group = subject.group
            return group is not None and (group.name == _ANY or group.name in user.groups)
        case "ServiceAccount":
            account = subject.service_account
            if account is None or not user.name.startswith(_ACCOUNT):
                return False
            namespace, _, name = user.name.removeprefix(_ACCOUNT).partition(":")
            return namespace == account.namespace and account.name in (_ANY, name)
        case _:
            return False


def _covers(rule: ResourcePolicyRule, verb: str, target: Target) -> bool:
    resource = target.resource
    if target.subresource:
        resource = f"{resource}/{target.subresource}"
    if not (
        _has(rule.verbs, verb) and _has(rule.resources, resource)
        and _has(rule.api_groups, target.group)
    ):  # fmt: skip
        return False
    return _has(rule.namespaces, target.namespace) if target.namespace else rule.cluster_scope


def _covers_path(rule: NonResourcePolicyRule, verb: str, path: str) -> bool:
    return _has(rule.verbs, verb) and any(_is_below(path, url) for url in rule.non_resource_urls)


def _is_below(path: str, url: str) -> bool:
    """Return whether a URL of a rule covers a path: its own, those below it, or all."""
    return url in (_ANY, path) or path.startswith(f"{url.removesuffix(_ANY).removesuffix('/')}/")


def _has(values: tuple[str, ...], value: str) -> bool:
    """Return whether a list of a rule has a value. `*` stands for all where it is alone."""
    return values == (_ANY,) or value in values


T = TypeVar("T")

_KEPT = 4096
_LONGEST_KEY = 2000

_Key = tuple[str, tuple[str, ...], str, str, str, str, str]


class Classifier(Generic[T]):
    """Finds the first schema, in the order of matching, that a request fits.

    `T` is what belongs to a schema. One of them must be `catch-all`, to which requests go that no
    schema matches.
    """

    def __init__(self, schemas: Iterable[tuple[SchemaConfiguration, T]]) -> None:
        self._schemas = tuple(schemas)
        self._rest = next(own for schema, own in self._schemas if schema.name == CATCH_ALL)
        self._named = frozenset(_namespaces(schema for schema, _ in self._schemas))
        self._kept: dict[_Key, T] = {}

    def classify(self, user: User, verb: str, target: Target) -> T:
        """Return the value kept for the schema of a request."""
        place = target.namespace
        if place and place not in self._named:
            place = "*"
        key = (
            user.name, user.groups, verb, target.group, target.resource, target.subresource,
            place if target.resource else target.path,
        )  # fmt: skip
        found = self._kept.get(key)
        if found is None:
            found = self._find(user, verb, target)
            self._keep(key, found)
        return found

    def _find(self, user: User, verb: str, target: Target) -> T:
        for schema, own in self._schemas:
            if matches(schema, user, verb, target):
                return own
        return self._rest

    def _keep(self, key: _Key, found: T) -> None:
        name, groups, *others = key
        if sum(map(len, (name, *groups, *others))) > _LONGEST_KEY:
            return
        if len(self._kept) >= _KEPT:
            self._kept.clear()
        self._kept[key] = found


def _namespaces(schemas: Iterable[SchemaConfiguration]) -> Iterable[str]:
    for schema in schemas:
        for rules in schema.rules:
            for rule in rules.resource_rules:
                yield from rule.namespaces
