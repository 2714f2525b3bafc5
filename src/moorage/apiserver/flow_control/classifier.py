"""Classifier of requests: finds the flow schema of each, and keeps what it found.

Hot path: one dictionary lookup for a request like an earlier one (bench/requests.py). What is kept
depends on the user, the verb and the resource alone; of namespaces only those count that a rule
names, so clients cannot fill the memory with names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from moorage.api.flow_control import CATCH_ALL
from moorage.apiserver.endpoints.routing import Target
from moorage.apiserver.flow_control.configuration import SchemaConfiguration
from moorage.apiserver.flow_control.matching import matches
from moorage.apiserver.registry.request import User

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
